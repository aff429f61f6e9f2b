// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bfs`, `bc`, `pagerank`: graph algorithms on a Kronecker graph, by their access pattern.
//!
//! The graph is GAP's: 2^n vertices, 16 edges a vertex in each direction, R-MAT with a, b, c = 0.57,
//! 0.19, 0.19, vertices numbered anew by a random permutation (`permuted=0` leaves them in the
//! generator's order, where the hubs lie together). No graph is built: an edge that is examined ends
//! at a vertex with that vertex' share of the edges, so its entry in an array is visited in
//! proportion to its degree; what is done once a vertex is uniform or in order. Arrays are those
//! of the GAP Benchmark Suite: offsets (8 bytes a vertex), neighbours (4 bytes an edge and
//! direction), and an algorithm's own. Left out: the queue of vertices (0.2 % of the lines).
//!
//! | name | for each edge examined | for each vertex (1/32 as often) |
//! | --- | --- | --- |
//! | `bfs` | read its end's parent | offset, neighbours (2 lines on average), write the parent |
//! | `bc` | read the end's depth; half (edges that lead one level on) add to its path count on the way out, and on the way back read its path count and delta | twice offset and neighbours, write depth, delta, score |
//! | `pagerank` | read its end's contribution | in order: offsets, neighbours, scores, contributions |
//!
//! Paper sizes: `bfs` 2^30 vertices (MTM Table 2: 0.9 billion), 16 threads as there is none given;
//! `bc` 2^29 (HeMem 5.2.3), 16 threads; `pagerank` 2^26 and 20 edges a vertex (Nomad 4.2, which takes
//! a uniform random graph: `zero=0.5`). The small ones are the power of two of vertices whose arrays are nearest to 2.7
//! of the free fast memory.

use std::ops::Range;

use crate::Choice;
use crate::DRAW_NS;
use crate::PAGE_BYTES;
use crate::Part;
use crate::Phase;
use crate::Start;
use crate::Workload;
use crate::WorkloadError;
use crate::sizes::Parameters;
use crate::sizes::Shape;
use crate::workload::part;

/// a + b of Graph500's generator.
const ZERO: f64 = 0.76;

/// The arrays of a graph one after the other, and the parts that visit them.
struct Graph {
    vertices_log2: u32,
    /// Neighbours of a vertex on average, both directions.
    degree: f64,
    zero: f64,
    permuted: bool,
    pages: u64,
}

impl Graph {
    /// `own_bytes` a vertex are the algorithm's.
    fn new(
        parameters: &Parameters<'_>,
        paper_log2: u32,
        paper_edges: u32,
        own_bytes: u64,
    ) -> Result<Self, WorkloadError> {
        let edges = parameters.number("edges", parameters.default(paper_edges, 16), 1, 1000)?;
        let bytes_each = 8 + 8 * u64::from(edges) + own_bytes;
        let default = match parameters.free_bytes() {
            None => paper_log2,
            Some(free) => nearest_log2(u128::from(free) * 27 / 10 / u128::from(bytes_each)),
        };
        if default < 12 {
            return Err(parameters.too_small("its vertices"));
        }
        if default > 36 {
            let bytes = bytes_each.saturating_mul(1 << default.min(63));
            return Err(WorkloadError::TooLarge { bytes });
        }
        Ok(Self {
            vertices_log2: parameters.number("vertices_log2", default, 12, 36)?,
            degree: f64::from(2 * edges),
            zero: parameters.number("zero", ZERO, 0.5, 0.99)?,
            permuted: parameters.number("permuted", 1, 0, 1)? == 1,
            pages: 0,
        })
    }

    /// Pages for an array with that many bytes a vertex.
    fn array(&mut self, bytes: u64) -> Result<Range<u32>, WorkloadError> {
        let first = self.pages;
        self.pages += ((1 << self.vertices_log2) * bytes).div_ceil(PAGE_BYTES);
        let page = |index: u64| {
            u32::try_from(index).map_err(|_| WorkloadError::TooLarge {
                bytes: index * PAGE_BYTES,
            })
        };
        Ok(page(first)?..page(self.pages)?)
    }

    fn neighbours(&mut self) -> Result<Range<u32>, WorkloadError> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most 2000 whole edges"
        )]
        let bytes = 4 * self.degree as u64;
        self.array(bytes)
    }

    /// Visits by edges: in proportion to the degree of the vertex.
    fn by_degree(&self, weight: f64, array: &Range<u32>, bytes: u16, write_percent: u8) -> Part {
        let choice = Choice::Kronecker {
            zero: self.zero,
            items_per_page: 4096 / bytes,
            permuted: self.permuted,
        };
        part(weight, array, choice, write_percent, 1)
    }

    fn workload(
        &self,
        parameters: &Parameters<'_>,
        mut parts: Vec<Part>,
    ) -> Result<Workload, WorkloadError> {
        let sum: f64 = parts.iter().map(|part| part.weight).sum();
        for part in &mut parts {
            part.weight /= sum;
        }
        let pages = parts.iter().map(|part| part.pages.end).max();
        parameters.program(Shape {
            pages: pages.expect("an algorithm visits something"),
            threads_paper: 16,
            start: Start::FirstTouch,
            think_ns: DRAW_NS,
            phases: vec![Phase::forever(parts)],
        })
    }
}

/// `bfs`, top down.
pub(crate) fn bfs(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let mut graph = Graph::new(parameters, 30, 16, 4)?;
    let (offsets, neighbours) = (graph.array(8)?, graph.neighbours()?);
    let parents = graph.array(4)?;
    let vertex = 1.0 / graph.degree;
    let parts = vec![
        graph.by_degree(1.0, &parents, 4, 0),
        part(vertex, &offsets, Choice::Uniform, 0, 1),
        part(vertex, &neighbours, Choice::Uniform, 0, 2),
        part(vertex, &parents, Choice::Uniform, 100, 1),
    ];
    graph.workload(parameters, parts)
}

/// `bc`: betweenness centrality after Brandes.
pub(crate) fn bc(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let mut graph = Graph::new(parameters, 29, 16, 20)?;
    let (offsets, neighbours) = (graph.array(8)?, graph.neighbours()?);
    let (depths, deltas, scores) = (graph.array(4)?, graph.array(4)?, graph.array(4)?);
    let paths = graph.array(8)?;
    let vertex = 1.0 / graph.degree;
    let parts = vec![
        graph.by_degree(1.0, &depths, 4, 0),
        graph.by_degree(0.5, &paths, 8, 100),
        graph.by_degree(0.5, &paths, 8, 0),
        graph.by_degree(0.5, &deltas, 4, 0),
        part(2.0 * vertex, &offsets, Choice::Uniform, 0, 1),
        part(2.0 * vertex, &neighbours, Choice::Uniform, 0, 2),
        part(vertex, &depths, Choice::Uniform, 100, 1),
        part(vertex, &deltas, Choice::Uniform, 100, 1),
        part(vertex, &scores, Choice::Uniform, 100, 1),
    ];
    graph.workload(parameters, parts)
}

/// `pagerank`, pulling along incoming edges.
pub(crate) fn pagerank(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let mut graph = Graph::new(parameters, 26, 20, 8)?;
    let (offsets, neighbours) = (graph.array(8)?, graph.neighbours()?);
    let (scores, contributions) = (graph.array(4)?, graph.array(4)?);
    // A page in order holds 1024 neighbours, or a word of each of 1024 vertices.
    let edge_page = 1.0 / 1024.0;
    let vertex_page = edge_page / graph.degree;
    let in_order = |weight, array, writes| part(weight, array, Choice::Sequential, writes, 64);
    let parts = vec![
        graph.by_degree(1.0, &contributions, 4, 0),
        in_order(edge_page, &neighbours, 0),
        in_order(2.0 * vertex_page, &offsets, 0),
        in_order(vertex_page, &scores, 100),
        in_order(vertex_page, &contributions, 100),
    ];
    graph.workload(parameters, parts)
}

/// The power of two nearest to `count` by ratio.
fn nearest_log2(count: u128) -> u32 {
    // 2^n to 2^(n + 1/2) go down: compare squares.
    let down = count.max(1).ilog2();
    let square = count.saturating_mul(count);
    if square > 2 << (2 * down).min(120) {
        down + 1
    } else {
        down
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use crate::Sizes;

    fn named(name: &str, sizes: &Sizes) -> Program {
        let mut workload = Workload::named(name, sizes).expect(name);
        workload.programs.remove(0)
    }

    #[test]
    fn small_sizes_are_near_the_proportion() {
        for name in ["bfs", "bc", "pagerank"] {
            for free in [8 << 20, 100 << 20, 111 << 20, 160 << 20] {
                let bytes = named(name, &Sizes::fast_free(free)).bytes();
                let ratio = bytes * 100 / (free * 27 / 10);
                assert!((70..=142).contains(&ratio), "{name} {free}: {ratio} %");
            }
        }
        assert_eq!(nearest_log2(1), 0);
        assert_eq!(nearest_log2(1448), 10);
        assert_eq!(nearest_log2(1449), 11);
    }

    #[test]
    fn in_the_generator_s_order_the_first_vertices_are_the_hubs() {
        let sizes = Sizes::fast_free(8 << 20).with("permuted=0").expect("set");
        let bfs = named("bfs", &sizes);
        let parents = bfs.phases[0].parts[0].pages.clone();
        let shares = bfs.phases[0].shares(&bfs, 1);
        let order = shares.by_popularity();
        assert_eq!(order[0], parents.start);
        // Permuted, hubs are anywhere, and pages differ by less.
        let permuted = named("bfs", &Sizes::fast_free(8 << 20));
        let spread = permuted.phases[0].shares(&permuted, 1);
        let top = |s: &crate::Shares| s.of(s.by_popularity()[0]);
        assert!(top(&shares) > 5.0 * top(&spread));
    }

    #[test]
    fn the_papers_sizes() {
        assert_eq!(
            named("bc", &Sizes::paper()).pages,
            (1 << 29) / 4096 * (8 + 128 + 20)
        );
        let pagerank = named("pagerank", &Sizes::paper());
        assert_eq!(pagerank.pages, (1 << 26) / 4096 * (8 + 160 + 8));
    }
}

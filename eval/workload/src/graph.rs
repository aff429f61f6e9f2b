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
//! `graph500` is `bfs` in a program that has made its graph from a list of edges, which it keeps: the reference program of
//! AutoTiering 5.1 does, 12 bytes an edge. The list is touched first and not visited any more. What is
//! allocated later has lower addresses, as Linux maps large allocations from the top down: a scanner comes to the parents
//! first. The paper has 128 GB of it on
//! 32 GB of DRAM (section 2.3), so the small size is the power of two nearest to 4 of the free fast memory.
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
/// An edge in the list of Graph500's reference program: two vertex numbers of 48 bits.
const LIST_BYTES: u64 = 12;
/// The vertices whose list and arrays are nearest to the 128 GB of AutoTiering 2.3.
const GRAPH500_LOG2: u32 = 29;

/// How large a graph is.
struct Size {
    /// The paper's vertices, as a power of two.
    log2: u32,
    /// The paper's edges a vertex.
    edges: u32,
    /// The algorithm's own, bytes a vertex.
    own_bytes: u64,
    /// Of the list that the graph was made from, bytes an edge.
    list_bytes: u64,
    /// The small size, tenths of the free fast memory.
    tenths_of_free: u32,
}

impl Size {
    const fn new(log2: u32, edges: u32, own_bytes: u64) -> Self {
        Self {
            log2,
            edges,
            own_bytes,
            list_bytes: 0,
            tenths_of_free: 27,
        }
    }
}

/// The arrays of a graph one after the other, and the parts that visit them.
struct Graph {
    vertices_log2: u32,
    /// Edges of a vertex in one direction.
    edges: u64,
    /// Neighbours of a vertex on average, both directions.
    degree: f64,
    zero: f64,
    permuted: bool,
    pages: u64,
}

impl Graph {
    /// The memory of one of these sizes.
    fn new(parameters: &Parameters<'_>, size: &Size) -> Result<Self, WorkloadError> {
        let edges = parameters.number("edges", parameters.default(size.edges, 16), 1, 1000)?;
        let bytes_each = 8 + (8 + size.list_bytes) * u64::from(edges) + size.own_bytes;
        let default = match parameters.free_bytes() {
            None => size.log2,
            Some(free) => {
                let bytes = u128::from(free) * u128::from(size.tenths_of_free) / 10;
                nearest_log2(bytes / u128::from(bytes_each))
            }
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
            edges: u64::from(edges),
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
        self.array(8 * self.edges)
    }

    /// The list that the graph was made from.
    fn edge_list(&mut self) -> Result<Range<u32>, WorkloadError> {
        self.array(LIST_BYTES * self.edges)
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

    fn search(
        &self,
        parameters: &Parameters<'_>,
        offsets: &Range<u32>,
        neighbours: &Range<u32>,
        parents: &Range<u32>,
    ) -> Result<Workload, WorkloadError> {
        let vertex = 1.0 / self.degree;
        let parts = vec![
            self.by_degree(1.0, parents, 4, 0),
            part(vertex, offsets, Choice::Uniform, 0, 1),
            part(vertex, neighbours, Choice::Uniform, 0, 2),
            part(vertex, parents, Choice::Uniform, 100, 1),
        ];
        self.workload(parameters, parts)
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
        parameters.program(Shape {
            pages: u32::try_from(self.pages).expect("each array was in range"),
            threads_paper: 16,
            start: Start::FirstTouch,
            think_ns: DRAW_NS,
            phases: vec![Phase::forever(parts)],
        })
    }
}

/// `bfs`, top down.
pub(crate) fn bfs(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let mut graph = Graph::new(parameters, &Size::new(30, 16, 4))?;
    let (offsets, neighbours) = (graph.array(8)?, graph.neighbours()?);
    let parents = graph.array(4)?;
    graph.search(parameters, &offsets, &neighbours, &parents)
}

/// `graph500`: the same, where the list of edges was there first.
pub(crate) fn graph500(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let size = Size {
        list_bytes: LIST_BYTES,
        tenths_of_free: 40,
        ..Size::new(GRAPH500_LOG2, 16, 4)
    };
    let mut graph = Graph::new(parameters, &size)?;
    let (parents, neighbours) = (graph.array(4)?, graph.neighbours()?);
    let (offsets, list) = (graph.array(8)?, graph.edge_list()?);
    let mut workload = graph.search(parameters, &offsets, &neighbours, &parents)?;
    for program in &mut workload.programs {
        program.fill = [&list, &offsets, &neighbours, &parents]
            .map(Range::clone)
            .into();
    }
    Ok(workload)
}

/// `bc`: betweenness centrality after Brandes.
pub(crate) fn bc(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let mut graph = Graph::new(parameters, &Size::new(29, 16, 20))?;
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
    let mut graph = Graph::new(parameters, &Size::new(26, 20, 8))?;
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
        for (name, tenths) in [("bfs", 27), ("bc", 27), ("pagerank", 27), ("graph500", 40)] {
            for free in [8 << 20, 100 << 20, 111 << 20, 160 << 20] {
                let bytes = named(name, &Sizes::fast_free(free)).bytes();
                let ratio = bytes * 100 / (free * tenths / 10);
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
    fn the_list_of_edges_is_touched_first_and_never_visited() {
        let graph = named("graph500", &Sizes::fast_free(32 << 20));
        let shares = graph.phases[0].shares(&graph, 1);
        let (list, arrays) = graph.fill.split_first().expect("in another order");
        assert!(list.clone().all(|page| shares.of(page) == 0.0));
        assert_eq!(list.end, graph.pages);
        // 192 bytes of a vertex' 332.
        let share = f64::from(list.end - list.start) / f64::from(graph.pages);
        assert!((share - 192.0 / 332.0).abs() < 0.01, "{share}");
        // What comes later is below.
        let mut below = list.start;
        for array in arrays {
            assert_eq!(array.end, below);
            below = array.start;
        }
        assert_eq!(below, 0);
    }

    #[test]
    fn the_papers_sizes() {
        let graph500 = named("graph500", &Sizes::paper()).bytes();
        assert!(
            (100..180).contains(&(graph500 / 1_000_000_000)),
            "{graph500}"
        );
        assert_eq!(
            named("bc", &Sizes::paper()).pages,
            (1 << 29) / 4096 * (8 + 128 + 20)
        );
        let pagerank = named("pagerank", &Sizes::paper());
        assert_eq!(pagerank.pages, (1 << 26) / 4096 * (8 + 160 + 8));
    }
}

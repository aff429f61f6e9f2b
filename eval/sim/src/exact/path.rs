// SPDX-License-Identifier: MIT OR Apache-2.0
//! A visit's way to memory: straight, through the last-level cache, or in memory mode.

use std::hint::black_box;

use terrace_workload::Visit;

use super::ahead::AHEAD;
use super::ahead::Drawn;
use super::ahead::Lookup;
use super::player::Meter;
use crate::access_rates::is_stream;
use crate::cache::Cache;
use crate::cache::Found;
use crate::hardware::NODES;
use crate::memory_mode::Direct;
use crate::world::World;
use crate::world::bits;

/// How a visit gets at its lines.
pub(super) trait Path {
    /// Counts a visit to a page on that node; gives its ns, and how many lines it missed.
    fn visit(&mut self, meter: &mut Meter, world: &World, visit: Visit, node: usize) -> (f64, u64);

    /// Reads what these visits will look at, and throws it away.
    fn read_ahead(&self, ahead: &[Drawn], first_line: u32);
}

/// Every line is missed; a written one is given back at once.
#[derive(Debug)]
pub(super) struct Straight;

impl Path for Straight {
    #[inline]
    fn visit(&mut self, meter: &mut Meter, _: &World, visit: Visit, node: usize) -> (f64, u64) {
        let at = node * 2 + usize::from(visit.write);
        let [single, streamed] = meter.cost[at];
        let lines = u64::from(visit.lines);
        meter.counts.lines[at] += lines;
        let more = lines - 1;
        if more == 0 {
            return (single, lines);
        }
        #[expect(clippy::cast_precision_loss, reason = "at most 63")]
        let ns = if is_stream(visit.step) {
            meter.counts.streamed += more;
            single + streamed * more as f64
        } else {
            single * lines as f64
        };
        (ns, lines)
    }

    fn read_ahead(&self, _: &[Drawn], _: u32) {}
}

/// Whose a line is: each program's first, and how its pages are found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owners<'a> {
    pub(super) first_lines: &'a [u32],
    pub(super) lookups: &'a [Lookup],
}

impl Owners<'_> {
    /// Where the page of a line is.
    #[inline]
    fn node(&self, world: &World, line: u32) -> usize {
        let program = match self.first_lines {
            [_] => 0,
            firsts => firsts.partition_point(|first| *first <= line) - 1,
        };
        let page = (line - self.first_lines[program]) >> 6;
        let unit = self.lookups[program].unit(page);
        usize::from(world.state[unit as usize] & bits::NODE)
    }
}

/// Through the last-level cache.
#[derive(Debug)]
pub(super) struct Cached<'a> {
    pub(super) cache: &'a mut Cache,
    pub(super) hit_ns: f64,
    pub(super) owners: Owners<'a>,
}

impl Path for Cached<'_> {
    #[inline]
    fn visit(&mut self, meter: &mut Meter, world: &World, visit: Visit, node: usize) -> (f64, u64) {
        let at = node * 2 + usize::from(visit.write);
        let cost = meter.cost[at];
        let stream = is_stream(visit.step);
        let (mut ns, mut missed, mut streamed) = (0.0, 0, 0);
        for (nth, line) in lines(meter.first_line, visit).enumerate() {
            match self.cache.access(line, visit.write) {
                Found::Hit => ns += self.hit_ns,
                Found::Miss(back) => {
                    let in_stream = usize::from(stream && nth > 0);
                    missed += 1;
                    streamed += in_stream as u64;
                    ns += cost[in_stream];
                    if let Some(back) = back {
                        meter.counts.backs[self.owners.node(world, back)] += 1;
                    }
                }
            }
        }
        let counts = &mut meter.counts;
        counts.hits += u64::from(visit.lines) - missed;
        counts.lines[at] += missed;
        counts.streamed += streamed;
        (ns, missed)
    }

    fn read_ahead(&self, ahead: &[Drawn], first_line: u32) {
        read_ahead(self.cache, ahead, first_line);
    }
}

fn read_ahead(cache: &Cache, ahead: &[Drawn], first_line: u32) {
    // First where, then all reads in a row.
    let mut places = [0; AHEAD];
    for (place, Drawn { visit, .. }) in places.iter_mut().zip(ahead) {
        let page_line = first_line.wrapping_add(visit.page << 6);
        *place = cache.place(page_line + u32::from(visit.first_line));
    }
    black_box(places.iter().fold(0, |all, at| all | cache.peek(*at)));
}

/// The lines of a visit, by their numbers.
#[inline]
fn lines(first_line: u32, visit: Visit) -> impl Iterator<Item = u32> {
    let page_line = first_line.wrapping_add(visit.page << 6);
    let mut line = visit.first_line;
    (0..visit.lines).map(move |_| {
        let number = page_line + u32::from(line);
        line = (line + visit.step) & 63;
        number
    })
}

/// The fast node is a cache of the slow ones, below the last-level cache if there is one.
#[derive(Debug)]
pub(super) struct MemoryMode<'a> {
    pub(super) direct: &'a mut Direct,
    pub(super) cache: Option<&'a mut Cache>,
    pub(super) hit_ns: f64,
}

impl Path for MemoryMode<'_> {
    fn visit(&mut self, meter: &mut Meter, _: &World, visit: Visit, node: usize) -> (f64, u64) {
        let stream = is_stream(visit.step);
        let (mut ns, mut missed) = (0.0, 0);
        for (nth, line) in lines(meter.first_line, visit).enumerate() {
            let found = match &mut self.cache {
                Some(cache) => cache.access(line, visit.write),
                None => Found::Miss(None),
            };
            let Found::Miss(back) = found else {
                meter.counts.hits += 1;
                ns += self.hit_ns;
                continue;
            };
            missed += 1;
            let in_stream = usize::from(stream && nth > 0);
            meter.counts.streamed += in_stream as u64;
            ns += self.miss(meter, (line, visit.write), node, in_stream, back);
        }
        (ns, missed)
    }

    fn read_ahead(&self, ahead: &[Drawn], first_line: u32) {
        if let Some(cache) = &self.cache {
            read_ahead(cache, ahead, first_line);
        }
    }
}

impl MemoryMode<'_> {
    /// A missed line, and one that the cache gave back with it; gives the ns.
    fn miss(
        &mut self,
        meter: &mut Meter,
        (line, write): (u32, bool),
        node: usize,
        in_stream: usize,
        back: Option<u32>,
    ) -> f64 {
        let fast = self.direct.fast;
        // Without a cache a written line is given back at once.
        let at_once = write && self.cache.is_none();
        let write = usize::from(write);
        let asked = self.direct.access(line, at_once);
        let counts = &mut meter.counts;
        counts.lines[fast * 2 + write] += 1;
        counts.backs[fast] += u64::from(at_once);
        counts.backs[node.min(NODES)] += u64::from(asked.wrote_back);
        let mut ns = meter.cost[fast * 2 + write][in_stream];
        if !asked.hit {
            counts.slow[write] += 1;
            counts.lines[node * 2 + write] += 1;
            // It is put into its place.
            counts.backs[fast] += 1;
            ns += meter.cost[node * 2 + write][in_stream];
        }
        if let Some(back) = back {
            // The displaced line's node is taken for this one's: there is seldom another.
            let wrote_back = self.direct.access(back, true).wrote_back;
            counts.backs[fast] += 1;
            counts.backs[node.min(NODES)] += u64::from(wrote_back);
        }
        ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::player::Counts;
    use super::*;
    use crate::memory_mode::Layout;

    /// The fast node is asked first, always; what it does not have the slow one is asked for, too.
    #[test]
    fn a_hit_costs_the_fast_node_and_a_miss_both() {
        let mut direct = Layout::new(0, 1 << 12, 2, 3).played();
        let mut meter = Meter {
            counts: Counts::default(),
            cost: [[0.0; 2]; NODES * 2 + 2],
            first_line: 0,
        };
        for (at, ns) in [(0, 80.0), (1, 81.0), (2, 250.0), (3, 251.0)] {
            meter.cost[at] = [ns, ns / 2.0];
        }
        let mut path = MemoryMode {
            direct: &mut direct,
            cache: None,
            hit_ns: 1.0,
        };
        let mut ns = |line, write| path.miss(&mut meter, (line, write), 1, 0, None).to_bits();
        let of = f64::to_bits;
        assert_eq!(ns(0, false), of(330.0), "nothing is there yet");
        assert_eq!(ns(0, false), of(80.0));
        assert_eq!(ns(64, true), of(332.0), "in the same place");
        assert_eq!(ns(0, false), of(330.0));
        // Two reads and a write came from the slow node, the written line went back to it.
        assert_eq!(meter.counts.slow, [2, 1]);
        assert_eq!(meter.counts.lines[2..4], [2, 1]);
        assert_eq!(meter.counts.backs[1], 1);
        assert_eq!(meter.counts.backs[0], 4, "three put in place, one written");
    }
}

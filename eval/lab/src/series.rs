// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory model's time series, as `eval/lab/plugin/report.c` writes it: one JSON object a line,
//! once a second, at each mark and at the end. Counters only grow, so any two lines give an
//! interval: [`Line::since`].

use serde::Deserialize;
use serde::Serialize;

/// Counters of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeCount {
    /// Last-level cache misses of programs that this node served.
    pub loads: u64,
    pub stores: u64,
    /// Of these: the next line of a stream, which paid bandwidth and not latency.
    pub stream: u64,
    /// The same of the tiering system's own code outside the kernel.
    #[serde(default)]
    pub tiering_loads: u64,
    #[serde(default)]
    pub tiering_stores: u64,
    /// Misses and bytes of the kernel's bulk moves.
    pub kernel_loads: u64,
    pub kernel_stores: u64,
    pub kernel_read_bytes: u64,
    pub kernel_write_bytes: u64,
    /// Dirty lines the cache gave back: what is written to the memory itself.
    pub writebacks: u64,
    /// Of these: last written by copies (migration, the kernel's other copies).
    #[serde(default)]
    pub writebacks_copy: u64,
    /// Of these: last written by the kernel's clearing of pages.
    #[serde(default)]
    pub writebacks_clear: u64,
    /// Host time that processors waited for this node, and the part of it in its queue.
    pub delay_ns: u64,
    pub queue_ns: u64,
}

/// Counters of the emulated PMU, since it was first enabled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmuCount {
    /// Records written.
    pub samples: u64,
    /// Not written for lack of room.
    pub lost: u64,
    /// Not taken because of the rate limit.
    pub throttled: u64,
    /// Misses of user code while it was enabled.
    pub misses: u64,
}

/// What a line was written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    Tick,
    Mark,
    End,
}

/// A line of the series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    pub event: Event,
    /// Seconds since the emulator started, host time.
    pub t: f64,
    /// Text of a mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub watching: bool,
    /// Programs' accesses that missed the small private cache, and those the last-level cache served.
    pub accesses: u64,
    pub llc_hits: u64,
    /// Size of a cache line; 0 in series of before it was told.
    #[serde(default)]
    pub line_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pmu: Option<PmuCount>,
    pub nodes: Vec<NodeCount>,
}

/// A whole series.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Series {
    pub lines: Vec<Line>,
}

/// A line that is none.
#[derive(Debug, thiserror::Error)]
#[error("Line {line} of the lab's time series is not one: {source}")]
pub struct SeriesError {
    pub line: usize,
    source: serde_json::Error,
}

impl NodeCount {
    /// Misses of user code.
    #[must_use]
    pub const fn misses(&self) -> u64 {
        self.loads + self.stores
    }

    /// Dirty lines given back that programs wrote last.
    #[must_use]
    pub const fn writebacks_program(&self) -> u64 {
        self.writebacks - self.writebacks_copy - self.writebacks_clear
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            loads: self.loads - earlier.loads,
            stores: self.stores - earlier.stores,
            stream: self.stream - earlier.stream,
            tiering_loads: self.tiering_loads - earlier.tiering_loads,
            tiering_stores: self.tiering_stores - earlier.tiering_stores,
            kernel_loads: self.kernel_loads - earlier.kernel_loads,
            kernel_stores: self.kernel_stores - earlier.kernel_stores,
            kernel_read_bytes: self.kernel_read_bytes - earlier.kernel_read_bytes,
            kernel_write_bytes: self.kernel_write_bytes - earlier.kernel_write_bytes,
            writebacks: self.writebacks - earlier.writebacks,
            writebacks_copy: self.writebacks_copy - earlier.writebacks_copy,
            writebacks_clear: self.writebacks_clear - earlier.writebacks_clear,
            delay_ns: self.delay_ns - earlier.delay_ns,
            queue_ns: self.queue_ns - earlier.queue_ns,
        }
    }
}

impl PmuCount {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            samples: self.samples - earlier.samples,
            lost: self.lost - earlier.lost,
            throttled: self.throttled - earlier.throttled,
            misses: self.misses - earlier.misses,
        }
    }
}

impl Line {
    /// Bytes of so many cache lines.
    #[must_use]
    pub const fn bytes(&self, lines: u64) -> u64 {
        lines * self.line_bytes
    }

    /// What happened between `earlier` and this line: `t` and all counters are differences.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let nodes = self.nodes.iter().zip(&earlier.nodes);
        Self {
            t: self.t - earlier.t,
            accesses: self.accesses - earlier.accesses,
            llc_hits: self.llc_hits - earlier.llc_hits,
            pmu: self
                .pmu
                .map(|pmu| pmu.since(&earlier.pmu.unwrap_or_default())),
            nodes: nodes.map(|(now, before)| now.since(before)).collect(),
            ..self.clone()
        }
    }

    /// Share of the programs' misses that `node` served; `None` if there were none at all.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more")]
    pub fn share(&self, node: usize) -> Option<f64> {
        let all: u64 = self.nodes.iter().map(NodeCount::misses).sum();
        let here = self.nodes.get(node)?.misses();
        (all > 0).then(|| here as f64 / all as f64)
    }
}

impl Series {
    /// Reads a series. A last line without its end (the emulator was killed) is left out.
    ///
    /// # Errors
    ///
    /// [`SeriesError`] with the number of the first line that is not one.
    pub fn parse(text: &str) -> Result<Self, SeriesError> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().enumerate().map(|(index, line)| {
            serde_json::from_str(line).map_err(|source| SeriesError {
                line: index + 1,
                source,
            })
        });
        Ok(Self {
            lines: lines.collect::<Result<_, _>>()?,
        })
    }

    /// The marks, in order.
    pub fn marks(&self) -> impl Iterator<Item = (&str, &Line)> {
        self.lines
            .iter()
            .filter_map(|line| Some((line.name.as_deref()?, line)))
    }

    /// The last mark of that name.
    #[must_use]
    pub fn mark(&self, name: &str) -> Option<&Line> {
        self.marks()
            .filter(|&(mark, _)| mark == name)
            .map(|(_, line)| line)
            .last()
    }

    /// Counters at the end.
    #[must_use]
    pub fn totals(&self) -> Option<&Line> {
        self.lines.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(t: f64, fast: u64, slow: u64, event: &str) -> String {
        let node = |loads: u64| {
            serde_json::to_string(&NodeCount {
                loads,
                stores: 1,
                ..NodeCount::default()
            })
            .unwrap()
        };
        format!(
            "{{{event},\"t\":{t},\"watching\":true,\"accesses\":9,\"llc_hits\":1,\"nodes\":[{},{}]}}\n",
            node(fast),
            node(slow)
        )
    }

    #[test]
    fn intervals_and_shares() {
        let text = line(1.0, 0, 0, r#""event":"mark","name":"go""#)
            + &line(2.0, 30, 10, r#""event":"tick""#)
            + &line(3.0, 60, 20, r#""event":"end""#);
        let series = Series::parse(&text).unwrap();
        let go = series.mark("go").unwrap();
        let end = series.totals().unwrap();
        assert_eq!((end.event, series.marks().count()), (Event::End, 1));
        let whole = end.since(go);
        assert_eq!((whole.nodes[0].loads, whole.nodes[1].loads), (60, 20));
        assert_eq!(whole.share(0), Some(0.75));
        assert_eq!(go.since(go).share(0), None);
        assert_eq!(whole.share(7), None);
    }

    #[test]
    fn cut_and_broken_lines() {
        let whole = line(1.0, 0, 0, r#""event":"tick""#);
        let series = Series::parse(&format!("{whole}{{\"event\":\"ti")).unwrap();
        assert_eq!(series.lines.len(), 1);
        assert!(Series::parse("").unwrap().lines.is_empty());
        let error = Series::parse(&format!("{whole}nonsense\n")).unwrap_err();
        assert_eq!(error.line, 2);
    }
}

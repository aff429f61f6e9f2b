// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long it takes until a page of the slow node is on the fast one, where that is full (AutoTiering 5.2, figure 12).
//!
//! One page at a time, from the order to its end, the program being idle: by an exchange with a page of the fast node, by demoting
//! that page first, and into room that was made before (OPM(BD)); the last two by `move_pages` as well, where there are two nodes. Beside it
//! how long the page that comes up was out of reach, where the agent knows.

use std::time::Duration;

use anyhow::bail;
use serde::Deserialize;
use serde::Serialize;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_proto::Op;
use terrace_sys::clock;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;

use crate::driver::Driver;
use crate::driver::PLACEMENTS;
use crate::driver::percentile;
use crate::options::WORDS_BASE;

/// Who moves, and whether both pages of a pair are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    Exchange,
    DemoteAndPromote,
    PromoteIntoRoom,
    DemoteAndPromoteByKernel,
    PromoteIntoRoomByKernel,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Exchange,
        Self::DemoteAndPromote,
        Self::PromoteIntoRoom,
        Self::DemoteAndPromoteByKernel,
        Self::PromoteIntoRoomByKernel,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::DemoteAndPromote => "demotion, then promotion",
            Self::PromoteIntoRoom => "promotion into room",
            Self::DemoteAndPromoteByKernel => "demotion, then promotion, move_pages",
            Self::PromoteIntoRoomByKernel => "promotion into room, move_pages",
        }
    }

    const fn by_kernel(self) -> bool {
        matches!(
            self,
            Self::DemoteAndPromoteByKernel | Self::PromoteIntoRoomByKernel
        )
    }
}

/// Times, ns.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Spread {
    fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |percent| percentile(&times, percent);
        Self {
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

/// What one way took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Latency {
    way: Way,
    /// Pairs of pages that were to change places, and those that did.
    pairs: u64,
    moved: u64,
    /// From the order to its end.
    took: Spread,
    /// How long the page that came up was out of reach; nothing is known where the kernel moved it.
    inaccessible: Option<Spread>,
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "times of seconds at most")]
        let us = |ns: u64| ns as f64 / 1e3;
        let Self {
            pairs, moved, took, ..
        } = self;
        write!(
            f,
            "{:<37} {moved} of {pairs} moved, us: p50 {:.1} p90 {:.1} p99 {:.1} max {:.1}",
            self.way.name(),
            us(took.p50),
            us(took.p90),
            us(took.p99),
            us(took.max)
        )?;
        let Some(out) = &self.inaccessible else {
            return Ok(());
        };
        let (p50, p99, max) = (us(out.p50), us(out.p99), us(out.max));
        write!(f, "; out of reach p50 {p50:.1} p99 {p99:.1} max {max:.1}")
    }
}

/// Has pairs of pages change places by all ways that the machine has.
pub(crate) fn measure(driver: &mut Driver<'_>) -> anyhow::Result<Vec<Latency>> {
    let bytes = driver.options.page_size.size().bytes();
    let half = driver.options.pages / 2;
    let page = |index: u64| WORDS_BASE + index * bytes;
    let mut slow: Vec<u64> = (0..half).map(page).collect();
    let mut fast: Vec<u64> = (half..2 * half).map(page).collect();
    place(driver, &slow, demotion(driver.slow))?;
    place(driver, &fast, promotion(driver.fast))?;
    let mut all = Vec::new();
    for way in Way::ALL {
        if way.by_kernel() && driver.fast == driver.slow {
            continue;
        }
        let (mut took, mut out_of_reach) = (Vec::new(), Vec::new());
        for (up, down) in slow.iter().zip(&fast) {
            driver.times.clear();
            if let Some(time) = change_places(driver, way, *up, *down)? {
                took.push(time.0);
                out_of_reach.extend(driver.times.last());
            }
        }
        all.push(Latency {
            way,
            pairs: half,
            moved: took.len() as u64,
            took: Spread::of(took),
            inaccessible: (!out_of_reach.is_empty()).then(|| Spread::of(out_of_reach)),
        });
        std::mem::swap(&mut slow, &mut fast);
    }
    Ok(all)
}

const fn promotion(node: NodeId) -> Op {
    Op::Promote {
        node,
        keep_shadow: false,
    }
}

const fn demotion(node: NodeId) -> Op {
    Op::Demote { node, copy: true }
}

/// One that the kernel has in its hands may be refused for a moment.
fn place(driver: &mut Driver<'_>, pages: &[u64], op: Op) -> anyhow::Result<()> {
    'pages: for page in pages {
        for _ in 0..PLACEMENTS {
            if by_agent(driver, op, *page)?.is_some() {
                continue 'pages;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!("In {PLACEMENTS} tries the idle page at {page:#x} does not go where it is to begin");
    }
    Ok(())
}

/// What is waited for, until the one is on the fast node; nothing where a move failed.
fn change_places(
    driver: &mut Driver<'_>,
    way: Way,
    up: u64,
    down: u64,
) -> anyhow::Result<Option<Nanos>> {
    let (fast, slow) = (driver.fast, driver.slow);
    let (before, after) = match way {
        Way::Exchange => return by_agent(driver, Op::Exchange { with: Addr(down) }, up),
        Way::DemoteAndPromote | Way::PromoteIntoRoom => (
            by_agent(driver, demotion(slow), down)?,
            by_agent(driver, promotion(fast), up)?,
        ),
        Way::DemoteAndPromoteByKernel | Way::PromoteIntoRoomByKernel => {
            (by_kernel(driver, slow, down)?, by_kernel(driver, fast, up)?)
        }
    };
    let both = matches!(way, Way::DemoteAndPromote | Way::DemoteAndPromoteByKernel);
    Ok(before
        .zip(after)
        .map(|(before, after)| if both { before + after } else { after }))
}

/// From the order to its end; nothing where the page stayed.
fn by_agent(driver: &mut Driver<'_>, op: Op, page: u64) -> anyhow::Result<Option<Nanos>> {
    driver.moved.clear();
    let began = clock::now();
    driver.order(op, page, driver.options.page_size.size());
    driver.wait_for_answers()?;
    let took = clock::now().since(began);
    Ok((!driver.moved.is_empty()).then_some(took))
}

fn by_kernel(driver: &Driver<'_>, node: NodeId, page: u64) -> anyhow::Result<Option<Nanos>> {
    let target = Target::Process(Pid(driver.link.hello.pid));
    let began = clock::now();
    let status = move_pages::migrate(target, &[page], node, Sharing::OwnOnly)?;
    let took = clock::now().since(began);
    Ok((status == [PageStatus::On(node)]).then_some(took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_the_times_in_order() {
        let spread = Spread::of((1..=101).rev().collect());
        let expected = Spread {
            p50: 51,
            p90: 91,
            p99: 100,
            max: 101,
        };
        assert_eq!(spread, expected);
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}

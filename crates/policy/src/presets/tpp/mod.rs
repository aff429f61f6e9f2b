// SPDX-License-Identifier: MIT OR Apache-2.0
//! TPP, as its patch runs in Nomad's artifact (Linux 5.13, `do_numa_page`): a hint fault on an inactive page
//! marks it accessed and returns without restoring the page-table entry. The same access faults again and
//! again, each time adding to a processor's list of 15 pages to activate, until that is full and drained
//! (Nomad 3.1: up to 15 faults a page). The page is active then, and promoted in the fault: at its first
//! access, whatever its heat. An active page, and a huge one, of which the patch does not ask it, take one fault.
//!
//! Demotion, by the two lists, begins and ends at a watermark of its own (`vm.demote_scale_factor`: the
//! artifact's script sets 10 % of the node; at least twice high). Promotion stops at high, as in any 5.13 (the
//! TPP paper says that it ignores that; the patch does not). A demoted page is armed where it arrives
//! (`remove_migration_pte`). The scanner pauses as any kernel's before 6.7.
//!
//! Not modelled: by the source `mark_page_accessed` adds only every second time, which makes 31 faults a promotion
//! (seen in an emulated machine; `promotion_faults=31`); and a page that waits in another processor's list
//! faults until that is drained.

use terrace_core::Nanos;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::PageSize;

use crate::Capabilities;
use crate::Preset;
use crate::event::ScanScope;
use crate::kernel;
use crate::kernel::Answer;
use crate::kernel::Balancing;
use crate::kernel::List;
use crate::kernel::PERIODS_HELP;
use crate::kernel::Reclaim;
use crate::preset::Colour;

/// Transparent page placement.
pub static PRESET: Preset = Preset {
    name: "tpp",
    title: "promotes at a page's first access, in up to 15 hint faults; demotes early",
    paper: Some("TPP, ASPLOS '23"),
    needs: kernel::NEEDS,
    uses: Capabilities::empty(),
    on_sockets: Capabilities::empty(),
    priorities: false,
    limits: false,
    colour: Colour {
        light: "#c4266e",
        dark: "#ff85b3",
    },
    help: &[
        PERIODS_HELP[0],
        PERIODS_HELP[1],
        (
            "promotion_faults",
            "Hint faults that promote an inactive page (Nomad 3.1: up to 15).",
        ),
        (
            "demote_scale_factor",
            "Free memory that demotion keeps, in 1/10000 of the node (vm.demote_scale_factor).",
        ),
    ],
    dilated: |_| Vec::new(),
    build: |settings, host| {
        let periods = kernel::periods(settings)?;
        let mode = Mode {
            promotion_faults: settings.number("promotion_faults", 15, 1..=1_000)?,
            scale: settings.number("demote_scale_factor", 1_000, 1..=10_000)?,
            faults: 0,
        };
        let policy = Balancing::new(mode, Reclaim::Lists, periods, host);
        Ok(Box::new(policy))
    },
};

#[derive(Debug)]
struct Mode {
    promotion_faults: u64,
    scale: u64,
    /// Faults so far of the access that is faulting: nothing comes in between.
    faults: u64,
}

impl kernel::Mode for Mode {
    const NAME: &'static str = PRESET.name;
    const SCOPE: ScanScope = ScanScope::Slow;
    const TIERS: bool = false;
    const ARMS_DEMOTED: bool = true;

    fn floor(memory: &NodeMemory) -> u64 {
        memory.high_bytes
    }

    fn marks(&self, memory: &NodeMemory) -> (u64, u64) {
        let share = u128::from(memory.total_bytes) * u128::from(self.scale) / 10_000;
        let mark = u64::try_from(share).unwrap_or(u64::MAX);
        let mark = mark.max(2 * memory.high_bytes).min(memory.total_bytes);
        (mark, mark)
    }

    fn answer(
        &mut self,
        _: Nanos,
        page: PageRef,
        _: Option<Nanos>,
        _: &NodeMemory,
        list: Option<&mut List>,
    ) -> Answer {
        if let Some(list) = list.filter(|list| **list != List::Active)
            && page.size == PageSize::Base4K
        {
            self.faults += 1;
            if self.faults < self.promotion_faults {
                return Answer::FaultsAgain;
            }
            self.faults = 0;
            *list = List::Active;
        }
        Answer::Promotes
    }
}

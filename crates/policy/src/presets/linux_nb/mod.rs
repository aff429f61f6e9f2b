// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's NUMA balancing without tiers (`numa_balancing=1`).
//!
//! All pages get hint faults; a page of another node moves to the faulting processor's node if that is
//! above its high watermark. Nothing is demoted.

use terrace_core::Nanos;
use terrace_core::NodeMemory;
use terrace_core::PageRef;

use crate::Capabilities;
use crate::Preset;
use crate::event::ScanScope;
use crate::kernel;
use crate::kernel::Answer;
use crate::kernel::Balancing;
use crate::kernel::List;
use crate::kernel::Reclaim;
use crate::preset::Colour;

/// What Linux does by default on a machine with several nodes.
pub static PRESET: Preset = Preset {
    name: "autonuma",
    title: "the kernel's NUMA balancing without tiers (numa_balancing=1)",
    paper: None,
    needs: kernel::NEEDS,
    uses: Capabilities::empty(),
    on_sockets: Capabilities::empty(),
    priorities: false,
    limits: false,
    colour: Colour {
        light: "#8e3bb0",
        dark: "#cf94ea",
    },
    help: &kernel::PERIODS_HELP,
    dilated: |_| Vec::new(),
    build: |settings, host| {
        let periods = kernel::periods(settings)?;
        let policy = Balancing::new(Mode, Reclaim::Nothing, periods, host);
        Ok(Box::new(policy))
    },
};

#[derive(Debug)]
struct Mode;

impl kernel::Mode for Mode {
    const NAME: &'static str = PRESET.name;
    const SCOPE: ScanScope = ScanScope::All;
    const TIERS: bool = false;

    fn floor(memory: &NodeMemory) -> u64 {
        memory.high_bytes
    }

    fn marks(&self, _: &NodeMemory) -> (u64, u64) {
        (0, 0)
    }

    fn answer(
        &mut self,
        _: Nanos,
        _: PageRef,
        _: Option<Nanos>,
        _: &NodeMemory,
        _: Option<&mut List>,
    ) -> Answer {
        Answer::Promotes
    }
}

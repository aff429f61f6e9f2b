// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's tiering (`numa_balancing=2`, `should_numa_migrate_memory`).
//!
//! Pages of lower tiers get hint faults. With plenty of free fast memory (1 GiB or 1/16 of the node
//! above the promo watermark) each is promoted; else those whose hint-fault latency is below the
//! threshold, as far as the rate limit lets it ([`threshold`]). A promotion that finds no room wakes
//! kswapd, which demotes by recency up to the promo watermark: by generations, as today's kernels do, or
//! by the two lists (`mglru = false`: a kernel of the papers' time, whose scanner does not ask either
//! who faults where).

mod threshold;

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
use crate::kernel::PERIODS_HELP;
use crate::kernel::Reclaim;
use crate::preset::Colour;
use threshold::Threshold;

/// What Linux does where it is told to tier memory.
pub static PRESET: Preset = Preset {
    name: "kernel-tiering",
    title: "the kernel's tiering: by hint-fault latency, demotes by generations (numa_balancing=2)",
    paper: None,
    needs: kernel::NEEDS,
    uses: Capabilities::empty(),
    on_sockets: Capabilities::empty(),
    priorities: false,
    limits: false,
    colour: Colour {
        light: "#c2570c",
        dark: "#f0914a",
    },
    help: &[
        PERIODS_HELP[0],
        PERIODS_HELP[1],
        (
            "hot_threshold",
            "Hint-fault latency below which a page is promoted, at first (hot_threshold_ms).",
        ),
        (
            "promote_rate_limit_mbps",
            "MiB promoted a second at most (numa_balancing_promote_rate_limit_MBps).",
        ),
        (
            "mglru",
            "Demote by generations (CONFIG_LRU_GEN); without, by the two lists.",
        ),
    ],
    dilated: |_| Vec::new(),
    build: |settings, host| {
        let periods = kernel::periods(settings)?;
        let hot = settings.time("hot_threshold", Nanos::from_secs(1))?;
        let limit = settings.number("promote_rate_limit_mbps", 65_536, 0..=1 << 30)?;
        let reclaim = if settings.switch("mglru", true)? {
            Reclaim::Generations
        } else {
            Reclaim::Lists
        };
        let mode = Mode(Threshold::new(hot, limit << 20));
        Ok(Box::new(Balancing::new(mode, reclaim, periods, host)))
    },
};

#[derive(Debug)]
struct Mode(Threshold);

impl kernel::Mode for Mode {
    const NAME: &'static str = PRESET.name;
    const SCOPE: ScanScope = ScanScope::Slow;
    const TIERS: bool = true;

    fn floor(memory: &NodeMemory) -> u64 {
        memory.high_bytes
    }

    fn marks(&self, memory: &NodeMemory) -> (u64, u64) {
        (promo(memory), memory.low_bytes)
    }

    fn answer(
        &mut self,
        now: Nanos,
        page: PageRef,
        idle: Option<Nanos>,
        memory: &NodeMemory,
        _: Option<&mut List>,
    ) -> Answer {
        let enough = (1 << 30).max(memory.total_bytes >> 4);
        if memory.free_bytes > promo(memory) + enough {
            self.0.forget();
            return Answer::Promotes;
        }
        Answer::promotes_if(self.0.promotes(now, page.size.bytes(), idle))
    }

    fn threshold(&self) -> Nanos {
        self.0.now()
    }
}

/// The promo watermark: as far above high as high is above low.
fn promo(memory: &NodeMemory) -> u64 {
    memory.high_bytes + memory.high_bytes.saturating_sub(memory.low_bytes)
}

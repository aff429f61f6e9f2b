// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that are measured at once, against the same one by one.

use proptest::prelude::*;
use terrace_core::NodeInfo;
use terrace_core::TierId;
use terrace_core::Tiers;

use super::*;
use crate::presets::chrono::Params;
use crate::presets::chrono::queue::ENTRY_BYTES;

const KEY: Key = (terrace_core::Pid(1), 7);
const SLOW: NodeId = NodeId(1);
const PAGES: usize = 24;

fn chrono(params: Params) -> Chrono {
    let node = |id, tier| NodeInfo {
        id: NodeId(id),
        tier: TierId(tier),
        capacity_bytes: 1 << 30,
        cpus: Vec::new(),
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    };
    let mut chrono = Chrono::new(params, Tiers::new(vec![node(0, 0), node(1, 1)]));
    chrono.residents.sized(KEY, false, Nanos::ZERO);
    for page in 0..PAGES {
        chrono.residents.put(KEY, page, SLOW);
    }
    chrono
}

proptest! {
    #[test]
    fn pages_at_once_are_pages_one_by_one(
        rounds in 1_u8..=3,
        entries in 1_usize..12,
        steps in prop::collection::vec((any::<u32>(), 1_u64..1_500, 0..PAGES, 0_u8..4), 0..40),
    ) {
        let queue_bytes = entries * ENTRY_BYTES;
        let params = Params { rounds, queue_bytes, ..Params::default() };
        let mut both = [chrono(params), chrono(params)];
        for (second, (pages, millis, page, what)) in (1..).zip(steps) {
            let (now, idle) = (Nanos::from_secs(second), Nanos::from_millis(millis));
            for chrono in &mut both {
                let Some(chunk) = chrono.residents.pages.get_mut(KEY) else {
                    unreachable!("it has pages");
                };
                match what {
                    0 => {
                        chunk.own.demoted.set(page);
                        chrono.demoted.add(now, KEY, page);
                    }
                    1 => {
                        let first = chrono.queue.pop().map(|entry| split(entry.page).1);
                        first.into_iter().for_each(|page| chunk.own.queued.clear(page));
                    }
                    2 => chunk.flying.set(page),
                    _ => chunk.flying = PageBits::NONE,
                }
            }
            let mut set = PageBits::NONE;
            set.0[0] = u64::from(pages) % (1 << PAGES);
            both[0].measured(now, KEY, &set, idle);
            set.pages().for_each(|page| both[1].measured(now, KEY, &PageBits::one(page), idle));
            let [at_once, one_by_one] = both.each_ref().map(|chrono| format!("{chrono:?}"));
            prop_assert_eq!(at_once, one_by_one);
        }
    }
}

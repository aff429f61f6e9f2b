// SPDX-License-Identifier: MIT OR Apache-2.0
//! Swaps random pages between the fastest tier and the next at a steady rate: what migration costs
//! when it knows nothing.
//!
//! It does not know where a page is: an order for a page that is there already is refused at no cost,
//! so it orders until as many were carried out as it wants.

use std::collections::VecDeque;

use rand::Rng;
use rand_pcg::Pcg64Mcg;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Tiers;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Reason;
use terrace_policy::SettingError;
use terrace_policy::Settings;
use terrace_policy::Verdict;

use crate::space::Space;

const TICK: Nanos = Nanos::from_millis(10);

/// The policy.
#[derive(Debug)]
pub(crate) struct Random {
    space: Space,
    rng: Pcg64Mcg,
    fast: NodeId,
    slow: NodeId,
    /// Bytes each way a second.
    rate: u64,
    /// Bytes each way that may be moved now: to the fast node, from it.
    credit: [u64; 2],
    last: Nanos,
    deadline: Nanos,
    actions: VecDeque<Action>,
    in_flight: usize,
}

impl Random {
    pub(crate) fn new(
        settings: &mut Settings,
        tiers: &Tiers,
        space: &Space,
        seed: u64,
    ) -> Result<Self, SettingError> {
        let fast = tiers.nodes()[0].id;
        let slow = tiers.below(fast).next().map_or(fast, |node| node.id);
        Ok(Self {
            space: space.clone(),
            rng: Pcg64Mcg::new(u128::from(seed) ^ 0x5a5a_0b0b),
            fast,
            slow,
            rate: settings.number("swap_bytes_per_s", 64 << 20, 0..=1 << 40)?,
            credit: [0; 2],
            last: Nanos::ZERO,
            deadline: Nanos::ZERO,
            actions: VecDeque::new(),
            in_flight: 0,
        })
    }

    fn order(&mut self) {
        let units = u64::from(self.space.units());
        for _ in 0..64 {
            if self.in_flight >= 64 {
                return;
            }
            let pick = (u128::from(self.rng.next_u64()) * u128::from(units)) >> 64;
            let page = self
                .space
                .page(u32::try_from(pick).expect("below the number of units"));
            // Make room first.
            let demote = self.credit[1] >= self.credit[0];
            let migration = if demote {
                Migration::Demote { to: self.slow }
            } else {
                Migration::Promote {
                    to: self.fast,
                    keep_shadow: false,
                }
            };
            if self.credit[usize::from(demote)] < page.size.bytes() {
                return;
            }
            self.in_flight += 1;
            self.actions.push_back(Action::Migrate {
                page,
                migration,
                mechanism: None,
                reason: Reason::MakeRoom,
            });
        }
    }
}

impl Policy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn observe(&mut self, _now: Nanos, event: &Event) {
        let Event::Ended {
            page,
            migration,
            verdict,
            ..
        } = event
        else {
            return;
        };
        self.in_flight = self.in_flight.saturating_sub(1);
        if matches!(verdict, Verdict::Moved { .. }) {
            let credit =
                &mut self.credit[usize::from(matches!(migration, Migration::Demote { .. }))];
            *credit = credit.saturating_sub(page.size.bytes());
        }
    }

    fn tick(&mut self, now: Nanos) {
        let span = u128::from(now.since(self.last).0);
        let earned = u128::from(self.rate) * span / 1_000_000_000;
        let earned = u64::try_from(earned).unwrap_or(u64::MAX);
        // A second's worth at most.
        for credit in &mut self.credit {
            *credit = (*credit + earned).min(self.rate.max(2 << 30));
        }
        self.last = now;
        self.order();
        self.deadline = now + TICK;
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    fn counters(&self) -> Vec<Measurement> {
        Vec::new()
    }
}

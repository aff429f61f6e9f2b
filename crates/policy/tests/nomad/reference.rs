// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nomad as its paper's sentences have it, slow and plain: two nodes, pages by their numbers.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_policy::Verdict;
use terrace_policy::presets::nomad::Params;

use super::machine::FAST_PAGES;
use super::machine::HIGH;
use super::machine::Told;

/// A page on the inactive list.
#[derive(Debug, Clone, Copy)]
struct Inactive {
    n: u64,
    referenced: bool,
    /// What was read since it was looked at.
    bit: Option<bool>,
}

/// See the module. Lists have their tails first.
#[derive(Debug)]
pub(crate) struct Reference {
    params: Params,
    pcq: Vec<(u64, Nanos)>,
    mpq: VecDeque<(u64, u8)>,
    active: Vec<u64>,
    inactive: Vec<Inactive>,
    shadows: BTreeSet<u64>,
    /// Under way: whether up, how often it was tried.
    flying: BTreeMap<u64, (bool, u8)>,
    fast: BTreeSet<u64>,
}

impl Reference {
    pub(crate) fn new(params: Params, fast: u64) -> Self {
        Self {
            params,
            pcq: Vec::new(),
            mpq: VecDeque::new(),
            active: Vec::new(),
            inactive: Vec::new(),
            shadows: BTreeSet::new(),
            flying: BTreeMap::new(),
            fast: (0..fast).collect(),
        }
    }

    /// "Each time a minor (hint) page fault occurs [...] the faulting page is added to PCQ"
    pub(crate) fn fault(&mut self, now: Nanos, n: u64) {
        let queued = self.pcq.iter().any(|(page, _)| *page == n)
            || self.mpq.iter().any(|(page, _)| *page == n);
        if !self.fast.contains(&n) && !queued && !self.flying.contains_key(&n) {
            self.pcq.push((n, now));
        }
    }

    /// "if there are any hot pages in PCQ that have both the active and accessed bits set. These hot pages are then
    /// inserted to a migration pending queue". The fault set the bit; so it is to be set after a clearing that came
    /// after the fault. Who is not accessed until that pass ends has to fault again.
    pub(crate) fn read(&mut self, told: &Told) {
        self.list_new(told);
        for page in &mut self.inactive {
            let accessed = told.accessed.contains(&page.n);
            let again = accessed && !told.fresh.contains(&page.n);
            if told.pages.contains(&page.n) && (told.last || !again) {
                page.bit = Some(page.bit.unwrap_or(false) || accessed);
            }
        }
        for (n, faulted) in std::mem::take(&mut self.pcq) {
            if !told.pages.contains(&n) || faulted >= told.cleared {
                self.pcq.push((n, faulted));
            } else if told.accessed.contains(&n) {
                self.mpq.push_back((n, 0));
            } else if !told.last {
                self.pcq.push((n, faulted));
            }
        }
    }

    /// "By default, all new pages go to the inactive list"
    fn list_new(&mut self, told: &Told) {
        for n in &told.pages {
            let listed = self.active.contains(n) || self.inactive.iter().any(|page| page.n == *n);
            if self.fast.contains(n) && !listed && !self.flying.contains_key(n) {
                self.inactivate(*n);
            }
        }
    }

    fn inactivate(&mut self, n: u64) {
        self.inactive.push(Inactive {
            n,
            referenced: false,
            bit: None,
        });
    }

    /// "`PG_referenced` is set when the access bit in the corresponding PTE is set upon a PTE check and `PG_active` is
    /// set after `PG_referenced` is set for two consecutive times."
    fn tail(&mut self) -> Option<u64> {
        loop {
            while self.inactive.len() < self.active.len() {
                let oldest = self.active.remove(0);
                self.inactivate(oldest);
            }
            let page = *self.inactive.first()?;
            let accessed = page.bit?;
            self.inactive.remove(0);
            if !accessed {
                return Some(page.n);
            } else if page.referenced {
                self.active.push(page.n);
            } else {
                self.inactive.push(Inactive {
                    referenced: true,
                    bit: None,
                    ..page
                });
            }
        }
    }

    pub(crate) fn tick(&mut self, free: u64) -> Vec<(u64, bool)> {
        let mut orders = self.demote(free);
        orders.extend(self.promote(free));
        orders
    }

    /// "Page demotion occurs when fast memory is under pressure and kswapd migrates pages from the inactive list to
    /// slow memory", 32 at a time; "a clean shadowed page" costs the least.
    fn demote(&mut self, free: u64) -> Vec<(u64, bool)> {
        let mark = HIGH + FAST_PAGES * self.params.demote_scale_factor / 10_000;
        let mut orders = Vec::new();
        loop {
            let going = self.flying.values().filter(|(up, _)| !up).count() as u64;
            let mut cluster = Vec::new();
            while (cluster.len() as u64) < mark.saturating_sub(free + going)
                && cluster.len() < 32
                && self.flying.len() + cluster.len() < self.params.inflight_pages
                && let Some(n) = self.tail()
            {
                cluster.push(n);
            }
            if cluster.is_empty() {
                return orders;
            }
            let (with, without): (Vec<u64>, Vec<u64>) =
                cluster.iter().partition(|n| self.shadows.contains(n));
            for n in with.into_iter().chain(without) {
                self.flying.insert(n, (false, 0));
                orders.push((n, false));
            }
        }
    }

    /// "a migration pending queue, from where they will be tried for asynchronous, transactional migration"
    fn promote(&mut self, free: u64) -> Vec<(u64, bool)> {
        let mut orders = Vec::new();
        while self.flying.len() < self.params.inflight_pages {
            let coming = self.flying.values().filter(|(up, _)| *up).count() as u64;
            if free <= HIGH + coming {
                break;
            }
            let Some((n, tries)) = self.mpq.pop_front() else {
                break;
            };
            self.flying.insert(n, (true, tries));
            orders.push((n, true));
        }
        orders
    }

    pub(crate) fn ended(&mut self, n: u64, verdict: Verdict) {
        let (up, tries) = self.flying.remove(&n).expect("it is under way");
        match verdict {
            Verdict::Moved { shadow } if up => {
                self.fast.insert(n);
                self.active.push(n);
                if shadow {
                    self.shadows.insert(n);
                }
            }
            Verdict::Moved { .. } | Verdict::MovedOntoShadow => {
                self.fast.remove(&n);
                self.shadows.remove(&n);
            }
            Verdict::Lost => {
                self.shadows.remove(&n);
            }
            // "waits for the next time when TPM is rescheduled to retry the migration", 10 times as published.
            Verdict::Dirtied | Verdict::Busy | Verdict::NoMemory if up => {
                if tries < self.params.max_retries {
                    self.mpq.push_back((n, tries + 1));
                }
            }
            Verdict::Dirtied | Verdict::Busy | Verdict::NoMemory => self.inactivate(n),
        }
    }

    /// "discards the shadow page if the master page is written"
    pub(crate) fn written(&mut self, n: u64) {
        self.shadows.remove(&n);
    }
}

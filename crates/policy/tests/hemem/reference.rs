// SPDX-License-Identifier: MIT OR Apache-2.0
//! HeMem, section 3, word for word and slow: lists are vectors, every page has an entry, times are
//! whole. What user space adds (a failed migration, asking for an inventory) is at the end.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::NodeMemory;
use terrace_policy::Verdict;
use terrace_policy::presets::hemem::Params;

use crate::machine::PAGE;

#[derive(Debug, Clone, Default)]
struct Page {
    reads: u32,
    writes: u32,
    /// "the last time the page was cooled"
    cooled: u64,
    hot: bool,
    write_heavy: bool,
    /// None until anything is known of it.
    fast: Option<bool>,
    migrating: bool,
    failed: u32,
}

/// "three FIFO queues to track hot, cold, and free pages of each memory type"; free ones are a number
/// here, which the machine tells.
#[derive(Debug, Default)]
struct Memory {
    hot: Vec<u64>,
    cold: Vec<u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Reference {
    hot_read: u32,
    hot_write: u32,
    cooling: u32,
    reserve: u64,
    swap_ratio: u32,
    /// 5.1 has "cooling threads": they cool whatever is on a hot list.
    cooling_thread: bool,
    clock: u64,
    gone_round: u64,
    pages: BTreeMap<u64, Page>,
    dram: Memory,
    nvm: Memory,
    asked: Option<Nanos>,
}

impl Reference {
    pub(crate) fn new(params: &Params, cooling_thread: bool) -> Self {
        Self {
            hot_read: params.hot_read_threshold.into(),
            hot_write: params.hot_write_threshold.into(),
            cooling: params.cooling_threshold.into(),
            reserve: params.free_reserve.expect("set"),
            swap_ratio: params.swap_ratio.into(),
            cooling_thread,
            clock: 0,
            gone_round: 0,
            pages: BTreeMap::new(),
            dram: Memory::default(),
            nvm: Memory::default(),
            asked: None,
        }
    }

    fn page(&mut self, n: u64) -> &mut Page {
        self.pages.entry(n).or_default()
    }

    fn take_off_lists(&mut self, n: u64) {
        for list in [
            &mut self.dram.hot,
            &mut self.dram.cold,
            &mut self.nvm.hot,
            &mut self.nvm.cold,
        ] {
            list.retain(|other| *other != n);
        }
    }

    /// Puts a page on the list that its class and its memory type say, at its back or front.
    fn list(&mut self, n: u64, front: bool) {
        self.take_off_lists(n);
        let page = self.pages[&n].clone();
        if page.migrating {
            return;
        }
        let memory = match page.fast {
            Some(true) => &mut self.dram,
            Some(false) => &mut self.nvm,
            None => return,
        };
        let list = if page.hot {
            &mut memory.hot
        } else {
            &mut memory.cold
        };
        if front {
            list.insert(0, n);
        } else {
            list.push(n);
        }
    }

    /// HeMem hands out pages from the free list; a new page is cold.
    pub(crate) fn resident(&mut self, n: u64) {
        self.page(n).fast = Some(true);
        self.list(n, false);
    }

    /// "If the sample is part of a managed memory region, HeMem increments an access count for the
    /// corresponding memory page."
    pub(crate) fn sampled(&mut self, n: u64, fast: bool, write: bool) {
        let page = self.page(n);
        if !page.migrating && page.fast != Some(fast) {
            page.fast = Some(fast);
            let front = page.write_heavy;
            self.list(n, front);
        }
        // "if the last time the page was cooled does not match the current clock, then the page is
        // cooled before its access count is incremented"
        self.cool(n);
        let (hot_read, hot_write, cooling) = (self.hot_read, self.hot_write, self.cooling);
        let page = self.page(n);
        // "HeMem uses separate counters for reads and writes"
        let counter = if write {
            &mut page.writes
        } else {
            &mut page.reads
        };
        *counter += 1;
        let sampled = *counter;
        // "Once a page is classified as a write-heavy page [...] HeMem moves it to the front of the
        // hot list for its current memory type"
        if page.writes >= hot_write && !page.write_heavy {
            page.write_heavy = true;
            page.hot = true;
            self.list(n, true);
        } else if page.reads >= hot_read && !page.hot {
            // "considered hot and placed in HeMem's hot list for its memory type"
            page.hot = true;
            self.list(n, false);
        }
        // "Once any page meets the cooling threshold, we increment the clock."
        if sampled >= cooling {
            self.clock += 1;
        }
    }

    /// "the access counts of each page are halved", once for each time the clock has advanced.
    fn cool(&mut self, n: u64) {
        let (hot_read, hot_write, clock) = (self.hot_read, self.hot_write, self.clock);
        while self.page(n).cooled < clock {
            let page = self.page(n);
            page.cooled += 1;
            page.reads /= 2;
            page.writes /= 2;
            if page.write_heavy {
                // "During cooling, if a write-heavy page is no longer considered to be write-heavy,
                // it is moved to the hot list for its memory type. This allows it a second chance"
                if page.writes < hot_write {
                    page.write_heavy = false;
                    self.list(n, false);
                }
            } else if page.hot && page.reads < hot_read && page.writes < hot_write {
                // "it is marked as cold and placed in HeMem's cold list for the memory type"
                page.hot = false;
                self.list(n, false);
            }
        }
    }

    fn order(&mut self, n: u64, promote: bool, orders: &mut Vec<(u64, bool)>) {
        self.page(n).migrating = true;
        self.take_off_lists(n);
        orders.push((n, promote));
    }

    /// The policy thread, every 10 ms.
    pub(crate) fn tick(&mut self, now: Nanos, memory: NodeMemory) -> Vec<(u64, bool)> {
        if self.cooling_thread && self.gone_round < self.clock {
            self.gone_round = self.clock;
            for n in [self.dram.hot.clone(), self.nvm.hot.clone()].concat() {
                self.cool(n);
            }
        }
        let mut orders = Vec::new();
        let free = |orders: &[(u64, bool)]| {
            let ups = orders.iter().filter(|order| order.1).count() as u64;
            let downs = orders.len() as u64 - ups;
            (ups * PAGE, downs * PAGE)
        };
        // "HeMem keeps a set amount of DRAM free"
        let wanted = self.reserve + memory.high_bytes;
        while memory.free_bytes + free(&orders).1 < wanted {
            if let Some(&cold) = self.dram.cold.first() {
                self.order(cold, false, &mut orders);
                continue;
            }
            // "If no data in DRAM is cold, HeMem migrates random data to NVM"
            let nothing_cold = self.nothing_cold(now);
            let Some(&any) = self.dram.hot.last().filter(|_| nothing_cold) else {
                self.ask(now);
                break;
            };
            self.order(any, false, &mut orders);
        }
        // "scans the DRAM cold list and the NVM hot list [...] and migrates pages among them"
        while let Some(&hot) = self.nvm.hot.first() {
            if self.cooling_thread && self.pages[&hot].cooled < self.clock {
                self.cool(hot);
                continue;
            }
            let (taken, given) = free(&orders);
            if memory.free_bytes + given < wanted + taken + PAGE {
                // "In the event that the hot set size exceeds the DRAM capacity, HeMem does not
                // migrate any pages, as there are no cold DRAM pages to swap for hot NVM pages."
                let Some(cold) = self.swapped_for(hot, now) else {
                    break;
                };
                self.order(cold, false, &mut orders);
            }
            if memory.free_bytes < memory.low_bytes + taken + PAGE {
                break;
            }
            self.order(hot, true, &mut orders);
        }
        orders
    }

    // What follows is not the paper's.

    /// The cold page whose place a hot one takes: without a ratio the first.
    fn swapped_for(&mut self, hot: u64, now: Nanos) -> Option<u64> {
        let stores_only = self.pages[&hot].write_heavy;
        let (load, store) = (self.hot_write, self.hot_read);
        let warmth = |page: &Page| match stores_only {
            true => page.writes * store,
            false => page.reads * load + page.writes * store,
        };
        for _ in 0..16 {
            let Some(&cold) = self.dram.cold.first() else {
                self.ask(now);
                return None;
            };
            if self.swap_ratio == 0 {
                return Some(cold);
            }
            self.cool(cold);
            if warmth(&self.pages[&hot]) >= self.swap_ratio * warmth(&self.pages[&cold]) {
                return Some(cold);
            }
            self.list(cold, false);
        }
        None
    }

    /// Pages that nobody sampled are not known to be in DRAM, until asked for.
    fn ask(&mut self, now: Nanos) {
        self.asked.get_or_insert(now);
    }

    fn nothing_cold(&mut self, now: Nanos) -> bool {
        self.ask(now);
        self.asked
            .is_some_and(|asked| now.since(asked) >= Nanos::from_millis(500))
    }

    pub(crate) fn ended(&mut self, n: u64, promote: bool, verdict: Verdict) {
        let cooled = self.page(n).cooled;
        let page = self.page(n);
        page.migrating = false;
        let mut front = false;
        match verdict {
            Verdict::Moved { .. } | Verdict::MovedOntoShadow => {
                page.fast = Some(promote);
                page.failed = 0;
                front = page.write_heavy;
            }
            Verdict::NoMemory => front = true,
            Verdict::Busy | Verdict::Dirtied if page.failed < 2 => page.failed += 1,
            Verdict::Busy | Verdict::Dirtied | Verdict::Lost => {
                *page = Page {
                    cooled,
                    ..Page::default()
                };
            }
        }
        self.list(n, front);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the places of all groups are worth: D ([`super::later`]), or V ([`super::value`]) where not enough is known for that.
//!
//! D needs what pages do over eight passes ([`super::lag`]), or is that of the first pass ([`super::first`]). It is taken when eight were
//! counted of the processes that have most of the memory, or one of nobody; then for all of them, as V and D are not of one measure:
//! for others M and r of one pass stand in.

use std::collections::BTreeMap;

use terrace_core::Pid;

use super::Adaptive;
use super::Process;
use super::census::Census;
use super::classes::CLASSES;
use super::decide::SIZES;
use super::first::Fit;
use super::lag::LAG;
use super::later;
use super::later::Terms;
use super::select::Group;
use super::transitions::Matrix;

/// What a process does.
enum Known {
    /// Over eight passes: visits a second of slow pages and of fast ones, by class.
    Lag(Matrix, Box<[[f64; CLASSES]; 2]>),
    /// In its first one.
    First(Option<Fit>),
}

/// A process, with what a visit saves, ns, and the time that this is of, s.
struct Of {
    known: Known,
    saved_ns: f64,
    pass: f64,
}

impl Of {
    fn new(process: &Process, saved_ns: f64) -> Self {
        let (known, passes) = if let Some(first) = process.transitions.first() {
            (Known::First(first.fit()), 1)
        } else {
            let m = process.lag.matrix(&process.m);
            let rates = [false, true].map(|fast| process.lag.rates(fast, &process.rates));
            (Known::Lag(m, Box::new(rates)), LAG)
        };
        Self {
            known,
            saved_ns: process.visit_saves(saved_ns),
            pass: process.pass_s * f64::from(passes),
        }
    }

    /// What its pages save by that.
    #[expect(clippy::cast_precision_loss, reason = "base pages of a page")]
    fn save(&self, groups: &mut [Group], side: usize) {
        let Known::Lag(_, rates) = &self.known else {
            return;
        };
        for (groups, size) in groups.chunks_mut(CLASSES).zip(SIZES) {
            for (group, rate) in groups.iter_mut().zip(rates[side].iter()) {
                group.saves = rate * self.saved_ns / size.base_pages() as f64;
            }
        }
    }
}

impl Adaptive {
    /// Slow and fast groups with the worth of their places, where so many more base pages fit into fast memory.
    pub(super) fn worth(&self, counts: &BTreeMap<Pid, Census>, room: u64) -> [Vec<Group>; 2] {
        let mut sides = [self.groups(counts, 0), self.groups(counts, 1)];
        let mut known = counts.keys().filter_map(|pid| self.processes.get(pid));
        let is_first = known.all(|process| !process.transitions.is_counted());
        if !self.params.later || !(is_first || self.is_trained(counts, &sides)) {
            return sides;
        }
        let saved = self.latencies.saved_ns();
        let processes = counts.keys().map(|pid| self.processes.get(pid));
        let known: Vec<Option<Of>> = processes
            .map(|process| Some(Of::new(process?, saved)))
            .collect();
        for (side, groups) in sides.iter_mut().enumerate() {
            let of_processes = groups.chunks_mut(SIZES.len() * CLASSES).zip(&known);
            for (groups, known) in of_processes {
                if let Some(known) = known {
                    known.save(groups, side);
                }
            }
        }
        let fast: u64 = sides[1].iter().map(|group| group.pages).sum();
        let price = later::price(&sides.concat(), fast + room);
        for (side, groups) in sides.iter_mut().enumerate() {
            let of_processes = groups.chunks_mut(SIZES.len() * CLASSES).zip(&known);
            for (groups, known) in of_processes {
                let Some(known) = known else { continue };
                self.places(groups, known, side, price);
            }
        }
        sides
    }

    /// D of the places of one process's groups.
    #[expect(clippy::cast_precision_loss, reason = "base pages of a page")]
    fn places(&self, groups: &mut [Group], of: &Of, side: usize, price: f64) {
        for (groups, size) in groups.chunks_mut(CLASSES).zip(SIZES) {
            if groups.iter().all(|group| group.pages == 0) {
                continue;
            }
            let each = size.base_pages() as f64;
            let terms = Terms {
                pass: of.pass,
                gamma: (-of.pass / self.params.horizon.as_secs_f64()).exp(),
                saved_ns: of.saved_ns,
                price: price * each,
                cost: self.costs.of(size),
            };
            let worth = match &of.known {
                Known::Lag(m, rates) => later::differences(m, &rates[side], terms),
                Known::First(Some(fit)) => fit.differences(terms),
                Known::First(None) => [0.0; CLASSES],
            };
            for (group, worth) in groups.iter_mut().zip(worth) {
                group.place = worth / each;
            }
        }
    }

    /// Whether those that have most of the memory were counted over eight passes.
    fn is_trained(&self, counts: &BTreeMap<Pid, Census>, sides: &[Vec<Group>; 2]) -> bool {
        let (mut trained, mut all) = (0, 0);
        for groups in sides {
            for (groups, pid) in groups.chunks(SIZES.len() * CLASSES).zip(counts.keys()) {
                let pages: u64 = groups.iter().map(|group| group.pages).sum();
                let process = self.processes.get(pid);
                let is = process.is_some_and(|process| process.lag.trained);
                trained += if is { pages } else { 0 };
                all += pages;
            }
        }
        trained * 2 > all
    }
}

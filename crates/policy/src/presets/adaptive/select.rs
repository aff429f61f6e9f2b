// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages change places: by groups of equal value, never by a sort of all pages.
//!
//! A group is all pages of one process, class, size and side. Per base page, with v the value V, d the worth D of
//! its place, and c the cost of a move:
//!
//! ```text
//! up   into room          if  v_p           > c_p,  d_p > -c_p        what had to go down again at once stays
//! swap p with q           if  d_p - d_q     > c_p + c_q       greatest differences first
//! ```
//!
//! The slow groups are gone through from the greatest d - c, the fast ones from the least d + c, where that is the same by their classes:
//! who was seen sooner is not visited less. They give quotas; a walk over the pages then takes as many of each group ([`super::take`]).

/// Pages of one value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Group {
    /// Base pages.
    pub(super) pages: u64,
    /// V, ns a base page.
    pub(super) value: f64,
    /// D, ns a base page.
    pub(super) place: f64,
    /// What a move costs, ns a base page.
    pub(super) cost: f64,
    /// What it saves in fast memory at present, ns a second and base page.
    pub(super) saves: f64,
    /// Accesses a second and base page.
    pub(super) load: f64,
}

/// What is to be moved of each group, base pages; what that gains in all, ns, and saves from then on, ns a second.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Quotas {
    pub(super) up: Vec<u64>,
    pub(super) down: Vec<u64>,
    pub(super) gain: f64,
    pub(super) saves: f64,
    /// What the moves take, ns.
    pub(super) spends: f64,
    /// Of those that go up, the ones that change places with another.
    pub(super) swapped: u64,
}

impl Quotas {
    /// Nothing of so many groups on either side.
    pub(super) fn none(slow: usize, fast: usize) -> Self {
        Self {
            up: vec![0; slow],
            down: vec![0; fast],
            ..Self::default()
        }
    }

    /// Both.
    pub(super) fn add(&mut self, other: &Self) {
        let own = self.up.iter_mut().chain(&mut self.down);
        let new = other.up.iter().chain(&other.down);
        own.zip(new).for_each(|(own, new)| *own += new);
        self.gain += other.gain;
        self.saves += other.saves;
        self.spends += other.spends;
        self.swapped += other.swapped;
    }
}

/// The order of the groups by what they are worth, the least first; where that was not told apart, a process's lower class.
pub(super) fn order(groups: &[Group], key: impl Fn(&Group) -> f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..groups.len()).filter(|i| groups[*i].pages > 0).collect();
    order.sort_by(|a, b| key(&groups[*a]).total_cmp(&key(&groups[*b])));
    order
}

/// Who goes up first.
pub(super) fn best_first(groups: &[Group]) -> Vec<usize> {
    let mut order = order(groups, |group| group.place - group.cost);
    order.reverse();
    order
}

/// Who goes down first.
pub(super) fn least_first(groups: &[Group]) -> Vec<usize> {
    order(groups, |group| group.place + group.cost)
}

/// The group that has the page which so many others are before in that order.
pub(super) fn after(groups: &[Group], order: Vec<usize>, mut pages: u64) -> Option<&Group> {
    let mut groups = order.into_iter().map(|index| &groups[index]);
    groups.find(|group| {
        let is_in = group.pages > pages;
        pages = pages.saturating_sub(group.pages);
        is_in
    })
}

/// What the last of those ask who make room for the slow pages that would go up where they pay so much for it, ns a base page; nothing
/// while there is room, or where they would go down anyway.
pub(super) fn asks([slow, fast]: &[Vec<Group>; 2], room: u64, pays: f64) -> f64 {
    let come = slow.iter().filter(|group| group.place > group.cost + pays);
    let come: u64 = come.map(|group| group.pages).sum();
    let there: u64 = fast.iter().map(|group| group.pages).sum();
    let others = come.saturating_sub(room).min(there).checked_sub(1);
    let last = others.and_then(|others| after(fast, least_first(fast), others));
    last.map_or(0.0, |group| f64::max(0.0, group.place + group.cost))
}

/// What a plan may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Base pages that go up before one must go down.
    pub(super) room: u64,
    /// Base pages that must go down whatever that costs.
    pub(super) short: u64,
    /// Base pages that may go up.
    pub(super) most: u64,
    /// Accesses a second that may come up more than go down ([`super::balance`]).
    pub(super) shift: f64,
}

/// Of so many pages as many as bring no more than that, each so much.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a number of pages, or more than there are"
)]
pub(super) fn bringing(pages: u64, each: f64, most: f64) -> u64 {
    if each * pages as f64 <= most {
        pages
    } else {
        (most / each) as u64
    }
}

/// The sum over so many pages of each group of what each has.
#[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
pub(super) fn total(groups: &[Group], pages: &[u64], of: fn(&Group) -> f64) -> f64 {
    let each = groups.iter().zip(pages);
    each.map(|(group, pages)| *pages as f64 * of(group)).sum()
}

/// The quotas within these bounds.
pub(super) fn quotas(slow: &[Group], fast: &[Group], bounds: Bounds) -> Quotas {
    let mut out = Quotas::none(slow.len(), fast.len());
    let mut victims = least_first(fast).into_iter().peekable();
    let Bounds {
        mut room,
        mut short,
        mut most,
        mut shift,
    } = bounds;
    while let Some(&q) = victims.peek().filter(|_| short > 0) {
        let taken = (fast[q].pages - out.down[q]).min(short);
        out.down[q] += taken;
        short -= taken;
        if out.down[q] == fast[q].pages {
            victims.next();
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    for p in best_first(slow) {
        let net = slow[p].value - slow[p].cost;
        let mut left = slow[p].pages.min(most);
        let stays = slow[p].place > -slow[p].cost;
        let into_room = if net > 0.0 && stays {
            bringing(left.min(room), slow[p].load, shift)
        } else {
            0
        };
        shift -= into_room as f64 * slow[p].load;
        out.up[p] += into_room;
        out.gain += into_room as f64 * net;
        out.saves += into_room as f64 * slow[p].saves;
        room -= into_room;
        left -= into_room;
        most -= into_room;
        while left > 0
            && let Some(&q) = victims.peek()
        {
            let (up, down) = (&slow[p], &fast[q]);
            if up.place - up.cost <= down.place + down.cost {
                break;
            }
            let gain = net - (down.value + down.cost);
            let taken = left.min(fast[q].pages - out.down[q]);
            let taken = bringing(taken, up.load - down.load, shift);
            if taken == 0 {
                break;
            }
            shift -= taken as f64 * (up.load - down.load);
            out.up[p] += taken;
            out.down[q] += taken;
            out.gain += taken as f64 * gain;
            out.saves += taken as f64 * (up.saves - down.saves);
            out.swapped += taken;
            left -= taken;
            most -= taken;
            if out.down[q] == fast[q].pages {
                victims.next();
            }
        }
    }
    let cost = |group: &Group| group.cost;
    out.spends = total(slow, &out.up, cost) + total(fast, &out.down, cost);
    out
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;

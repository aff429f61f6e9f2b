// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arms pages: takes the access from one, until the next access.
//!
//! By a userfaultfd of its own ([`terrace_sys::uffd::RwpUffd`]), with which the kernel answers the fault by itself:
//! nobody waits for us, also while we hold a lock or are gone. So what becomes of an armed page needs no record here.
//!
//! A mapping has one userfaultfd. One that is registered for moves is not armed, and pages of one that is
//! registered for this are not moved by us: both end as [`Outcome::NotManaged`].

use rustix::io::Errno;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::PageSize;
use terrace_proto::Command;
use terrace_proto::Outcome;
use terrace_proto::Report;
use terrace_sys::uffd::Protected;
use terrace_sys::uffd::RwpUffd;

use crate::life::door;
use crate::ops::clock;
use crate::ops::item::End;
use crate::state::agent::Agent;
use crate::state::agent::State;

/// Calls that mappings which are changing refuse.
const TRIES: u32 = 100;

impl Agent {
    /// Arms the page of a command, and says how that ended.
    pub(crate) fn arm(&self, command: &Command) -> Report {
        let (seq, addr) = (command.seq, command.addr);
        let armed = page(command).and_then(|page| {
            let mut state = self.state.lock();
            self.arm_page(&mut state, page, command.size)
        });
        match armed {
            Ok(since) => Report::Armed { seq, addr, since },
            Err(end) => end.report(seq, addr.0),
        }
    }

    /// Since when. Under the lock, so that a range which the program asks for meanwhile is let go of afterwards.
    fn arm_page(
        &self,
        state: &mut State,
        (start, end): (u64, u64),
        size: PageSize,
    ) -> Result<Nanos, End> {
        let uffd = self.arms.as_ref().ok_or(Outcome::Unavailable)?;
        if door::keeps_out_of(start, end) {
            return Err(Outcome::NotManaged.into());
        }
        let kind = self.pagemap.kind(start)?;
        if kind.is_empty() {
            return Err(Outcome::Gone.into());
        }
        if kind.huge && size == PageSize::Base4K {
            // To protect a part of a huge page splits it.
            return Err(Outcome::Busy.into());
        }
        if let Some(since) = protect(uffd, start, end)? {
            return Ok(since);
        }
        let State {
            ranges,
            maps,
            threads,
            ..
        } = state;
        ranges.register_for_arms(uffd, (maps, threads), (start, end))?;
        protect(uffd, start, end)?.ok_or_else(|| Outcome::Busy.into())
    }

    /// Lets go of a range in both contexts. Each refuses one of which the other has a part (Linux 6.15), so this goes
    /// mapping by mapping.
    pub(crate) fn unregister(&self, state: &mut State, start: u64, end: u64) {
        let Some(arms) = &self.arms else {
            let _ = self.uffd.unregister(start, end - start);
            return;
        };
        let mut at = start;
        while at < end
            && let Ok(Some(mapping)) = state.maps.find_from(Addr(at))
            && mapping.range.start.0 < end
        {
            let first = mapping.range.start.0.max(at);
            at = mapping.range.end.0.min(end);
            let _ = arms.unregister(first, at - first);
            let _ = self.uffd.unregister(first, at - first);
        }
    }
}

/// The range that a command is about, if it is a page.
fn page(command: &Command) -> Result<(u64, u64), End> {
    let (start, bytes) = (command.addr.0, command.size.bytes());
    let end = start.checked_add(bytes);
    let end = end.filter(|_| start.is_multiple_of(bytes) && command.size != PageSize::Giant1G);
    Ok((start, end.ok_or(Outcome::NotManaged)?))
}

/// Since when the range is protected; `None` where it is not registered for that.
fn protect(uffd: &RwpUffd, start: u64, end: u64) -> Result<Option<Nanos>, Errno> {
    for _ in 0..TRIES {
        let since = Nanos(clock::now());
        match uffd.rw_protect(start, end - start, true)? {
            Protected::Done => return Ok(Some(since)),
            Protected::NotThere => return Ok(None),
            Protected::Again => std::thread::yield_now(),
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use terrace_proto::Op;

    use super::*;

    #[test]
    fn only_whole_pages_are_armed() {
        let of = |addr, size| {
            page(&Command {
                seq: 1,
                op: Op::Arm,
                addr: Addr(addr),
                size,
            })
        };
        assert_eq!(of(0x1000, PageSize::Base4K).ok(), Some((0x1000, 0x2000)));
        let huge = PageSize::Huge2M.bytes();
        assert_eq!(of(huge, PageSize::Huge2M).ok(), Some((huge, 2 * huge)));
        for (addr, size) in [
            (0x1001, PageSize::Base4K),
            (0x1000, PageSize::Huge2M),
            (0, PageSize::Giant1G),
            (u64::MAX - 0xfff, PageSize::Base4K),
        ] {
            let refused = of(addr, size).expect_err("no page");
            assert_eq!(refused.outcome, Outcome::NotManaged, "{addr:#x}");
        }
    }
}

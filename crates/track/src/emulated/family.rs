// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracked processes: who they are, their children, and what is behind their addresses.
//!
//! The emulated PMU tells of no fork, exec or exit, so `/proc` is looked at: a few times a second, and
//! when samples come that nobody claims.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_sys::frames::Frame;
use terrace_sys::frames::FrameMap;
use terrace_sys::process;
use terrace_sys::process::Stat;

use super::layout::Record;
use crate::event::TrackEvent;

const PAGE_SHIFT: u32 = 12;

/// What a process says of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// The address is that page, and the page is its alone.
    Own,
    /// The address is that page, which others may map as well.
    Shared,
    /// Another page is there.
    No,
    /// Nothing is there now.
    Unclear,
}

#[derive(Debug)]
struct Member {
    follow: bool,
    /// Of its present address space, once asked for.
    frames: Option<FrameMap>,
}

/// Tracked processes.
#[derive(Debug, Default)]
pub(super) struct Family {
    members: BTreeMap<Pid, Member>,
}

impl Family {
    pub(super) fn add(&mut self, pid: Pid, follow: bool) {
        let member = Member {
            follow,
            frames: None,
        };
        self.members.insert(pid, member);
    }

    pub(super) fn remove(&mut self, pid: Pid) {
        self.members.remove(&pid);
    }

    /// Looks who came and who went, and tells.
    pub(super) fn look(&mut self, now: Nanos, tell: &mut dyn FnMut(TrackEvent)) {
        let mut left: Vec<(Pid, bool)> = self.members.iter().map(|(p, m)| (*p, m.follow)).collect();
        while let Some((pid, follow)) = left.pop() {
            if !is_alive(pid) {
                self.members.remove(&pid);
                tell(TrackEvent::Exited { pid, time: now });
                continue;
            }
            for child in follow
                .then(|| process::children(pid))
                .into_iter()
                .flatten()
                .flatten()
            {
                if !self.members.contains_key(&child) && is_alive(child) {
                    self.add(child, true);
                    left.push((child, true));
                    tell(TrackEvent::Forked {
                        parent: pid,
                        child,
                        time: now,
                    });
                }
            }
        }
    }

    /// What a process says of a sample; `Unclear` where it is not tracked.
    pub(super) fn claim(&mut self, pid: Pid, record: &Record) -> Claim {
        let Some(member) = self.members.get_mut(&pid) else {
            return Claim::Unclear;
        };
        // The second time with the map of its new address space.
        for _ in 0..2 {
            if member.frames.is_none() {
                member.frames = FrameMap::of(pid).ok();
            }
            let frame = member.frames.as_ref().map(|f| f.at(Addr(record.vaddr)));
            match frame {
                Some(Frame::Gone) => member.frames = None,
                Some(frame) => return claim(frame, record.paddr >> PAGE_SHIFT),
                None => break,
            }
        }
        Claim::Unclear
    }

    /// The process whose own page the sample is of.
    pub(super) fn owner(&mut self, record: &Record) -> Option<Pid> {
        let pids: Vec<Pid> = self.members.keys().copied().collect();
        pids.into_iter()
            .find(|&pid| self.claim(pid, record) == Claim::Own)
    }
}

fn claim(frame: Frame, wanted: u64) -> Claim {
    match frame {
        Frame::Own(number) if number == wanted => Claim::Own,
        Frame::Shared(number) if number == wanted => Claim::Shared,
        Frame::Own(_) | Frame::Shared(_) => Claim::No,
        Frame::Absent | Frame::Gone | Frame::Hidden => Claim::Unclear,
    }
}

fn is_alive(pid: Pid) -> bool {
    Stat::read(pid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn children_are_found_and_ends_are_told() {
        let mut family = Family::default();
        let own = Pid(std::process::id());
        family.add(own, true);
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep");
        let pid = Pid(child.id());
        let mut told = Vec::new();
        family.look(Nanos(1), &mut |event| told.push(event));
        let forked = TrackEvent::Forked {
            parent: own,
            child: pid,
            time: Nanos(1),
        };
        assert!(told.contains(&forked), "{told:?}");
        child.kill().expect("ours");
        child.wait().expect("ours");
        told.clear();
        family.look(Nanos(2), &mut |event| told.push(event));
        let exited = TrackEvent::Exited {
            pid,
            time: Nanos(2),
        };
        assert!(told.contains(&exited), "{told:?}");
    }

    #[test]
    fn only_an_own_page_makes_an_owner() {
        assert_eq!(claim(Frame::Own(5), 5), Claim::Own);
        assert_eq!(claim(Frame::Shared(5), 5), Claim::Shared);
        assert_eq!(claim(Frame::Own(4), 5), Claim::No);
        assert_eq!(claim(Frame::Absent, 5), Claim::Unclear);
    }
}

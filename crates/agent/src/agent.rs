// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the agent's threads share.
//!
//! One lock protects [`State`]. A worker holds it for the whole of a step that changes page
//! states; the fault handler holds it around *reading* events and handling them. Hence, once an
//! event was read, nobody acts on what it made stale; and until it is read, the kernel refuses
//! our ioctls with `EAGAIN`, upon which a worker reads and handles the events itself, under the
//! lock it has, and looks at its pages anew.
//!
//! While the lock is held nobody touches the program's memory, waits for the program, or blocks
//! on anything but the kernel's own short sections.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use terrace_core::Addr;
use terrace_core::NodeId;
use terrace_core::Range;
use terrace_proto::Notice;
use terrace_sys::eventfd::EventFd;
use terrace_sys::mempolicy;
use terrace_sys::pagemap::Pagemap;
use terrace_sys::procmaps::MapsFile;
use terrace_sys::uffd::Events;
use terrace_sys::uffd::Uffd;

use crate::doomed::Doomed;
use crate::frames::Frame;
use crate::frames::Frames;
use crate::layout::Layout;
use crate::lock::Lock;
use crate::pages::Pages;
use crate::pages::Shadow;
use crate::ranges::Ranges;
use crate::report::Reports;
use crate::switches;
use crate::team::Team;

/// What the supervisor, or a test, chose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Pages of one batch.
    pub(crate) batch_pages: usize,
    /// Compare shadows with their pages before they count. Only a test takes this out.
    pub(crate) verify: bool,
    /// Base pages too go by the transaction that compares.
    pub(crate) compare_base: bool,
    /// Who writes to a page while it is copied waits for the commit, instead of aborting it.
    pub(crate) writers_wait: bool,
    /// Huge pages are copied past the caches, while they are out.
    pub(crate) streaming: bool,
}

/// An answer to a fault that the kernel could not take yet, because mappings were changing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Fill an empty page.
    Fill(u64),
    /// Lift the protection of a range.
    Unprotect(u64, u64),
}

/// What the lock protects.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) frames: Frames,
    pub(crate) pages: Pages,
    pub(crate) ranges: Ranges,
    pub(crate) doomed: Doomed,
    pub(crate) maps: MapsFile,
    pub(crate) pending: Vec<Answer>,
    pub(crate) write_protect_faults: u64,
    pub(crate) missing_faults: u32,
    pub(crate) writes_waited: u32,
}

/// The agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) uffd: Uffd,
    pub(crate) state: Lock<State>,
    pub(crate) pagemap: Pagemap,
    pub(crate) reports: Reports,
    pub(crate) options: Options,
    /// More than one memory node: a page can be at its target already.
    pub(crate) many_nodes: bool,
    pub(crate) team: Team,
    pub(crate) stopping: AtomicBool,
    /// Workers between taking commands and having answered them.
    pub(crate) busy_workers: AtomicU64,
    /// Wakes the fault handler for [`State::pending`].
    pub(crate) kick: EventFd,
}

/// What can be opened before the supervisor has answered.
#[derive(Debug)]
pub(crate) struct Kernel {
    uffd: Uffd,
    trash: Uffd,
    events: Events,
    pagemap: Pagemap,
    maps: MapsFile,
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Kernel {
    /// Opens what transactions need.
    ///
    /// # Errors
    ///
    /// The errno that keeps them from working.
    pub(crate) fn open() -> Result<Self, Errno> {
        let (uffd, events) = match Uffd::open(Events::MappingsAndForks) {
            Ok(uffd) if !switches::NO_FORK_EVENTS.is_on() => (uffd, Events::MappingsAndForks),
            _ => (Uffd::open(Events::Mappings)?, Events::Mappings),
        };
        let pagemap = Pagemap::own().map_err(|error| errno_of(&error))?;
        // Before Linux 6.7 the call we rely on is not there.
        pagemap.kind(0x1000)?;
        Ok(Self {
            uffd,
            trash: Uffd::open(Events::None)?,
            events,
            pagemap,
            maps: MapsFile::own().map_err(|error| errno_of(&error))?,
        })
    }

    pub(crate) const fn reports_forks(&self) -> bool {
        matches!(self.events, Events::MappingsAndForks)
    }
}

impl Agent {
    pub(crate) fn new(
        kernel: Kernel,
        layout: &'static Layout,
        reports: Reports,
        options: Options,
    ) -> Result<Self, Errno> {
        let Kernel {
            uffd,
            trash,
            pagemap,
            maps,
            ..
        } = kernel;
        let nodes = mempolicy::allowed_nodes().unwrap_or_default();
        let state = State {
            frames: Frames::new(layout, trash, options.compare_base)?,
            pages: Pages::default(),
            ranges: Ranges::new(layout),
            doomed: Doomed::default(),
            maps,
            pending: Vec::new(),
            write_protect_faults: 0,
            missing_faults: 0,
            writes_waited: 0,
        };
        Ok(Self {
            uffd,
            state: Lock::new(state),
            pagemap,
            reports,
            options,
            many_nodes: nodes.len() > 1,
            team: Team::default(),
            stopping: AtomicBool::new(false),
            busy_workers: AtomicU64::new(0),
            kick: EventFd::new()?,
        })
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Lifts the protection of a range and wakes who waits there, now or as soon as possible.
    pub(crate) fn unprotect(&self, state: &mut State, start: u64, len: u64) {
        use terrace_sys::uffd::Protected;
        if let Ok(Protected::Again) = self.uffd.write_protect(start, len, false) {
            state.pending.push(Answer::Unprotect(start, len));
            self.kick.ring();
        }
        self.uffd.wake(start, len);
    }

    /// Drops every shadow of the range: their frames are free, their pages writable.
    /// Whether there was one.
    pub(crate) fn drop_shadows(&self, state: &mut State, start: u64, end: u64) -> bool {
        let mut any = false;
        while let Some((addr, shadow)) = state.pages.take_shadow_over(start, end) {
            self.forget_shadow(state, addr, shadow);
            self.unprotect(state, addr, shadow.size.bytes());
            any = true;
        }
        any
    }

    /// The record is taken out already: frees the frame and tells the supervisor.
    pub(crate) fn forget_shadow(&self, state: &mut State, addr: u64, shadow: Shadow) {
        state.frames.release(&self.uffd, shadow.size, shadow.frame);
        self.reports
            .notice(Notice::ShadowDropped { addr: Addr(addr) });
    }
}

/// A frame's address and node in one.
pub(crate) const fn frame(addr: u64, node: NodeId) -> Frame {
    Frame { addr, node }
}

/// A range from numbers.
pub(crate) const fn range(start: u64, end: u64) -> Range {
    Range {
        start: Addr(start),
        end: Addr(end),
    }
}

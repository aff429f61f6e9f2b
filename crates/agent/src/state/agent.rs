// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the agent's threads share.
//!
//! One lock protects [`State`]. A worker holds it for the whole of a step that changes page
//! states; the fault handler holds it around *reading* events and handling them. Hence, once an
//! event was read, nobody acts on what it made stale; and until it is read, the kernel refuses to put
//! anything into the program's mappings, or to take anything out, with `EAGAIN`, upon which a worker reads and handles the events
//! itself, under the lock it has, and looks at its pages anew.
//!
//! While the lock is held nobody touches the program's memory, waits for the program, or blocks
//! on anything but the kernel's own short sections.
//!
//! Pages are out of place only while a worker holds [`Agent::gate`] too. A fork that the kernel does not
//! report takes the gate and not the lock: the fault handler never needs the gate, so whatever the C
//! library touches during that fork is answered.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use terrace_core::Addr;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_core::Range;
use terrace_proto::Commit;
use terrace_proto::Notice;
use terrace_proto::features;
use terrace_sys::arena;
use terrace_sys::eventfd::EventFd;
use terrace_sys::mempolicy;
use terrace_sys::pagemap::Pagemap;
use terrace_sys::procmaps::MapsFile;
use terrace_sys::uffd::Events;
use terrace_sys::uffd::RwpUffd;
use terrace_sys::uffd::Uffd;
use terrace_sys::uffd::Writers;

use crate::life::switches;
use crate::life::threads::Threads;
use crate::ops::item::Order;
use crate::ops::parallel_copy::ParallelCopy;
use crate::ops::report::Reports;
use crate::state::addresses::Grounds;
use crate::state::frames::Frame;
use crate::state::frames::Frames;
use crate::state::layout::Layout;
use crate::state::lock::Lock;
use crate::state::pages::Pages;
use crate::state::pending_drops::PendingDrops;
use crate::state::ranges::Ranges;
use crate::state::shadows::Shadow;
use crate::state::shadows::Shadows;

/// What the supervisor, or a test, chose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Pages of one batch.
    pub(crate) batch_pages: usize,
    /// Compare shadows with their pages before they count. Only a test takes this out.
    pub(crate) verify: bool,
    /// Who copies, and when.
    pub(crate) commit: Commit,
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
    pub(crate) shadows: Shadows,
    pub(crate) ranges: Ranges,
    pub(crate) pending_drops: PendingDrops,
    pub(crate) maps: MapsFile,
    pub(crate) threads: Threads,
    pub(crate) pending: Vec<Answer>,
    pub(crate) write_protect_faults: u64,
    pub(crate) missing_faults: u32,
    pub(crate) writes_waited: u32,
}

/// The agent.
#[derive(Debug)]
pub(crate) struct Agent {
    /// The program's mappings: faults and events come from it, pages go in and out through it.
    pub(crate) uffd: Arc<Uffd>,
    /// The program's mappings of which pages are armed, where the kernel can do that.
    pub(crate) arms: Option<RwpUffd>,
    /// What a write to a protected page does.
    pub(crate) writers: Writers,
    /// Held by who has pages out of place. Before the state lock.
    pub(crate) gate: Lock<()>,
    pub(crate) state: Lock<State>,
    pub(crate) pagemap: Arc<Pagemap>,
    pub(crate) reports: Reports,
    pub(crate) options: Options,
    /// More than one memory node: a page can be at its target already.
    pub(crate) many_nodes: bool,
    pub(crate) parallel_copy: ParallelCopy,
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
    quiet: Uffd,
    arms: Option<RwpUffd>,
    events: Events,
    writers: Writers,
    pagemap: Pagemap,
    maps: MapsFile,
    threads: Threads,
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The context of the program's mappings, told of forks where that is permitted.
fn open(writers: Writers) -> Result<(Uffd, Events), Errno> {
    match Uffd::open(Events::MappingsAndForks, writers) {
        Ok(uffd) if !switches::NO_FORK_EVENTS.is_on() => Ok((uffd, Events::MappingsAndForks)),
        _ => Ok((Uffd::open(Events::Mappings, writers)?, Events::Mappings)),
    }
}

impl Kernel {
    /// Opens what transactions need.
    ///
    /// # Errors
    ///
    /// The errno that keeps them from working.
    pub(crate) fn open() -> Result<Self, Errno> {
        let (uffd, events, writers) = match open(Writers::GoOn) {
            Ok((uffd, events)) => (uffd, events, Writers::GoOn),
            // A kernel without asynchronous protection.
            Err(_) => open(Writers::Wait).map(|(uffd, events)| (uffd, events, Writers::Wait))?,
        };
        let pagemap = Pagemap::own().map_err(|error| errno_of(&error))?;
        // Before Linux 6.7 the call we rely on is not there.
        pagemap.kind(0x1000)?;
        Ok(Self {
            uffd,
            quiet: Uffd::open(Events::None, Writers::Wait)?,
            arms: RwpUffd::open().ok(),
            events,
            writers,
            pagemap,
            maps: MapsFile::own().map_err(|error| errno_of(&error))?,
            threads: Threads::of_this_process()?,
        })
    }

    /// What the agent says that it can do.
    pub(crate) fn features(&self) -> u64 {
        let forks = if self.reports_forks() {
            features::EVENT_FORK
        } else {
            0
        };
        let shadows = if self.writers == Writers::GoOn {
            features::SHADOWS
        } else {
            0
        };
        let arms = if self.arms.is_some() {
            features::ARMS
        } else {
            0
        };
        features::TRANSACTIONS | forks | shadows | arms
    }

    /// For commits in which writes wait: protection that they wait for, and no shadows.
    ///
    /// # Errors
    ///
    /// As [`Kernel::open`].
    pub(crate) fn let_writers_wait(&mut self) -> Result<(), Errno> {
        (self.uffd, self.events) = open(Writers::Wait)?;
        self.writers = Writers::Wait;
        Ok(())
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
            quiet,
            arms,
            writers,
            pagemap,
            maps,
            threads,
            ..
        } = kernel;
        let nodes = mempolicy::allowed_nodes().unwrap_or_default();
        let (uffd, pagemap) = (Arc::new(uffd), Arc::new(pagemap));
        let state = State {
            frames: Frames::new(Grounds {
                layout,
                uffd: Arc::clone(&uffd),
                quiet,
                pagemap: Arc::clone(&pagemap),
            }),
            pages: Pages::default(),
            shadows: Shadows::default(),
            ranges: Ranges::new(layout),
            pending_drops: PendingDrops::default(),
            maps,
            threads,
            pending: Vec::new(),
            write_protect_faults: 0,
            missing_faults: 0,
            writes_waited: 0,
        };
        Ok(Self {
            uffd,
            arms,
            writers,
            gate: Lock::new(()),
            state: Lock::new(state),
            pagemap,
            reports,
            options,
            many_nodes: nodes.len() > 1,
            parallel_copy: ParallelCopy::default(),
            stopping: AtomicBool::new(false),
            busy_workers: AtomicU64::new(0),
            kick: EventFd::new()?,
        })
    }

    /// Whether pages can have shadows: only where a write to one waits for nobody.
    pub(crate) fn keeps_shadows(&self) -> bool {
        self.writers == Writers::GoOn
    }

    /// Whether a page of that size can: a write to a protected huge page would split it.
    pub(crate) fn can_have_shadow(&self, order: &Order) -> bool {
        order.size == PageSize::Base4K && self.keeps_shadows()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Lifts the protection of a range and wakes who waits there, now or as soon as possible. Where writers
    /// go on, the next write of each page lifts its own: that is cheaper than a TLB shootdown now.
    pub(crate) fn unprotect(&self, state: &mut State, start: u64, len: u64) {
        use terrace_sys::uffd::Protected;
        if self.writers == Writers::Wait
            && let Ok(Protected::Again) = self.uffd.write_protect(start, len, false)
        {
            state.pending.push(Answer::Unprotect(start, len));
            self.kick.ring();
        }
        self.uffd.wake(start, len);
    }

    /// The frame is the page's shadow from now on. The kernel may take it back: shadows are the first to go
    /// when a node or a cgroup is short of memory.
    pub(crate) fn add_shadow(&self, state: &mut State, addr: u64, frame: Frame) {
        // SAFETY: who uses a shadow compares it with its page. No userfaultfd reports what becomes of a frame.
        let _ = unsafe { arena::give_up_on_demand(frame.addr, PageSize::Base4K.bytes()) };
        state.shadows.add(addr, frame);
    }

    /// Drops every shadow of the range: their frames are free. Whether there was one.
    pub(crate) fn drop_shadows(&self, state: &mut State, start: u64, end: u64) -> bool {
        let mut any = false;
        while let Some((addr, shadow)) = state.shadows.take_over(start, end) {
            self.forget_shadow(state, addr, shadow);
            any = true;
        }
        any
    }

    /// The record is taken out already: frees the frame and tells the supervisor.
    pub(crate) fn forget_shadow(&self, state: &mut State, addr: u64, shadow: Shadow) {
        state.frames.release(PageSize::Base4K, shadow.frame);
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

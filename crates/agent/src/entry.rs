// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the agent comes to life, and how it goes.
//!
//! The library's constructor looks for `TERRACE_SOCKET` and starts one thread. That thread takes a
//! descriptor table of its own, connects, introduces itself, starts the copy workers and becomes
//! the fault handler. Whatever fails on the way ends in silence for the program; the supervisor
//! reads it in [`Hello`], or sees no agent at all. Nothing here prints, and nothing unwinds into
//! the program.

use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use terrace_proto::Commit;
use terrace_proto::HELLO_BYTES;
use terrace_proto::Hello;
use terrace_proto::SOCKET_ENV;
use terrace_proto::WELCOME_BYTES;
use terrace_proto::Welcome;
use terrace_proto::features;
use terrace_sys::eventfd::EventFd;
use terrace_sys::shm::SharedFile;
use terrace_sys::unix_channel::Channel;

use crate::agent::Agent;
use crate::agent::Kernel;
use crate::agent::Options;
use crate::fork;
use crate::handler;
use crate::heap;
use crate::layout::Layout;
use crate::layout::STACKS;
use crate::report::Reports;
use crate::switches;
use crate::thread;
use crate::thread::Urgency;
use crate::worker;
use crate::worker::Intake;

const WAIT_FOR_SUPERVISOR: Duration = Duration::from_secs(10);
const BATCH_MAX: u32 = 512;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    let _ = catch_unwind(start);
}

/// Programs that change the credentials, namespaces or tracing of one thread and then execute
/// another program: a thread of ours would make them fail, as the C library and the kernel want all
/// threads alike (nptl(7), unshare(2)). What they execute has an agent of its own.
const STEPS_ASIDE: [&str; 15] = [
    "setpriv", "su", "sudo", "doas", "runuser", "capsh", "newgrp", "sg", "unshare", "nsenter",
    "bwrap", "chroot", "setsid", "numactl", "env",
];

fn steps_aside() -> bool {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    STEPS_ASIDE.contains(&name.trim_end())
}

fn start() {
    let Some(path) = std::env::var_os(SOCKET_ENV).map(PathBuf::from) else {
        return;
    };
    if steps_aside() {
        return;
    }
    // A panic must not print into the program's output. This is our copy of the standard
    // library, not the program's.
    std::panic::set_hook(Box::new(|_| {}));
    let Some(layout) = heap::layout() else {
        return;
    };
    fork::install();
    thread::without_signals(|| {
        thread::spawn(layout, c"terrace-fault", move || {
            let _ = live(layout, &path);
        });
    });
}

/// What the supervisor handed over.
struct Connection {
    socket: Channel,
    welcome: Welcome,
    commands: &'static [std::sync::atomic::AtomicU64],
    bell: EventFd,
    reports: Reports,
}

fn live(layout: &'static Layout, path: &std::path::Path) -> Result<(), Errno> {
    if !thread::own_descriptors() {
        return Err(Errno::PERM);
    }
    thread::hurry(Urgency::Answers);
    let kernel = Kernel::open();
    let connection = connect(layout, path, &kernel)?;
    match kernel {
        Ok(kernel) => serve(layout, kernel, connection),
        Err(errno) => {
            refuse(&connection);
            Err(errno)
        }
    }
}

fn connect(
    layout: &Layout,
    path: &std::path::Path,
    kernel: &Result<Kernel, Errno>,
) -> Result<Connection, Errno> {
    let socket = Channel::connect(path)?;
    socket.set_timeout(WAIT_FOR_SUPERVISOR)?;
    let (bits, errno) = match kernel {
        Ok(kernel) if kernel.reports_forks() => (features::TRANSACTIONS | features::EVENT_FORK, 0),
        Ok(_) => (features::TRANSACTIONS, 0),
        Err(errno) => (0, u32::try_from(errno.raw_os_error()).unwrap_or(u32::MAX)),
    };
    let hello = Hello {
        pid: std::process::id(),
        features: bits,
        errno,
        arena_start: layout.start(),
        arena_end: layout.end(),
    };
    let sent: [u8; HELLO_BYTES] = hello.encode();
    socket.send(&sent, &[])?;
    let mut answer = [0; WELCOME_BYTES];
    let fds = socket.receive(&mut answer)?;
    let welcome = Welcome::decode(&answer).map_err(|_| Errno::PROTO)?;
    let [memory, wake, tell] = <[OwnedFd; 3]>::try_from(fds).map_err(|_| Errno::PROTO)?;
    // The mapping stays for ever: threads that end late may still look at it.
    let words = SharedFile::from_fd(memory)?.map()?.leak();
    let ring = usize::try_from(welcome.ring_bytes / 8).map_err(|_| Errno::PROTO)?;
    let commands = words.get(..ring).ok_or(Errno::PROTO)?;
    let reports = words.get(ring..ring * 2).ok_or(Errno::PROTO)?;
    Ok(Connection {
        socket,
        welcome,
        commands,
        bell: EventFd::from_fd(wake)?,
        reports: Reports::new(reports, EventFd::from_fd(tell)?)?,
    })
}

/// Runs the agent until the supervisor goes, then takes everything back.
fn serve(layout: &'static Layout, kernel: Kernel, connection: Connection) -> Result<(), Errno> {
    let Connection {
        socket,
        welcome,
        commands,
        bell,
        reports,
    } = connection;
    let options = Options {
        batch_pages: usize::try_from(welcome.batch_pages.clamp(1, BATCH_MAX)).unwrap_or(1),
        verify: !switches::SKIP_VERIFY.is_on(),
        compare_base: welcome.commit == Commit::Transaction,
        writers_wait: welcome.commit == Commit::Wait,
        streaming: welcome.streaming,
    };
    let quiesce = !kernel.reports_forks();
    let owned = Box::into_raw(Box::new(Agent::new(kernel, layout, reports, options)?));
    // SAFETY: just made; given back below, when no other thread uses it any more.
    let agent: &'static Agent = unsafe { &*owned };
    let intake: &'static Intake = Box::leak(Box::new(Intake::new(commands, bell)?));
    if quiesce {
        fork::announce(agent);
    }
    let workers = u64::from(welcome.copy_workers).clamp(1, STACKS - 1);
    for _ in 0..workers {
        agent.busy_workers.fetch_add(1, Ordering::AcqRel);
        let started = thread::spawn(layout, c"terrace-copy", move || {
            let ended = Ended(agent);
            thread::hurry(Urgency::Moves);
            worker::run(agent, intake);
            drop(ended);
        });
        if !started {
            agent.busy_workers.fetch_sub(1, Ordering::AcqRel);
        }
    }
    let helpers = u64::from(welcome.copy_threads).clamp(1, STACKS - workers) - 1;
    for _ in 0..helpers {
        agent.busy_workers.fetch_add(1, Ordering::AcqRel);
        let started = thread::spawn(layout, c"terrace-help", move || {
            let ended = Ended(agent);
            thread::hurry(Urgency::Moves);
            agent.team.help(&agent.stopping);
            drop(ended);
        });
        if !started {
            agent.busy_workers.fetch_sub(1, Ordering::AcqRel);
        }
    }
    let watch = std::panic::AssertUnwindSafe(|| handler::run(agent, &socket));
    let _ = catch_unwind(watch);
    agent.stopping.store(true, Ordering::Release);
    intake.stop.ring();
    agent.team.dismiss();
    let off = std::panic::AssertUnwindSafe(|| handler::see_workers_off(agent));
    let _ = catch_unwind(off);
    fork::withdraw();
    if agent.busy_workers.load(Ordering::Acquire) == 0 {
        // SAFETY: every worker was counted out, no fork holds it, and this thread is the last.
        drop(unsafe { Box::from_raw(owned) });
        // The descriptors are closed: nothing is registered, protected or waiting any more.
        layout.discard_frames();
    }
    Ok(())
}

/// A worker that ends, however, is counted out and ends the agent.
struct Ended(&'static Agent);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.stopping.store(true, Ordering::Release);
        self.0.kick.ring();
        self.0.busy_workers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers commands with a refusal for as long as the supervisor lives.
fn refuse(connection: &Connection) {
    use rustix::event::PollFd;
    use rustix::event::PollFlags;
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(connection.bell.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(connection.socket.as_fd(), PollFlags::RDHUP),
        ];
        let _ = rustix::event::poll(&mut fds, None);
        if !fds[1].revents().is_empty() {
            return;
        }
        connection.bell.silence();
        worker::refuse(connection.commands, &connection.reports);
    }
}

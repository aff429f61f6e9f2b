// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the agent comes to life, and how it goes.
//!
//! The library's constructor looks for `TERRACE_SOCKET` and starts one thread. That thread takes a
//! descriptor table of its own, connects, introduces itself, starts the copy workers and becomes
//! the fault handler. Whatever fails on the way ends in silence for the program; the supervisor
//! reads it in [`Hello`], or sees no agent at all. Nothing here prints, and nothing unwinds into
//! the program.

use std::ffi::CStr;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::io::Errno;
use terrace_proto::Commit;
use terrace_proto::HELLO_BYTES;
use terrace_proto::Hello;
use terrace_proto::SOCKET_ENV;
use terrace_proto::WELCOME_BYTES;
use terrace_proto::Welcome;
use terrace_sys::eventfd::EventFd;
use terrace_sys::shm::SharedFile;
use terrace_sys::unix_channel::Channel;

use crate::life::descriptors;
use crate::life::door;
use crate::life::fork;
use crate::life::fork_child;
use crate::life::handler;
use crate::life::heap;
use crate::life::interpose;
use crate::life::privileges;
use crate::life::program::Program;
use crate::life::switches;
use crate::life::thread;
use crate::life::thread::Descriptors;
use crate::life::thread::Urgency;
use crate::ops::report::Reports;
use crate::ops::worker;
use crate::ops::worker::Intake;
use crate::state::agent::Agent;
use crate::state::agent::Kernel;
use crate::state::agent::Options;
use crate::state::layout::Layout;
use crate::state::layout::STACKS;

const WAIT_FOR_SUPERVISOR: Duration = Duration::from_secs(10);
const BATCH_MAX: u32 = 512;
const PRELOAD: &str = "LD_PRELOAD";
const REFUSER_LOOKS: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// [`SOCKET_ENV`], as the C library wants it.
const SOCKET_VARIABLE: &CStr = c"TERRACE_SOCKET";
const _: () = assert!(SOCKET_VARIABLE.to_bytes().len() == SOCKET_ENV.len());

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
    let name = name.trim_end();
    if name == "chroot" {
        leave_the_environment();
    }
    STEPS_ASIDE.contains(&name)
}

/// Takes the library out of `LD_PRELOAD`: what is executed behind another root does not find it there, and its
/// loader would say so on the program's standard error.
fn leave_the_environment() {
    let Some(list) = std::env::var_os(PRELOAD) else {
        return;
    };
    let separates = |byte: &u8| matches!(byte, b':' | b' ');
    let others: Vec<&[u8]> = list
        .as_bytes()
        .split(separates)
        .filter(|path| !path.is_empty() && !path.ends_with(b"/libterrace.so"))
        .collect();
    let others = others.join(&b':');
    // SAFETY: the program's main has not begun, so nobody else reads or writes the environment.
    unsafe {
        if others.is_empty() {
            std::env::remove_var(PRELOAD);
        } else {
            std::env::set_var(PRELOAD, OsStr::from_bytes(&others));
        }
    }
}

/// Whether there is a supervisor to connect to. Allocates nothing.
fn is_wanted() -> bool {
    // SAFETY: the program's other threads, if any, are not yet at work; the string is not kept.
    !unsafe { libc::getenv(SOCKET_VARIABLE.as_ptr()) }.is_null()
}

fn start() {
    if !is_wanted() {
        return;
    }
    // First of all: without it there is no memory for anything else.
    let Some(layout) = heap::layout() else {
        return;
    };
    let Some(path) = std::env::var_os(SOCKET_ENV).map(PathBuf::from) else {
        return;
    };
    interpose::look_up();
    if steps_aside() || !layout.prepare_threads() {
        return;
    }
    // A panic must not print into the program's output. This is our copy of the standard
    // library, not the program's.
    std::panic::set_hook(Box::new(|_| {}));
    fork::install();
    thread::without_signals(|| {
        thread::spawn(layout, c"terrace-fault", Descriptors::Copied, move || {
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
    // SAFETY: this thread was started with a table of its own.
    if !unsafe { descriptors::empty() } {
        return Err(Errno::PERM);
    }
    thread::hurry(Urgency::Answers);
    let program = Program::new()?;
    fork_child::prepare().map_err(|_| Errno::NOENT)?;
    let kernel = Kernel::open();
    let connection = connect(layout, path, &kernel)?;
    privileges::give_up()?;
    match kernel {
        Ok(mut kernel) => {
            if connection.welcome.commit == Commit::Wait {
                kernel.let_writers_wait()?;
            }
            serve(layout, kernel, connection, &program)
        }
        Err(errno) => {
            refuse(&connection, &program);
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
        Ok(kernel) => (kernel.features(), 0),
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
fn serve(
    layout: &'static Layout,
    kernel: Kernel,
    connection: Connection,
    program: &Program,
) -> Result<(), Errno> {
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
        commit: welcome.commit,
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
    if let Ok(bell) = layout.bell()
        && agent.uffd.register(bell.start, bell.len, false).is_ok()
    {
        door::open(bell.start);
    }
    let workers = u64::from(welcome.copy_workers).clamp(1, STACKS - 1);
    for _ in 0..workers {
        start_one(layout, agent, c"terrace-copy", || {
            worker::run(agent, intake)
        });
    }
    let helpers = u64::from(welcome.copy_threads).clamp(1, STACKS - workers) - 1;
    for _ in 0..helpers {
        let help = || agent.parallel_copy.help(&agent.stopping);
        start_one(layout, agent, c"terrace-help", help);
    }
    let watch = std::panic::AssertUnwindSafe(|| {
        handler::run(agent, &socket, |ours| must_go(layout, program, ours));
    });
    let _ = catch_unwind(watch);
    agent.stopping.store(true, Ordering::Release);
    intake.stop.ring();
    agent.parallel_copy.dismiss();
    let off = std::panic::AssertUnwindSafe(|| handler::see_workers_off(agent));
    let _ = catch_unwind(off);
    fork::withdraw(|| {
        let mut state = agent.state.lock_urgent();
        agent.drain(&mut state);
        agent.answer_pending(&mut state);
    });
    if agent.busy_workers.load(Ordering::Acquire) == 0 {
        // SAFETY: every worker was counted out, no fork holds it, and this thread is the last.
        drop(unsafe { Box::from_raw(owned) });
        // The descriptors are closed: nothing is registered, protected or waiting any more.
        layout.give_frames_back();
    }
    door::close();
    Ok(())
}

/// Whether the agent is in the program's way by now: it holds more than a limit leaves room for, there is no memory
/// for records, the program has become another user's, or nobody is left of it but so many threads of `ours`
/// (where they were counted).
fn must_go(layout: &Layout, program: &Program, ours: Option<u64>) -> bool {
    let has_ended = || ours.is_some_and(|ours| program.has_ended(ours));
    layout.is_over() || heap::is_short() || program.has_changed_user() || has_ended()
}

/// Starts a thread of the agent's, which counts as busy until it ends.
fn start_one(
    layout: &Layout,
    agent: &'static Agent,
    name: &'static CStr,
    body: impl FnOnce() + Send + 'static,
) {
    agent.busy_workers.fetch_add(1, Ordering::AcqRel);
    let started = thread::spawn(layout, name, Descriptors::Shared, move || {
        let ended = Ended(agent);
        thread::hurry(Urgency::Moves);
        body();
        drop(ended);
    });
    if !started {
        agent.busy_workers.fetch_sub(1, Ordering::AcqRel);
    }
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

/// Answers commands with a refusal for as long as the supervisor lives, and the program, as the same user's.
fn refuse(connection: &Connection, program: &Program) {
    use rustix::event::PollFd;
    use rustix::event::PollFlags;
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(connection.bell.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(connection.socket.as_fd(), PollFlags::RDHUP),
        ];
        let _ = rustix::event::poll(&mut fds, Some(&REFUSER_LOOKS));
        if !fds[1].revents().is_empty() || program.has_changed_user() || program.has_ended(1) {
            return;
        }
        connection.bell.silence();
        worker::refuse(connection.commands, &connection.reports);
    }
}

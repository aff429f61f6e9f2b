// SPDX-License-Identifier: MIT OR Apache-2.0
//! One event: opened, switched on, given a period and a ring.
//!
//! Kernel contract (perf_event_open(2)):
//! * A processor as a whole ([`Target::Cpu`]) needs CAP_PERFMON or `kernel.perf_event_paranoid`
//!   below 1; a task ([`Target::Task`]) of the same user needs at most 2 and user time only.
//!   `EACCES` or `EPERM` otherwise. Physical addresses need what kernel time needs: CAP_PERFMON or
//!   `perf_event_paranoid` below 2.
//! * `ENOENT`, `ENODEV`, `EOPNOTSUPP`: no such PMU, or it cannot do that (virtual machines).
//!   `EINVAL`: this PMU does not know that configuration.
//! * An inherited event can be mapped only for one processor, and its period is copied to children
//!   when they are made; a later change does not reach them.
//! * Events that share a ring ([`Event::redirect`]) are of the same processor. The ring lives as
//!   long as its mapping.
//! * Records that found no room are told by a record in the ring, but only once something else
//!   finds room; [`Event::lost`] (Linux 6.0) counts them at once.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::record::Fields;
use crate::uffd::last_errno;

/// `struct perf_event_attr`, its second version (`PERF_ATTR_SIZE_VER1`), which has `config2`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
}

const ATTR_BYTES: u32 = 72;
const _: () = assert!(size_of::<Attr>() == ATTR_BYTES as usize);

/// `PERF_TYPE_HARDWARE`.
pub const HARDWARE: u32 = 0;
/// `PERF_COUNT_HW_CPU_CYCLES`.
pub const CPU_CYCLES: u64 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_CPU_CLOCK`: nanoseconds of processor time.
pub const CPU_CLOCK: u64 = 0;
/// `PERF_COUNT_SW_PAGE_FAULTS`; a sample's address is what faulted.
pub const PAGE_FAULTS: u64 = 2;
/// `PERF_COUNT_SW_DUMMY`: counts nothing, carries records about tasks.
pub const DUMMY: u64 = 9;

// Bits of `flags`.
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const PRECISE_SHIFT: u32 = 15;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const COMM_EXEC: u64 = 1 << 24;
const INHERIT_THREAD: u64 = 1 << 35;

/// `PERF_FORMAT_LOST`.
const FORMAT_LOST: u64 = 1 << 4;
/// `PERF_FLAG_FD_CLOEXEC`.
const FD_CLOEXEC: libc::c_ulong = 1 << 3;

const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_PERIOD: libc::c_ulong = 0x4008_2404;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const IOC_ID: libc::c_ulong = 0x8008_2407;

/// Whom an event watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// All tasks, while they run on this processor.
    Cpu(u32),
    /// One task (0 is the calling one), on one processor or on all.
    Task {
        /// Thread id.
        tid: u32,
        /// The processor.
        cpu: Option<u32>,
    },
}

/// Which later children of a task are watched, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inherit {
    /// None.
    #[default]
    None,
    /// Threads of the same process (Linux 5.13).
    Threads,
    /// Threads and processes.
    All,
}

/// What to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventSpec {
    /// The PMU: [`HARDWARE`], [`SOFTWARE`] or what its directory in sysfs says.
    pub kind: u32,
    /// The PMU's word for the event.
    pub config: u64,
    /// Further words.
    pub config1: u64,
    /// Further words.
    pub config2: u64,
    /// A sample every so many occurrences; 0 counts only.
    pub period: u64,
    /// Of the instruction pointer, and with PEBS of the address: 0 to 3 (`precise_ip`).
    pub precise: u8,
    /// What a sample holds.
    pub fields: Fields,
    /// User time only.
    pub user_only: bool,
    /// Later children.
    pub inherit: Inherit,
    /// Records of forks, execs and exits.
    pub tasks: bool,
    /// Bytes in the ring from which on its descriptor is readable; 0 for each sample.
    pub watermark: u32,
}

impl EventSpec {
    fn attr(&self) -> Attr {
        let precise = u64::from(self.precise.min(3)) << PRECISE_SHIFT;
        let mut flags = DISABLED | SAMPLE_ID_ALL | precise;
        let mut set = |on: bool, bits: u64| {
            if on {
                flags |= bits;
            }
        };
        set(self.user_only, EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR);
        set(self.inherit != Inherit::None, INHERIT);
        set(self.inherit == Inherit::Threads, INHERIT_THREAD);
        set(self.tasks, TASK | COMM | COMM_EXEC);
        set(self.watermark > 0, WATERMARK);
        Attr {
            kind: self.kind,
            size: ATTR_BYTES,
            config: self.config,
            sample_period: self.period,
            sample_type: self.fields.bits(),
            read_format: FORMAT_LOST,
            flags,
            // Without the flag this word is a number of samples.
            wakeup_watermark: self.watermark.max(1),
            bp_type: 0,
            config1: self.config1,
            config2: self.config2,
        }
    }
}

/// An open event, off until [`Event::enable`]. It ends when dropped.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
    counts_lost: bool,
}

impl Event {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// See the module's contract; `ESRCH` for a task that is gone, `EMFILE` for too many events.
    pub fn open(spec: &EventSpec, target: Target) -> Result<Self, Errno> {
        let mut attr = spec.attr();
        match open(&attr, target) {
            // Linux before 6.0.
            Err(Errno::INVAL) => {
                attr.read_format = 0;
                open(&attr, target).map(|fd| Self {
                    fd,
                    counts_lost: false,
                })
            }
            opened => opened.map(|fd| Self {
                fd,
                counts_lost: true,
            }),
        }
    }

    /// Switches it on, with what children inherited of it.
    ///
    /// # Errors
    ///
    /// None that occur with an open event.
    pub fn enable(&self) -> Result<(), Errno> {
        self.ioctl(IOC_ENABLE, 0)
    }

    /// Its number, which samples carry as [`super::Sample::id`].
    ///
    /// # Errors
    ///
    /// None that occur with an open event.
    pub fn id(&self) -> Result<u64, Errno> {
        let mut id = 0_u64;
        // SAFETY: the kernel writes one u64 to where it is told, and `id` is one.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_ID, &raw mut id) };
        if done < 0 {
            return Err(last_errno());
        }
        Ok(id)
    }

    /// A sample every `period` occurrences from now on. Not for what children have inherited.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a period that the PMU cannot do.
    pub fn set_period(&self, period: u64) -> Result<(), Errno> {
        // SAFETY: the kernel reads one u64 from where it is told, and `period` is one.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_PERIOD, &raw const period) };
        if done < 0 {
            return Err(last_errno());
        }
        Ok(())
    }

    /// Writes into the ring of `owner`, which is mapped and of the same processor.
    ///
    /// # Errors
    ///
    /// `EINVAL` where that is not so.
    pub fn redirect(&self, owner: &Self) -> Result<(), Errno> {
        let owner = libc::c_ulong::try_from(owner.fd.as_raw_fd()).map_err(|_| Errno::BADF)?;
        self.ioctl(IOC_SET_OUTPUT, owner)
    }

    /// Records of this event that found no room so far; `None` where the kernel does not say.
    ///
    /// # Errors
    ///
    /// None that occur with an open event.
    pub fn lost(&self) -> Result<Option<u64>, Errno> {
        if !self.counts_lost {
            return Ok(None);
        }
        let mut words = [0; 16];
        let read = rustix::io::read(&self.fd, &mut words)?;
        let lost = words
            .last_chunk::<8>()
            .map(|word| u64::from_ne_bytes(*word));
        Ok(lost.filter(|_| read == words.len()))
    }

    fn ioctl(&self, request: libc::c_ulong, argument: libc::c_ulong) -> Result<(), Errno> {
        // SAFETY: these requests take a number, no pointer.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), request, argument) };
        if done < 0 {
            return Err(last_errno());
        }
        Ok(())
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open(attr: &Attr, target: Target) -> Result<OwnedFd, Errno> {
    let number = |n: u32| libc::c_int::try_from(n).map_err(|_| Errno::INVAL);
    let (pid, cpu) = match target {
        Target::Cpu(cpu) => (-1, number(cpu)?),
        Target::Task { tid, cpu } => (number(tid)?, cpu.map_or(Ok(-1), number)?),
    };
    // SAFETY: `attr` is a live structure of the size it says; the call reads it only.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const *attr,
            pid,
            cpu,
            -1,
            FD_CLOEXEC,
        )
    };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
    let fd = fd.ok_or_else(last_errno)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_kernels() {
        let spec = EventSpec {
            kind: SOFTWARE,
            config: PAGE_FAULTS,
            period: 7,
            precise: 2,
            user_only: true,
            inherit: Inherit::Threads,
            tasks: true,
            watermark: 4096,
            ..EventSpec::default()
        };
        let attr = spec.attr();
        let bits = [0, 1, 5, 6, 9, 13, 14, 16, 18, 24, 35];
        assert_eq!(attr.flags, bits.iter().map(|bit| 1 << bit).sum::<u64>());
        assert_eq!((attr.sample_period, attr.wakeup_watermark), (7, 4096));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let spec = EventSpec {
            kind: SOFTWARE,
            config: DUMMY,
            ..EventSpec::default()
        };
        // Above the largest id there can be.
        let nobody = Target::Task {
            tid: 1 << 30,
            cpu: None,
        };
        assert!(Event::open(&spec, nobody).is_err());
        let none = EventSpec {
            kind: 1 << 20,
            ..spec
        };
        let own = Target::Task { tid: 0, cpu: None };
        assert!(Event::open(&none, own).is_err());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! perf_event_open(2): one sampled event of the calling thread, and how many samples it gave.
//!
//! Kernel contract: hardware events need a PMU (ENOENT or EOPNOTSUPP without one, usual in virtual
//! machines) and, for a user's own thread, `perf_event_paranoid` of at most 2. Samples go to a ring
//! that is mapped: one page of control data and a power of two of pages behind it. This reads the
//! ring's head only; nothing takes the samples out, so a full ring loses the rest.

use std::os::fd::AsFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::mm;

use crate::uffd::last_errno;

/// Which event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampledEvent {
    /// Processor cycles, counted by the PMU.
    Cycles,
    /// The kernel's timer, in nanoseconds of processor time: needs no PMU.
    CpuClock,
}

/// `struct perf_event_attr`, its first version (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Debug, Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

const ATTR_BYTES: u32 = 64;
const _: () = assert!(size_of::<Attr>() == ATTR_BYTES as usize);

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
/// Instruction, thread, time and address, as an access sampler asks for.
const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3;
/// A header and four words.
const SAMPLE_BYTES: u64 = 40;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// `PERF_FLAG_FD_CLOEXEC`.
const FD_CLOEXEC: libc::c_ulong = 1 << 3;
const PAGE: usize = 4096;
const DATA_PAGES: usize = 64;
/// Of `data_head` in `struct perf_event_mmap_page`.
const HEAD_OFFSET: usize = 1024;

/// An event that samples while it lives.
#[derive(Debug)]
pub struct Sampler {
    ring: NonNull<u8>,
    // The ring is unmapped before it is closed.
    _event: OwnedFd,
}

impl Sampler {
    /// Samples that the ring holds at most.
    pub const SAMPLES_MAX: u64 = (DATA_PAGES * PAGE) as u64 / SAMPLE_BYTES;

    /// Starts sampling the calling thread's user time, once every `period` of the event.
    ///
    /// # Errors
    ///
    /// `NOENT` or `OPNOTSUPP` where there is no such event, `ACCESS` or `PERM` where it is not
    /// permitted.
    pub fn start(event: SampledEvent, period: u64) -> Result<Self, Errno> {
        let attr = Attr {
            kind: match event {
                SampledEvent::Cycles => HARDWARE,
                SampledEvent::CpuClock => SOFTWARE,
            },
            size: ATTR_BYTES,
            sample_period: period,
            sample_type: SAMPLE_TYPE,
            flags: EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
            ..Attr::default()
        };
        // SAFETY: `attr` is a live structure of the size it says; the call reads it only.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                0,
                -1,
                -1,
                FD_CLOEXEC,
            )
        };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
        let fd = fd.ok_or_else(last_errno)?;
        // SAFETY: the kernel has just made this descriptor for us.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the kernel chooses an address where nothing is.
        let ring = unsafe {
            mm::mmap(
                std::ptr::null_mut(),
                (1 + DATA_PAGES) * PAGE,
                mm::ProtFlags::READ | mm::ProtFlags::WRITE,
                mm::MapFlags::SHARED,
                event.as_fd(),
                0,
            )
        }?;
        Ok(Self {
            ring: NonNull::new(ring.cast()).ok_or(Errno::NOMEM)?,
            _event: event,
        })
    }

    /// Samples so far, at most [`Sampler::SAMPLES_MAX`].
    #[must_use]
    pub fn samples(&self) -> u64 {
        // SAFETY: the offset is inside the control page and aligned; the kernel updates the word
        // as a whole.
        let head = unsafe { self.ring.add(HEAD_OFFSET).cast::<AtomicU64>().as_ref() };
        head.load(Ordering::Acquire) / SAMPLE_BYTES
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // SAFETY: the range is our mapping, into which no reference points. It cannot fail.
        let _ = unsafe { mm::munmap(self.ring.as_ptr().cast(), (1 + DATA_PAGES) * PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_while_time_is_burnt() {
        let sampler = match Sampler::start(SampledEvent::CpuClock, 100_000) {
            Ok(sampler) => sampler,
            Err(error) => {
                eprintln!("SKIPPED: perf_event_open: {error}");
                return;
            }
        };
        let start = std::time::Instant::now();
        while sampler.samples() < 3 {
            assert!(start.elapsed().as_secs() < 10, "no samples");
        }
    }
}

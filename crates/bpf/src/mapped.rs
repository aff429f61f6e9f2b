// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory shared with a BPF program: values that it writes while it runs and we read when it does not.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::ptr::NonNull;

use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

/// A mapping of so many values of a type that any bits are a value of.
#[derive(Debug)]
pub(crate) struct Mapped<T: Copy> {
    start: NonNull<T>,
    count: usize,
    _of: PhantomData<T>,
}

// SAFETY: the memory belongs to this value alone in this process.
unsafe impl<T: Copy + Send> Send for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// The values of an array map (`BPF_F_MMAPABLE`), each a multiple of 8 bytes.
    pub(crate) fn map(fd: BorrowedFd<'_>, count: usize) -> std::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                count * size_of::<T>(),
                protection,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        Self::at(start.cast(), count)
    }

    /// Memory of this process that is made of base pages.
    pub(crate) fn base_pages(count: usize) -> std::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = count * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            let start =
                rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)?;
            // Kernels without huge pages refuse, and have none.
            let _ = rustix::mm::madvise(start, bytes, Advice::LinuxNoHugepage);
            start
        };
        Self::at(start.cast(), count)
    }

    fn at(start: *mut T, count: usize) -> std::io::Result<Self> {
        let start = NonNull::new(start).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let _of = PhantomData;
        Ok(Self { start, count, _of })
    }

    /// Where the first value is.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    fn slot(&self, index: usize) -> *mut T {
        assert!(index < self.count, "value {index} of {}", self.count);
        self.start.as_ptr().wrapping_add(index)
    }

    /// A value.
    pub(crate) fn get(&self, index: usize) -> T {
        // SAFETY: within the mapping, aligned, and any bits are a value.
        unsafe { self.slot(index).read_volatile() }
    }

    /// Replaces a value.
    pub(crate) fn set(&mut self, index: usize, value: T) {
        // SAFETY: within the mapping and aligned.
        unsafe { self.slot(index).write_volatile(value) }
    }
}

impl<T: Copy> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it; its values need no dropping.
        let gone =
            unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.count * size_of::<T>()) };
        debug_assert!(gone.is_ok(), "a mapping of ours: {gone:?}");
    }
}

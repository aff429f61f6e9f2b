// SPDX-License-Identifier: MIT OR Apache-2.0
//! memfd_create(2) and a shared mapping of it as atomic words.
//!
//! Kernel contract: a memfd is a file in memory that lives as long as a descriptor or a mapping
//! does. It is sealed against shrinking before it is mapped or handed on, because a mapping of
//! pages that a peer cut off would raise SIGBUS. Lengths are bytes, a multiple of 8.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

use rustix::fs::MemfdFlags;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

/// A memfd of fixed size.
#[derive(Debug)]
pub struct SharedFile {
    fd: OwnedFd,
    len: u64,
}

impl SharedFile {
    /// Makes one of `len` bytes, all zero.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENOMEM`.
    pub fn new(name: &str, len: u64) -> Result<Self, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&fd, len)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { fd, len })
    }

    /// Takes one that came over a socket.
    ///
    /// # Errors
    ///
    /// `EINVAL` where it is no memfd, `EPERM` where it is not sealed against shrinking.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Errno> {
        if !rustix::fs::fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(Errno::PERM);
        }
        let size = rustix::fs::fstat(&fd)?.st_size;
        let len = u64::try_from(size).map_err(|_| Errno::INVAL)?;
        Ok(Self { fd, len })
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Maps all of it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn map(&self) -> Result<Mapped, Errno> {
        let len = usize::try_from(self.len).map_err(|_| Errno::NOMEM)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                prot,
                MapFlags::SHARED,
                &self.fd,
                0,
            )
        }?;
        // SAFETY: mmap gave `len` readable and writable bytes, page aligned; the file is sealed
        // against shrinking; both sides access it through atomics only; and the mapping stays
        // until `Mapped` is dropped, which is the lifetime that `Mapped::words` gives out.
        let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), len / 8) };
        Ok(Mapped { words })
    }
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A mapping of a [`SharedFile`].
#[derive(Debug)]
pub struct Mapped {
    words: &'static [AtomicU64],
}

impl Mapped {
    /// The words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.words
    }

    /// The words, for the rest of the process's life: the mapping is never given back.
    #[must_use]
    pub fn leak(self) -> &'static [AtomicU64] {
        let words = self.words;
        std::mem::forget(self);
        words
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let start = self.words.as_ptr().cast_mut().cast();
        // SAFETY: the mapping is ours and no borrow of its words outlives `self`.
        let _ = unsafe { rustix::mm::munmap(start, self.words.len() * 8) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn two_mappings_see_the_same_words() {
        let file = SharedFile::new("terrace-test", 4096).expect("a memfd");
        let (one, two) = (file.map().expect("one"), file.map().expect("two"));
        one.words()[511].store(9, Ordering::Relaxed);
        assert_eq!(two.words()[511].load(Ordering::Relaxed), 9);
        assert_eq!(one.words().len(), 512);
        assert!(rustix::fs::ftruncate(file.as_fd(), 0).is_err());
    }
}

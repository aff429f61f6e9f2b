// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inter-VM shared memory: the second base address register of QEMU's `ivshmem-plain` device.
//!
//! Kernel contract: the device (vendor 1af4, device 1110) has no driver and needs none. Its memory is
//! the file `resource2` of its directory under `/sys/bus/pci/devices`, which root may map once the
//! device answers to memory accesses (1 written to `enable`). The mapping is ordinary memory of the
//! emulator: a peer outside the virtual machine reads and writes it at any time, so it is accessed
//! through atomic words alone. A kernel that is locked down refuses the mapping.

use std::fs;
use std::fs::File;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use thiserror::Error;

const VENDOR: &str = "0x1af4";
const DEVICE: &str = "0x1110";

/// Why the memory cannot be had.
#[derive(Debug, Error)]
#[error("Cannot {what} {}", .path.display())]
pub struct IvshmemError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The directories of all such devices under a root directory (`/` for this machine), in order.
/// None where there is no PCI bus.
#[must_use]
pub fn devices(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root.join("sys/bus/pci/devices")) else {
        return Vec::new();
    };
    let is = |dir: &Path, file: &str, value: &str| {
        fs::read_to_string(dir.join(file)).is_ok_and(|text| text.trim() == value)
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|dir| is(dir, "vendor", VENDOR) && is(dir, "device", DEVICE))
        .collect();
    found.sort();
    found
}

/// A device's memory, mapped.
#[derive(Debug)]
pub struct SharedMemory {
    words: &'static [AtomicU64],
}

impl SharedMemory {
    /// Maps the memory of the device in that directory.
    ///
    /// # Errors
    ///
    /// Where it cannot be switched on or mapped: both need root.
    pub fn of_device(dir: &Path) -> Result<Self, IvshmemError> {
        let enable = dir.join("enable");
        fs::write(&enable, "1").map_err(|source| IvshmemError {
            what: "switch on the device by",
            path: enable,
            source,
        })?;
        Self::map(&dir.join("resource2"))
    }

    /// Maps a file whole, as far as it has whole words.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened for writing, or mapped.
    pub fn map(path: &Path) -> Result<Self, IvshmemError> {
        let fail = |what| {
            let path = path.to_owned();
            move |source| IvshmemError { what, path, source }
        };
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(fail("open"))?;
        let size = file.metadata().map_err(fail("measure"))?.len();
        let bytes = usize::try_from(size).unwrap_or(0) & !7;
        let flags = MapFlags::SHARED;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, flags, &file, 0) }
            .map_err(|errno| fail("map")(errno.into()))?;
        // SAFETY: mmap gave `bytes` readable and writable bytes, page aligned; a device's memory
        // does not shrink; everybody accesses it through atomics only; and the mapping stays until
        // `self` is dropped, which is the lifetime that `words` gives out.
        let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), bytes / 8) };
        Ok(Self { words })
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.words
    }
}

impl Drop for SharedMemory {
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

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("terrace-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a scratch directory");
        dir
    }

    #[test]
    fn the_device_is_found_by_its_ids() {
        let root = scratch("ivshmem-find");
        for (name, vendor, device) in [
            ("0000:00:01.0", "0x1af4", "0x1009"),
            ("0000:00:03.0", "0x1af4", "0x1110"),
            ("0000:00:04.0", "0x8086", "0x1110"),
        ] {
            let dir = root.join("sys/bus/pci/devices").join(name);
            fs::create_dir_all(&dir).expect("a scratch directory");
            fs::write(dir.join("vendor"), format!("{vendor}\n")).expect("a scratch file");
            fs::write(dir.join("device"), format!("{device}\n")).expect("a scratch file");
        }
        let found = devices(&root);
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("0000:00:03.0"));
        assert_eq!(devices(Path::new("/no/such/root")), Vec::<PathBuf>::new());
        fs::remove_dir_all(root).expect("ours");
    }

    #[test]
    fn both_sides_see_the_same_words() {
        let dir = scratch("ivshmem-map");
        fs::write(dir.join("enable"), "0").expect("a scratch file");
        let file = File::create(dir.join("resource2")).expect("a scratch file");
        file.set_len(8192).expect("a scratch file");
        let guest = SharedMemory::of_device(&dir).expect("our own file");
        let peer = SharedMemory::map(&dir.join("resource2")).expect("our own file");
        guest.words()[1023].store(5, Ordering::Relaxed);
        assert_eq!(peer.words()[1023].load(Ordering::Relaxed), 5);
        assert_eq!(
            fs::read_to_string(dir.join("enable")).expect("written"),
            "1"
        );
        let error = SharedMemory::map(&dir.join("none")).expect_err("not there");
        assert!(error.to_string().starts_with("Cannot open "), "{error}");
        fs::remove_dir_all(dir).expect("ours");
    }
}

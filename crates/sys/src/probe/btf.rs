// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of functions and types in the kernel's BTF, which tell what a BPF program can attach
//! to.
//!
//! Contract: `/sys/kernel/btf/vmlinux`, `Documentation/bpf/btf.rst`; readable by everyone. Only
//! names are kept; relocation is libbpf's business. The parser takes any bytes and does not panic.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use thiserror::Error;

const MAGIC: u16 = 0xeb9f;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC: u32 = 12;

/// Kernel functions that the program of terrace-bpf watches.
pub const HINT_FAULT_FUNCTIONS: [&str; 3] =
    ["task_numa_fault", "change_prot_numa", "handle_mm_fault"];

/// Trace points that it watches, by the names of their types.
pub const HINT_FAULT_TRACEPOINTS: [&str; 3] = [
    "btf_trace_sched_process_fork",
    "btf_trace_sched_process_exec",
    "btf_trace_sched_process_exit",
];

/// Why BTF is of no use.
#[derive(Debug, Error)]
pub enum BtfError {
    /// Absent or not readable.
    #[error("Cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Not BTF, or cut off.
    #[error("BTF is malformed at byte {at}: {what}")]
    Malformed {
        /// Where.
        at: usize,
        /// How.
        what: &'static str,
    },
}

/// Function and typedef names.
#[derive(Debug, Default)]
pub struct KernelBtf {
    /// Names with their type numbers.
    functions: HashMap<Box<str>, u32>,
    typedefs: HashMap<Box<str>, u32>,
}

impl KernelBtf {
    /// Reads the running kernel's.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub fn read() -> Result<Self, BtfError> {
        Self::read_from(Path::new("/sys/kernel/btf/vmlinux"))
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Where it cannot be read or is not BTF of this machine's byte order.
    pub fn read_from(path: &Path) -> Result<Self, BtfError> {
        let bytes = fs::read(path).map_err(|source| BtfError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&bytes)
    }

    /// Reads BTF.
    ///
    /// # Errors
    ///
    /// Where it is not BTF of this machine's byte order.
    pub fn parse(bytes: &[u8]) -> Result<Self, BtfError> {
        if u16_at(bytes, 0)? != MAGIC {
            return Err(malformed(0, "no magic number"));
        }
        let header = usize_at(bytes, 4)?;
        let types = section(bytes, header, usize_at(bytes, 8)?, usize_at(bytes, 12)?)?;
        let names = section(bytes, header, usize_at(bytes, 16)?, usize_at(bytes, 20)?)?;
        let mut btf = Self::default();
        // Number 0 is void, which is not written down.
        let (mut at, mut id) = (0, 1);
        while at < types.len() {
            let name = usize_at(types, at)?;
            let info = u32_at(types, at + 4)?;
            let kind = (info >> 24) & 0x1f;
            let names_of_kind = match kind {
                KIND_FUNC => Some(&mut btf.functions),
                KIND_TYPEDEF => Some(&mut btf.typedefs),
                _ => None,
            };
            if let (Some(set), Some(name)) = (names_of_kind, string(names, name)) {
                set.insert(name.into(), id);
            }
            id += 1;
            at += 12 + trailer(kind, info & 0xffff).ok_or(malformed(at, "unknown kind"))?;
        }
        Ok(btf)
    }

    /// Whether the kernel has a function that fentry programs can name.
    #[must_use]
    pub fn has_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// The function's type number, by which programs are attached to it.
    #[must_use]
    pub fn function_id(&self, name: &str) -> Option<u32> {
        self.functions.get(name).copied()
    }

    /// What the kernel lacks of what watching hint faults takes.
    #[must_use]
    pub fn missing_for_hint_faults(&self) -> Vec<&'static str> {
        let functions = HINT_FAULT_FUNCTIONS.into_iter();
        let functions = functions.filter(|n| !self.has_function(n));
        let tracepoints = HINT_FAULT_TRACEPOINTS.into_iter();
        functions
            .chain(tracepoints.filter(|n| !self.has_typedef(n)))
            .collect()
    }

    /// Whether the kernel has that typedef; trace points have one called `btf_trace_NAME`.
    #[must_use]
    pub fn has_typedef(&self, name: &str) -> bool {
        self.typedefs.contains_key(name)
    }
}

/// How many bytes follow the 12 that every type has.
fn trailer(kind: u32, vlen: u32) -> Option<usize> {
    let vlen = usize::try_from(vlen).ok()?;
    Some(match kind {
        // void, pointer, forward, typedef, volatile, const, restrict, function, float, type tag
        0 | 2 | 7..=12 | 16 | 18 => 0,
        // integer, variable, declaration tag
        1 | 14 | 17 => 4,
        3 => 12,
        // struct, union, variables of a section, 64-bit enumeration
        4 | 5 | 15 | 19 => 12 * vlen,
        // enumeration, function prototype
        6 | 13 => 8 * vlen,
        _ => return None,
    })
}

fn malformed(at: usize, what: &'static str) -> BtfError {
    BtfError::Malformed { at, what }
}

fn section(bytes: &[u8], header: usize, offset: usize, len: usize) -> Result<&[u8], BtfError> {
    let start = header.checked_add(offset);
    let end = start.and_then(|s| s.checked_add(len));
    start
        .zip(end)
        .and_then(|(s, e)| bytes.get(s..e))
        .ok_or(malformed(offset, "section lies outside of the file"))
}

fn string(names: &[u8], at: usize) -> Option<&str> {
    let rest = names.get(at..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, BtfError> {
    let word = bytes.get(at..).and_then(|b| b.first_chunk());
    word.map(|w| u16::from_ne_bytes(*w))
        .ok_or(malformed(at, "cut off"))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let word = bytes.get(at..).and_then(|b| b.first_chunk());
    word.map(|w| u32::from_ne_bytes(*w))
        .ok_or(malformed(at, "cut off"))
}

fn usize_at(bytes: &[u8], at: usize) -> Result<usize, BtfError> {
    usize::try_from(u32_at(bytes, at)?).map_err(|_| malformed(at, "out of range"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(types: usize, names: usize) -> Vec<u8> {
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types, types, names] {
            bytes.extend(u32::try_from(word).unwrap().to_ne_bytes());
        }
        bytes
    }

    fn sample() -> Vec<u8> {
        let names = b"\0int\0on_fault\0btf_trace_x\0";
        let mut types: Vec<u32> = Vec::new();
        types.extend([1, 1 << 24, 4, 32]); // an integer, with its 4 bytes behind
        types.extend([0, 13 << 24 | 1, 1, 0, 1]); // a prototype with one argument
        types.extend([5, 12 << 24, 2]); // on_fault
        types.extend([14, 8 << 24, 1]); // btf_trace_x
        let types: Vec<u8> = types.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let mut bytes = header(types.len(), names.len());
        bytes.extend(types);
        bytes.extend(names);
        bytes
    }

    #[test]
    fn functions_and_typedefs_are_told_apart() {
        let btf = KernelBtf::parse(&sample()).unwrap();
        assert!(btf.has_function("on_fault"));
        assert_eq!(btf.function_id("on_fault"), Some(3));
        assert_eq!(btf.missing_for_hint_faults().len(), 6);
        assert!(!btf.has_function("int"));
        assert!(!btf.has_function("btf_trace_x"));
        assert!(btf.has_typedef("btf_trace_x"));
    }

    #[test]
    fn running_kernel_has_functions_we_know() {
        let Ok(btf) = KernelBtf::read() else {
            eprintln!("SKIPPED: this kernel has no BTF");
            return;
        };
        assert!(btf.has_function("handle_mm_fault"));
        assert!(btf.has_typedef("btf_trace_sched_process_fork"));
        assert!(!btf.has_function("no_such_function_anywhere"));
    }

    proptest! {
        #[test]
        fn damaged_files_are_read_or_refused(at in 0usize..100, value: u8, cut in 0usize..100) {
            let mut bytes = sample();
            let end = bytes.len();
            bytes[at % end] = value;
            bytes.truncate(end - cut % end);
            let _ = KernelBtf::parse(&bytes);
        }
    }
}

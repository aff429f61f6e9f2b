// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/PID/maps` and `smaps`: the mappings of a process.
//!
//! Kernel contract: reading the file gives all mappings in address order, one line each; the
//! `PROCMAP_QUERY` ioctl on it (Linux 6.11) gives the one mapping that covers an address, or the
//! next one, without the text. [`MapsFile::find`] uses the ioctl and falls back to the text.
//! A mapping may be gone by the time it is looked at.

use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Seek;
use std::os::fd::AsFd;

use linux_raw_sys::general as abi;
use rustix::io::Errno;
use rustix::ioctl;
use terrace_core::Addr;
use terrace_core::Range;

const PROCMAP_QUERY: ioctl::Opcode = ioctl::opcode::read_write::<abi::procmap_query>(b'f', 17);
const _: () = assert!(PROCMAP_QUERY == 0xc068_6611);

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 16;
const NAME_BYTES: u32 = 256;

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Where.
    pub range: Range,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// Shared rather than private.
    pub shared: bool,
    /// Offset in the file, 0 without one.
    pub offset: u64,
    /// Inode of the file behind it, 0 for anonymous memory.
    pub inode: u64,
    /// Path, `[heap]`, `[stack]`, `[anon:NAME]`, or empty.
    pub name: String,
}

impl Mapping {
    /// Private, anonymous, readable and writable and not executable; neither the main stack nor
    /// another special mapping.
    #[must_use]
    pub fn is_plain_anonymous(&self) -> bool {
        let special =
            self.name.starts_with('[') && self.name != "[heap]" && !self.name.starts_with("[anon:");
        self.inode == 0
            && self.readable
            && self.writable
            && !self.executable
            && !self.shared
            && !special
            && !self.name.starts_with('/')
    }
}

/// An open maps file.
#[derive(Debug)]
pub struct MapsFile {
    file: File,
}

impl MapsFile {
    /// Of this process, as its calling thread sees it: the main thread may have ended.
    ///
    /// # Errors
    ///
    /// Where `/proc` is not mounted.
    pub fn own() -> std::io::Result<Self> {
        File::open("/proc/thread-self/maps").map(|file| Self { file })
    }

    /// Of another process.
    ///
    /// # Errors
    ///
    /// Where it does not exist or is not ours to look at.
    pub fn of(pid: u32) -> std::io::Result<Self> {
        File::open(format!("/proc/{pid}/maps")).map(|file| Self { file })
    }

    /// The mapping that covers an address, if any.
    ///
    /// # Errors
    ///
    /// Where the process is gone.
    pub fn find(&mut self, addr: Addr) -> std::io::Result<Option<Mapping>> {
        match self.query(addr, 0) {
            Ok(found) => Ok(found),
            Err(Errno::NOTTY | Errno::INVAL) => Ok(self
                .all()?
                .into_iter()
                .find(|mapping| mapping.range.contains(addr))),
            Err(other) => Err(other.into()),
        }
    }

    /// The mapping that covers an address, or else the next one behind it.
    ///
    /// # Errors
    ///
    /// Where the process is gone.
    pub fn find_from(&mut self, addr: Addr) -> std::io::Result<Option<Mapping>> {
        match self.query(addr, COVERING_OR_NEXT) {
            Ok(found) => Ok(found),
            Err(Errno::NOTTY | Errno::INVAL) => Ok(self
                .all()?
                .into_iter()
                .find(|mapping| mapping.range.end > addr)),
            Err(other) => Err(other.into()),
        }
    }

    /// All mappings, in address order, no address in two of them.
    ///
    /// # Errors
    ///
    /// Where the process is gone.
    pub fn all(&mut self) -> std::io::Result<Vec<Mapping>> {
        let mut text = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut text)?;
        Ok(each_once(text.lines().filter_map(parse_line)))
    }

    fn query(&self, addr: Addr, flags: u64) -> Result<Option<Mapping>, Errno> {
        let mut name = [0_u8; NAME_BYTES as usize];
        // SAFETY: the structure is made of integers, for which zero is a value.
        let mut arg: abi::procmap_query = unsafe { std::mem::zeroed() };
        arg.size = size_of::<abi::procmap_query>() as u64;
        arg.query_flags = flags;
        arg.query_addr = addr.0;
        arg.vma_name_addr = name.as_mut_ptr().addr() as u64;
        arg.vma_name_size = NAME_BYTES;
        // SAFETY: the opcode was computed from the type of `arg`, which outlives the call, as
        // does the name buffer of the size given.
        let call = unsafe {
            ioctl::ioctl(
                self.file.as_fd(),
                ioctl::Updater::<PROCMAP_QUERY, _>::new(&mut arg),
            )
        };
        match call {
            Ok(()) => Ok(Some(decode(&arg, &name))),
            Err(Errno::NOENT) => Ok(None),
            // A name longer than the buffer is a path: whose mapping it is matters, not its text.
            Err(Errno::NAMETOOLONG) => self.query_unnamed(arg, flags, addr),
            Err(other) => Err(other),
        }
    }

    fn query_unnamed(
        &self,
        mut arg: abi::procmap_query,
        flags: u64,
        addr: Addr,
    ) -> Result<Option<Mapping>, Errno> {
        arg.size = size_of::<abi::procmap_query>() as u64;
        arg.query_flags = flags;
        arg.query_addr = addr.0;
        arg.vma_name_addr = 0;
        arg.vma_name_size = 0;
        // SAFETY: as in `query`, without a name buffer.
        unsafe {
            ioctl::ioctl(
                self.file.as_fd(),
                ioctl::Updater::<PROCMAP_QUERY, _>::new(&mut arg),
            )
        }?;
        Ok(Some(decode(&arg, b"/\0")))
    }
}

/// An open smaps file: what maps does not say of a mapping. Reading it walks the page tables of all mappings before
/// the one that is asked for.
#[derive(Debug)]
pub struct SmapsFile {
    file: File,
}

impl SmapsFile {
    /// Of this process, as its calling thread sees it.
    ///
    /// # Errors
    ///
    /// Where `/proc` is not mounted.
    pub fn own() -> std::io::Result<Self> {
        File::open("/proc/thread-self/smaps").map(|file| Self { file })
    }

    /// Whether the mapping that covers an address has a flag of two letters, as `wf` for one that a forked child
    /// finds empty (proc(5), `VmFlags`); `None` where nothing is mapped there.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read.
    pub fn has_flag(&mut self, addr: Addr, flag: &str) -> std::io::Result<Option<bool>> {
        self.file.rewind()?;
        flag_of(BufReader::new(&self.file), addr, flag)
    }
}

fn flag_of(text: impl BufRead, addr: Addr, flag: &str) -> std::io::Result<Option<bool>> {
    let mut here = false;
    for line in text.lines() {
        let line = line?;
        if let Some(mapping) = parse_line(&line) {
            if mapping.range.start > addr {
                break;
            }
            here = mapping.range.contains(addr);
        } else if here && let Some(flags) = line.strip_prefix("VmFlags:") {
            return Ok(Some(flags.split_whitespace().any(|word| word == flag)));
        }
    }
    Ok(None)
}

fn decode(arg: &abi::procmap_query, name: &[u8]) -> Mapping {
    let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let named = arg.vma_name_size > 0 || name == b"/\0";
    let has = |flag: u64| arg.vma_flags & flag != 0;
    Mapping {
        range: Range {
            start: Addr(arg.vma_start),
            end: Addr(arg.vma_end),
        },
        readable: has(READABLE),
        writable: has(WRITABLE),
        executable: has(EXECUTABLE),
        shared: has(SHARED),
        offset: arg.vma_offset,
        inode: arg.inode,
        name: if named {
            String::from_utf8_lossy(text).into_owned()
        } else {
            String::new()
        },
    }
}

/// The kernel gives a page of text at a time. What the process changes in between, by joining a mapping to the next for
/// instance, can be told again with what was told: of that only what is new counts.
fn each_once(mappings: impl Iterator<Item = Mapping>) -> Vec<Mapping> {
    let mut told = Addr(0);
    let new = mappings.filter_map(|mut mapping| {
        let known = told.0.saturating_sub(mapping.range.start.0);
        mapping.range.start.0 += known;
        if mapping.inode != 0 {
            mapping.offset += known;
        }
        told = told.max(mapping.range.end);
        (mapping.range.start < mapping.range.end).then_some(mapping)
    });
    new.collect()
}

/// `start-end perms offset major:minor inode   name`
fn parse_line(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut next = || {
        let (field, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = behind.trim_start();
        field
    };
    let (start, end) = next().split_once('-')?;
    let perms = next().as_bytes();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(next())?;
    let _device = next();
    let inode = next().parse().ok()?;
    Some(Mapping {
        range: Range {
            start: Addr(hex(start)?),
            end: Addr(hex(end)?),
        },
        readable: perms.first() == Some(&b'r'),
        writable: perms.get(1) == Some(&b'w'),
        executable: perms.get(2) == Some(&b'x'),
        shared: perms.get(3) == Some(&b's'),
        offset,
        inode,
        name: rest.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let line = "7f0a00000000-7f0a00021000 rw-p 00000000 00:00 0 ";
        let plain = parse_line(line).expect("a kernel line");
        assert!(plain.is_plain_anonymous());
        assert_eq!(plain.range.bytes(), 0x21000);
        let file = "55d0-66d0 r-xp 00001000 fe:01 1234    /usr/bin/a b (deleted)";
        let file = parse_line(file).expect("a kernel line");
        assert_eq!(
            (file.inode, file.name.as_str()),
            (1234, "/usr/bin/a b (deleted)")
        );
        assert!(!file.is_plain_anonymous());
        assert_eq!(parse_line("nonsense"), None);
    }

    #[test]
    fn what_is_told_twice_counts_once() {
        let text = "1000-3000 rw-p 00000000 00:00 0\n1000-4000 rw-p 00000000 00:00 0\n2000-4000 rw-p 00000000 00:00 0\n\
            3000-6000 rw-p 00002000 fe:01 9  /a\n7000-8000 rw-p 00000000 00:00 0";
        let all = each_once(text.lines().filter_map(parse_line));
        let all = all
            .iter()
            .map(|m| (m.range.start.0, m.range.end.0, m.offset));
        let all: Vec<_> = all.collect();
        let expected = [
            (0x1000, 0x3000, 0),
            (0x3000, 0x4000, 0),
            (0x4000, 0x6000, 0x3000),
            (0x7000, 0x8000, 0),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn the_flags_are_those_of_the_mapping() {
        let text = "1000-2000 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr mr \n\
            3000-5000 rw-p 00000000 00:00 0 \nSize: 8 kB\nVmFlags: rd wr wf \n";
        let asked = |addr| flag_of(text.as_bytes(), Addr(addr), "wf").expect("text");
        assert_eq!(asked(0x1000), Some(false));
        assert_eq!(asked(0x2000), None);
        assert_eq!(asked(0x4fff), Some(true));
        assert_eq!(asked(0x5000), None);
        let word = Box::new(1_u64);
        let addr = Addr((&raw const *word).addr() as u64);
        let mut own = SmapsFile::own().expect("/proc is mounted");
        assert_eq!(own.has_flag(addr, "wf").expect("own smaps"), Some(false));
        assert_eq!(own.has_flag(addr, "rd").expect("own smaps"), Some(true));
        assert_eq!(*word, 1);
    }

    #[test]
    fn the_ioctl_and_the_text_agree() {
        let word = Box::new(1_u64);
        let addr = Addr((&raw const *word).addr() as u64);
        let mut maps = MapsFile::own().expect("/proc is mounted");
        let asked = maps.find(addr).expect("own maps").expect("mapped");
        let listed = maps
            .all()
            .expect("own maps")
            .into_iter()
            .find(|mapping| mapping.range.contains(addr))
            .expect("mapped");
        assert_eq!(asked.name, listed.name);
        assert_eq!(asked.is_plain_anonymous(), listed.is_plain_anonymous());
        assert_eq!(maps.find(Addr(0)).expect("own maps"), None);
        assert_eq!(*word, 1);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program may do to its memory while its pages move, each with a check of its own.
//!
//! Every disturber has an area of base pages that the driver moves about like the others, and
//! knows what must be in it after each of its calls.

use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::driver::Random;
use crate::options::CHAOS_BASE;
use crate::options::CHAOS_PAGES;
use crate::options::CHAOS_STRIDE;
use crate::options::Chaos;
use crate::parts;
use crate::reuse;
use crate::victim::STOP;
use crate::victim::Words;
use crate::victim::lost;
use crate::victim::map_fixed;
use crate::victim::pointer;
use crate::victim::word;

const PAGE: u64 = 4096;
const LEN: u64 = CHAOS_PAGES * PAGE;
/// Words looked at in each page.
const PROBES: [u64; 4] = [0, 1032, 2064, 4088];
/// How often an area is read between two calls.
const READS: u32 = 3;

fn base(index: u64) -> u64 {
    CHAOS_BASE + index * CHAOS_STRIDE
}

fn bytes(len: u64) -> usize {
    usize::try_from(len).expect("64-bit")
}

/// Maps the areas of those asked for.
pub(crate) fn prepare(kinds: &[Chaos]) {
    for (index, kind) in kinds.iter().enumerate() {
        let start = base(index as u64);
        match kind {
            Chaos::Parts => parts::prepare(start),
            Chaos::Reuse => reuse::prepare(start),
            _ => map_fixed(start, LEN),
        }
    }
}

/// Disturbs until told to stop; how many rounds.
pub(crate) fn run(kind: Chaos, index: u64, words: &Words) -> u64 {
    let mut disturber = Disturber {
        at: base(index),
        round: 0,
        random: Random::seeded(index + 7),
    };
    let mut io = (kind == Chaos::Rw).then(Files::new);
    while !STOP.load(Ordering::Relaxed) {
        disturber.round += 1;
        match kind {
            Chaos::Fork => fork_and_check(words),
            Chaos::Collapse => collapse(words, &mut disturber.random),
            Chaos::Munmap => disturber.munmap(),
            Chaos::Mremap => disturber.mremap(),
            Chaos::Dontneed => disturber.dontneed(),
            Chaos::Mprotect => disturber.mprotect(),
            Chaos::Parts => disturber.round = parts::run(disturber.at),
            Chaos::Reuse => disturber.round = reuse::run(disturber.at),
            Chaos::Rw => {
                if let Some(files) = io.as_mut() {
                    disturber.read_and_write(files);
                }
            }
        }
    }
    disturber.round
}

struct Disturber {
    at: u64,
    round: u64,
    random: Random,
}

impl Disturber {
    fn value(&self, page: u64, probe: u64) -> u64 {
        self.round << 32 | page << 16 | probe | 1
    }

    fn fill(&self) {
        for page in 0..CHAOS_PAGES {
            for probe in PROBES {
                let value = self.value(page, probe);
                word(self.at + page * PAGE + probe).store(value, Ordering::Relaxed);
            }
        }
    }

    fn expect(&self, what: &str, first: u64, count: u64, zero: bool) {
        for page in first..first + count {
            for probe in PROBES {
                let have = word(self.at + page * PAGE + probe).load(Ordering::Relaxed);
                let want = if zero { 0 } else { self.value(page, probe) };
                if have != want {
                    lost(&format!(
                        "{what}: round {} page {page} byte {probe}: have {have:#x}, want {want:#x}",
                        self.round
                    ));
                }
            }
        }
    }

    fn linger(&self, what: &str) {
        for _ in 0..READS {
            self.expect(what, 0, CHAOS_PAGES, false);
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn munmap(&mut self) {
        self.expect("fresh mapping", 0, CHAOS_PAGES, true);
        self.fill();
        self.linger("before munmap");
        // A part first, so that the mapping is split.
        let (first, count) = (16, 32);
        // SAFETY: the area belongs to this thread, and no reference into it is alive.
        unsafe { libc::munmap(pointer(self.at + first * PAGE).cast(), bytes(count * PAGE)) };
        self.expect("left of the hole", 0, first, false);
        self.expect("right of the hole", 48, CHAOS_PAGES - 48, false);
        map_fixed(self.at + first * PAGE, count * PAGE);
        self.expect("mapped anew", first, count, true);
        // SAFETY: as above.
        unsafe { libc::munmap(pointer(self.at).cast(), bytes(LEN)) };
        map_fixed(self.at, LEN);
    }

    fn mremap(&mut self) {
        self.fill();
        self.linger("before mremap");
        let to = self.at ^ (1 << 28);
        // SAFETY: the area belongs to this thread; the place it goes to holds nothing.
        let got = unsafe {
            libc::mremap(
                pointer(self.at).cast(),
                bytes(LEN),
                bytes(LEN),
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                pointer(to),
            )
        };
        if got == libc::MAP_FAILED {
            lost(&format!(
                "mremap was refused: {}",
                std::io::Error::last_os_error()
            ));
        }
        self.at = to;
        self.expect("after mremap", 0, CHAOS_PAGES, false);
        if self.random.below(4) != 0 {
            self.linger("after mremap");
        }
    }

    fn dontneed(&mut self) {
        self.fill();
        self.linger("before madvise");
        let first = self.random.below(CHAOS_PAGES);
        let count = 1 + self.random.below(CHAOS_PAGES - first);
        // SAFETY: the area belongs to this thread; its content may go.
        unsafe {
            libc::madvise(
                pointer(self.at + first * PAGE).cast(),
                bytes(count * PAGE),
                libc::MADV_DONTNEED,
            );
        }
        for _ in 0..READS {
            self.expect("dropped", first, count, true);
            self.expect("kept below", 0, first, false);
            let behind = first + count;
            self.expect("kept above", behind, CHAOS_PAGES - behind, false);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn mprotect(&mut self) {
        self.fill();
        let first = self.random.below(CHAOS_PAGES);
        let count = 1 + self.random.below(CHAOS_PAGES - first);
        let protect = |access| {
            // SAFETY: the area belongs to this thread, which does not write it meanwhile.
            unsafe {
                libc::mprotect(
                    pointer(self.at + first * PAGE).cast(),
                    bytes(count * PAGE),
                    access,
                );
            }
        };
        protect(libc::PROT_READ);
        self.linger("read-only");
        protect(libc::PROT_NONE);
        std::thread::sleep(Duration::from_micros(300));
        protect(libc::PROT_READ | libc::PROT_WRITE);
        self.expect("writable again", 0, CHAOS_PAGES, false);
    }

    /// The kernel writes into pages in flight, and reads from them.
    fn read_and_write(&mut self, files: &mut Files) {
        self.fill();
        // write(2): the kernel reads the area.
        let area = pointer(self.at).cast::<libc::c_void>();
        // SAFETY: the area is mapped and this thread's; the descriptors are open.
        let wrote = unsafe { libc::pwrite(files.plain, area, bytes(LEN), 0) };
        if !all(wrote) {
            lost(&format!(
                "write(2) from pages in flight: {wrote} {}",
                std::io::Error::last_os_error()
            ));
        }
        self.round += 1;
        self.fill();
        self.round -= 1;
        // read(2): the kernel writes it.
        // SAFETY: as above; nothing else uses the area meanwhile.
        let read = unsafe { libc::pread(files.plain, area, bytes(LEN), 0) };
        if !all(read) {
            lost(&format!("read(2) into pages in flight: {read}"));
        }
        self.expect("read(2)", 0, CHAOS_PAGES, false);
        let Some(direct) = files.direct else { return };
        // O_DIRECT: a device, or whatever stands behind it, writes the pages by pins.
        for _ in 0..4 {
            // SAFETY: as above; the area is page aligned.
            let wrote = unsafe { libc::pwrite(direct, area, bytes(LEN), 0) };
            if !all(wrote) {
                files.direct = None;
                return;
            }
            self.round += 1;
            self.fill();
            self.round -= 1;
            // SAFETY: as above.
            let read = unsafe { libc::pread(direct, area, bytes(LEN), 0) };
            if !all(read) {
                lost(&format!("O_DIRECT read into pages in flight: {read}"));
            }
            self.expect("O_DIRECT", 0, CHAOS_PAGES, false);
            self.linger("O_DIRECT, later");
        }
    }
}

/// Whether a call did the whole area.
fn all(done: isize) -> bool {
    u64::try_from(done) == Ok(LEN)
}

/// Where the reads and writes go.
struct Files {
    plain: i32,
    direct: Option<i32>,
}

impl Files {
    fn new() -> Self {
        // SAFETY: plain calls that make descriptors; the names are C strings.
        unsafe {
            let plain = libc::memfd_create(c"terrace-stress".as_ptr(), 0);
            let direct = libc::open(
                c"/var/tmp".as_ptr(),
                libc::O_TMPFILE | libc::O_RDWR | libc::O_DIRECT,
                0o600,
            );
            Self {
                plain,
                direct: (direct >= 0).then_some(direct),
            }
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for fd in std::iter::once(self.plain).chain(self.direct) {
            // SAFETY: opened by `new` and used by nobody else.
            let owned = unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) };
            debug_assert!(owned.as_raw_fd() == fd);
        }
    }
}

/// Makes a huge page of the area whole again, or tries to.
fn collapse(words: &Words, random: &mut Random) {
    const MADV_COLLAPSE: libc::c_int = 25;
    let (start, len) = words.page(random.next());
    // SAFETY: advice that changes no content.
    unsafe { libc::madvise(pointer(start).cast(), bytes(len), MADV_COLLAPSE) };
    std::thread::sleep(Duration::from_micros(500));
}

/// The child looks at every word of its snapshot.
pub(crate) fn fork_and_check(words: &Words) {
    // SAFETY: the child only reads memory, calls _exit, and on failure write(2) through println,
    // whose lock no other thread of the victim holds for long.
    let child = unsafe { libc::fork() };
    if child < 0 {
        lost(&format!("fork: {}", std::io::Error::last_os_error()));
    }
    if child == 0 {
        let code = match words.check_all(true) {
            None => 0,
            Some(what) => {
                println!("LOST in a forked child: {what}");
                1
            }
        };
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if status != 0 {
        lost(&format!("a forked child ended with status {status:#x}"));
    }
    std::thread::sleep(Duration::from_millis(100));
}

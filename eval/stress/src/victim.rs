// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program whose pages move: threads bump words and check that each is what they left.
//!
//! Every page has [`SPOTS`] places, spread over it; each thread owns one word at each place and
//! knows what it must hold. Whoever reads another value says so and ends the process: a page was
//! lost, was old, or came back as zeros.

use std::io::BufRead;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use terrace_core::PageSize;

use crate::chaos;
use crate::driver::Random;
use crate::options::Chaos;
use crate::options::Options;
use crate::options::WORDS_BASE;

/// Places of a page.
pub(crate) const SPOTS: u64 = 64;
/// After so many visits a thread rests a moment, as programs do: what needs a huge page that nobody
/// writes to would otherwise hardly ever come to its end.
const VISITS_WITHOUT_REST: u64 = 1 << 20;
const REST: Duration = Duration::from_millis(16);

/// Set when it is time to end.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

/// Says what is wrong and ends the process.
pub(crate) fn lost(what: &str) -> ! {
    println!("LOST {what}");
    let _ = std::io::stdout().flush();
    // SAFETY: ends the process at once, so that nothing else is printed or checked.
    unsafe { libc::_exit(1) }
}

/// An anonymous mapping at a fixed address, nothing else near it.
pub(crate) fn map_fixed(addr: u64, len: u64) {
    if !try_map_fixed(addr, len) {
        lost(&format!("the address {addr:#x} is not free"));
    }
}

/// The same; `false` where the address is not free.
pub(crate) fn try_map_fixed(addr: u64, len: u64) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: MAP_FIXED_NOREPLACE touches no existing mapping.
    let got = unsafe {
        libc::mmap(
            pointer(addr).cast(),
            usize::try_from(len).expect("64-bit"),
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    got.addr() as u64 == addr
}

pub(crate) fn pointer(addr: u64) -> *mut u64 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(addr).expect("64-bit"))
}

/// A word of an area under test, as an atomic: its address is mapped as long as the area is.
pub(crate) fn word(addr: u64) -> &'static AtomicU64 {
    // SAFETY: callers name words of areas they mapped, 8-byte aligned, accessed as atomics only.
    unsafe { AtomicU64::from_ptr(pointer(addr)) }
}

/// The area and what must be in it.
#[derive(Debug)]
pub(crate) struct Words {
    size: PageSize,
    pages: u64,
    threads: u64,
    /// By thread, page, spot.
    expected: Vec<AtomicU64>,
}

impl Words {
    fn new(options: &Options) -> Self {
        let (size, pages) = (options.page_size.size(), options.page_count());
        map_fixed(WORDS_BASE, pages * size.bytes());
        let advice = if size == PageSize::Base4K || options.split {
            libc::MADV_NOHUGEPAGE
        } else {
            libc::MADV_HUGEPAGE
        };
        // SAFETY: advice on the mapping just made.
        unsafe {
            libc::madvise(
                pointer(WORDS_BASE).cast(),
                usize::try_from(pages * size.bytes()).expect("64-bit"),
                advice,
            );
        }
        let count = options.threads * pages * SPOTS;
        let words = Self {
            size,
            pages,
            threads: options.threads,
            expected: (0..count).map(|_| AtomicU64::new(1)).collect(),
        };
        for thread in 0..words.threads.max(1) {
            for page in 0..pages {
                for spot in 0..SPOTS {
                    words.at(thread, page, spot).store(1, Ordering::Relaxed);
                }
            }
        }
        words
    }

    fn at(&self, thread: u64, page: u64, spot: u64) -> &'static AtomicU64 {
        let stride = self.size.bytes() / SPOTS;
        word(WORDS_BASE + page * self.size.bytes() + spot * stride + thread * 8)
    }

    fn expected(&self, thread: u64, page: u64, spot: u64) -> &AtomicU64 {
        let index = (thread * self.pages + page) * SPOTS + spot;
        &self.expected[usize::try_from(index).expect("64-bit")]
    }

    /// Reads a word, checks it, and bumps it if asked. Only its own thread calls this.
    fn visit(&self, thread: u64, page: u64, spot: u64, bump: bool) {
        let (word, expected) = (
            self.at(thread, page, spot),
            self.expected(thread, page, spot),
        );
        let (have, want) = (
            word.load(Ordering::Relaxed),
            expected.load(Ordering::Relaxed),
        );
        if have != want {
            let zeros = (0..SPOTS)
                .filter(|spot| self.at(thread, page, *spot).load(Ordering::Relaxed) == 0)
                .count();
            let now = word.load(Ordering::Relaxed);
            lost(&format!(
                "thread {thread} page {page} spot {spot}: have {have}, want {want} \
                 ({zeros} of {SPOTS} words are 0, this one is {now} now)"
            ));
        }
        if bump {
            word.store(want + 1, Ordering::Relaxed);
            // A forked snapshot sees the word at most one ahead of this.
            std::sync::atomic::fence(Ordering::SeqCst);
            expected.store(want + 1, Ordering::Relaxed);
        }
    }

    /// Start and bytes of some page.
    pub(crate) fn page(&self, pick: u64) -> (u64, u64) {
        let bytes = self.size.bytes();
        (WORDS_BASE + (pick >> 8) % self.pages * bytes, bytes)
    }

    /// All words, in a forked child (`snapshot`: other threads were in the middle of a step) or
    /// at rest.
    pub(crate) fn check_all(&self, snapshot: bool) -> Option<String> {
        for thread in 0..self.threads {
            for page in 0..self.pages {
                for spot in 0..SPOTS {
                    let have = self.at(thread, page, spot).load(Ordering::Relaxed);
                    let want = self.expected(thread, page, spot).load(Ordering::Relaxed);
                    let ahead = u64::from(snapshot);
                    if have < want || have > want + ahead {
                        return Some(format!(
                            "thread {thread} page {page} spot {spot}: have {have}, want {want}"
                        ));
                    }
                }
            }
        }
        None
    }
}

fn work(words: &Words, thread: u64, visits: &AtomicU64) {
    let mut random = Random::seeded(thread + 100);
    // An arena of malloc's own, whose lock a fork takes.
    let own = std::hint::black_box(vec![1_u8; 200]);
    let mut count = 0;
    while !STOP.load(Ordering::Relaxed) {
        for _ in 0..256 {
            let pick = random.next();
            let page = (pick >> 8) % words.pages;
            words.visit(thread, page, (pick >> 40) % SPOTS, pick & 3 == 0);
        }
        count += 256;
        if count % VISITS_WITHOUT_REST == 0 {
            std::thread::sleep(REST);
        }
        // As a program reads its data: its page may have a shadow while forks come.
        std::hint::black_box(own[0]);
    }
    visits.fetch_add(count, Ordering::Relaxed);
}

/// Waits for the judge's word. Forks meanwhile if asked: the main thread's forks differ from the
/// others' in the C library.
fn wait_for_stop(fork: bool, words: &Words) {
    if fork {
        let stdin = std::io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: 70_000_000,
        };
        while rustix::event::poll(&mut fds, Some(&pause)) == Ok(0) {
            chaos::fork_and_check(words);
        }
    }
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

/// Runs until the judge says stop on standard input.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let words: &'static Words = Box::leak(Box::new(Words::new(options)));
    let visits = AtomicU64::new(0);
    chaos::prepare(&options.chaos);
    println!("READY");
    std::io::stdout().flush()?;
    let mut rounds = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..options.threads {
            let visits = &visits;
            scope.spawn(move || work(words, thread, visits));
        }
        for _ in 0..options.spinners {
            scope.spawn(|| {
                while !STOP.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let disturbers: Vec<_> = options
            .chaos
            .iter()
            .enumerate()
            .map(|(index, kind)| scope.spawn(move || chaos::run(*kind, index as u64, words)))
            .collect();
        wait_for_stop(options.chaos.contains(&Chaos::Fork), words);
        STOP.store(true, Ordering::Relaxed);
        for disturber in disturbers {
            rounds.push(disturber.join().unwrap_or(0));
        }
    });
    std::thread::sleep(Duration::from_millis(20));
    if let Some(what) = words.check_all(false) {
        lost(&what);
    }
    let rounds: Vec<String> = options
        .chaos
        .iter()
        .zip(rounds)
        .map(|(kind, count)| format!("{kind:?}={count}").to_lowercase())
        .collect();
    println!("OK visits={} {}", visits.into_inner(), rounds.join(" "));
    std::io::stdout().flush()?;
    Ok(())
}

/// Ends the main thread while another still runs, whose pages move meanwhile and which has something to
/// say. The process shall end with that one.
pub(crate) fn leave() -> ! {
    std::thread::spawn(|| {
        let mut pages = vec![0_u64; 1 << 17];
        for (index, word) in pages.iter_mut().enumerate() {
            *word = index as u64;
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            std::hint::black_box(&pages);
            std::thread::sleep(Duration::from_millis(10));
        }
        let wrong = (0_u64..).zip(&pages).filter(|(n, word)| n != *word).count();
        println!("{wrong} words wrong");
    });
    // Long enough to be known: nobody can look at the mappings of a process whose main thread has ended.
    std::thread::sleep(Duration::from_millis(400));
    // SAFETY: SYS_exit ends this thread alone; nothing on its stack is lent to another.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("the thread has ended")
}

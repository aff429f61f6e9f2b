// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread blocks for threads that the C library does not count.
//!
//! What runs on a thread reaches `errno` and Rust's thread-local state through the thread pointer. So a thread
//! started by clone(2) needs a block as the loader makes it: the modules' images below the pointer, the
//! thread's own record at and above it, and the loader's vector of where the images are. The loader makes
//! one, once, on the program's thread in the library's constructor, where its locks are the program's own
//! affair; our threads get copies, for which nothing is asked of anybody.
//!
//! The vector is of our making and roomy, so that the loader never allocates one for us, by the program's malloc.
//! Where the C library has no such call, or the processor lays its blocks out otherwise, there is no agent.
//! x86-64 with the GNU C library 2.34 or newer.
//!
//! In bytes from the thread pointer (glibc's `tcbhead_t`): 0 and 16 point to themselves, 8 to the vector,
//! 24 says that there are more threads, 40 and 48 are the guards of stack and pointers.

use std::ffi::c_int;
use std::ffi::c_void;

use crate::ops::memory;

/// The record at and above the thread pointer: 2,304 bytes in glibc 2.36.
const ABOVE: u64 = 8 << 10;
/// Entries of a vector, 16 bytes each.
const VECTOR: u64 = 256;
const VECTOR_BYTES: u64 = VECTOR * 16;
/// More modules than this may not have thread-local data.
const MODULES_MAX: usize = 200;
/// What the images may take together.
const IMAGES_MAX: usize = 1 << 20;
const PAGE: u64 = 4096;

/// `dtv_t` of an image that is not there yet.
const NOWHERE: u64 = u64::MAX;

/// What a block takes: copies are cut from the same cloth.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Bytes of the images, below the thread pointer.
    images: u64,
}

/// The block that the loader made.
#[derive(Debug)]
pub(crate) struct Pattern {
    shape: Shape,
    /// Its thread pointer.
    pointer: u64,
    /// Where the C library keeps a thread's number, in bytes from the thread pointer.
    number: Option<u64>,
}

type Fill = unsafe extern "C" fn(*mut c_void, bool) -> *mut c_void;

impl Shape {
    /// Asks the loader how much there is; `None` where we do not know our way about.
    pub(crate) fn ask() -> Option<Self> {
        if !cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
            return None;
        }
        let mut sum = Sum::default();
        // SAFETY: `add` is called before this returns, with a pointer to `sum` and nothing else.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut sum).cast::<c_void>()) };
        let fits = sum.modules < MODULES_MAX && sum.align <= 4096 && sum.bytes < IMAGES_MAX;
        fits.then(|| Self {
            images: (sum.bytes as u64 + PAGE).next_multiple_of(PAGE),
        })
    }

    /// Bytes of a block, a multiple of the page size.
    pub(crate) const fn bytes(self) -> u64 {
        self.images + ABOVE + VECTOR_BYTES
    }

    /// The thread pointer of a block that starts at `start`.
    const fn pointer(self, start: u64) -> u64 {
        start + self.images
    }

    const fn vector(self, pointer: u64) -> u64 {
        let _ = self;
        pointer + ABOVE
    }
}

#[derive(Debug, Default)]
struct Sum {
    modules: usize,
    bytes: usize,
    align: usize,
}

/// Static images lie one below the other, each at its alignment: together they cannot take more.
unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, sum: *mut c_void) -> c_int {
    // SAFETY: the loader's record of a module, valid during the call, and the sum of `Shape::ask`.
    let (info, sum) = unsafe { (&*info, &mut *sum.cast::<Sum>()) };
    for at in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the module has so many program headers.
        let header = unsafe { &*info.dlpi_phdr.add(at) };
        if header.p_type == libc::PT_TLS {
            let part = |value: u64| usize::try_from(value).unwrap_or(IMAGES_MAX);
            let align = part(header.p_align).max(64);
            sum.modules += 1;
            sum.bytes = sum.bytes.saturating_add(part(header.p_memsz) + align);
            sum.align = sum.align.max(align);
        }
    }
    0
}

impl Pattern {
    /// Has the loader make the block in fresh memory at `start`, of [`Shape::bytes`]. Only on a thread of
    /// the C library's.
    ///
    /// # Safety
    ///
    /// The memory must be the caller's, writable and zero, and stay for ever.
    pub(crate) unsafe fn make(shape: Shape, start: u64) -> Option<Self> {
        // SAFETY: looked up by name in what is loaded.
        let fill = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_allocate_tls_init".as_ptr()) };
        if fill.is_null() {
            return None;
        }
        let pointer = shape.pointer(start);
        let (own, vector) = (own_pointer(), shape.vector(pointer));
        // SAFETY: glibc's function of that name takes a thread pointer whose vector is in place, and (from 2.35
        // on) whether to copy the images; it writes to the images and the vector, which have room for what
        // `Shape::ask` counted. The guards are read from the calling thread's record.
        unsafe {
            store(vector, VECTOR - 2);
            store(pointer, pointer);
            store(pointer + 8, vector + 16);
            store(pointer + 16, pointer);
            store(pointer + 24, 1);
            store(pointer + 40, load(own + 40));
            store(pointer + 48, load(own + 48));
            let fill = std::mem::transmute::<*mut c_void, Fill>(fill);
            fill(memory::pointer(pointer), true);
            if load(pointer + 8) != vector + 16 {
                return None;
            }
        }
        Some(Self {
            shape,
            pointer,
            number: number_offset(),
        })
    }

    /// What a copy takes.
    pub(crate) const fn shape(&self) -> Shape {
        self.shape
    }

    /// Makes a copy in fresh memory; its thread pointer.
    ///
    /// # Safety
    ///
    /// As [`Self::make`].
    pub(crate) unsafe fn copy_to(&self, start: u64) -> u64 {
        let Self { shape, pointer, .. } = *self;
        let to = shape.pointer(start);
        let vector = shape.vector(to);
        // SAFETY: both blocks are of one shape, and the new one is the caller's. The record beyond what
        // is set here is zero in the pattern, which no thread ever ran on.
        unsafe {
            memory::copy(pointer - shape.images, start, shape.images);
            memory::copy(pointer, to, 64);
            memory::copy(shape.vector(pointer), vector, VECTOR_BYTES);
            store(to, to);
            store(to + 8, vector + 16);
            store(to + 16, to);
            // Behind the generation: where each module's image is, and what to free, which is nothing.
            for entry in 2..VECTOR {
                let at = vector + entry * 16;
                let image = load(at);
                let is_image =
                    image != NOWHERE && image < pointer && pointer - image <= shape.images;
                store(
                    at,
                    if is_image {
                        to - (pointer - image)
                    } else {
                        NOWHERE
                    },
                );
            }
        }
        to
    }

    /// Where the kernel shall write the number of a thread with that pointer.
    pub(crate) fn number_at(&self, pointer: u64) -> Option<u64> {
        self.number.map(|offset| pointer + offset)
    }
}

/// The C library tells debuggers where the number is: bits, count and offset of the field.
fn number_offset() -> Option<u64> {
    // SAFETY: looked up by name; the symbol names three 32-bit numbers (glibc's nptl_db/db_info.c).
    unsafe {
        let field = libc::dlsym(libc::RTLD_DEFAULT, c"_thread_db_pthread_tid".as_ptr());
        let field = field.cast::<[u32; 3]>().as_ref()?;
        let offset = u64::from(field[2]);
        (field[0] == 32 && offset < ABOVE).then_some(offset)
    }
}

/// The calling thread's pointer: what pthread_self(3) gives.
fn own_pointer() -> u64 {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() }
}

/// # Safety
///
/// A readable word at a multiple of 8.
unsafe fn load(addr: u64) -> u64 {
    // SAFETY: the caller's word.
    unsafe { memory::pointer::<u64>(addr).read() }
}

/// # Safety
///
/// A writable word at a multiple of 8 that nobody else uses.
unsafe fn store(addr: u64, value: u64) {
    // SAFETY: the caller's word.
    unsafe { memory::pointer::<u64>(addr).write(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static WORD: std::cell::Cell<u64> = const { std::cell::Cell::new(0x7e44_ace0) };
    }

    #[test]
    fn copies_hold_the_images_and_point_to_themselves() {
        let shape = Shape::ask().expect("x86-64 with glibc");
        let area = terrace_sys::arena::Reservation::new(shape.bytes() * 2, 4096).expect("pages");
        area.commit(0, shape.bytes() * 2).expect("pages");
        WORD.with(|word| word.set(1));
        let word = WORD.with(|word| word.as_ptr().expose_provenance() as u64);
        // SAFETY: fresh memory of this test's, of the size asked for; the words read are in it.
        unsafe {
            let pattern = Pattern::make(shape, area.start()).expect("the loader's call");
            let copy = pattern.copy_to(area.start() + shape.bytes());
            assert_eq!(load(copy), copy);
            assert_eq!(load(copy + 16), copy);
            let image = own_pointer() - word;
            assert!(image <= shape.images);
            assert_eq!(load(copy - image), 0x7e44_ace0, "as initialised");
            let at = |pointer: u64| (2..VECTOR).map(move |n| load(shape.vector(pointer) + n * 16));
            let whole = at(copy)
                .filter(|image| *image != NOWHERE && *image != 0)
                .count();
            assert!(whole > 0);
            assert!(pattern.number_at(copy).is_some());
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first accesses of pages that are armed one by one: loads the BPF program, fills its table, reads its ring.
//!
//! The program (`bpf/chosen_faults.bpf.c`, whose header defines the format) sits on the trace points
//! `exceptions:page_fault_user` and `page_fault_kernel`, which x86 has. Kernel contract: BTF, `tp_btf` programs (Linux 5.5),
//! CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN. Process ids are those of the initial pid namespace.
//!
//! An access that causes no exception, as by get_user_pages (O_DIRECT, process_vm_readv(2)), is not seen.
//! Nothing here arms a page, and nothing has a thread.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use libbpf_rs::Link;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use libbpf_rs::Object;
use libbpf_rs::ObjectBuilder;
use libbpf_rs::RingBuffer;
use libbpf_rs::RingBufferBuilder;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_sys::probe;
use terrace_sys::probe::Fact;
use terrace_sys::probe::namespace;

use crate::driver::map;
use crate::error::HintFaultsError;
use crate::error::failed;
use crate::object::Aligned;
use crate::object::absent_is_good;
use crate::object::object;
use crate::record::NO_NODE;
use crate::record::u16_at;
use crate::record::u32_at;
use crate::record::u64_at;

static OBJECT: &Aligned<[u8]> = object!("chosen_faults");

/// Pages that can be in the table at a time.
pub const PAGES_MAX: usize = 1 << 16;
/// Size of `struct chosen_record`.
const RECORD_BYTES: usize = 40;
/// Size of `struct chosen_page`.
const KEY_BYTES: usize = 16;
/// `enum chosen_sizes`.
const BASE: u32 = 1;
const HUGE: u32 = 2;

/// The first access of a page in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChosenFault {
    /// The page.
    pub page: PageRef,
    /// The thread.
    pub tid: u32,
    /// The processor it ran on.
    pub cpu: u32,
    /// The node of that processor.
    pub cpu_node: Option<NodeId>,
    /// Whether it was a write.
    pub write: bool,
    /// When.
    pub time: Nanos,
}

/// The loaded program.
pub struct ChosenFaults {
    // Dropped in this order: no callback after the ring, no program after its links.
    ring: RingBuffer<'static>,
    inbox: Arc<Mutex<Vec<ChosenFault>>>,
    chosen: MapHandle,
    sizes: MapHandle,
    lost: MapHandle,
    _links: Vec<Link>,
    _object: Object,
}

impl std::fmt::Debug for ChosenFaults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChosenFaults").finish_non_exhaustive()
    }
}

impl ChosenFaults {
    /// Loads and attaches the program. No page is in its table.
    ///
    /// # Errors
    ///
    /// Where the kernel lacks what is needed, or permission is missing.
    pub fn open() -> Result<Self, HintFaultsError> {
        if probe::forced_off()?.contains(&Fact::Bpf) {
            return Err(HintFaultsError::SwitchedOff);
        }
        if namespace::in_initial_pid_namespace() == Some(false) {
            return Err(HintFaultsError::PidNamespace);
        }
        crate::error::keep_what_libbpf_says();
        let object = ObjectBuilder::default()
            .name("chosen_faults")
            .and_then(|builder| builder.open_memory(&OBJECT.0))
            .map_err(failed("open the BPF object of chosen pages"))?
            .load()
            .map_err(failed("load the BPF program of chosen pages"))?;
        let inbox = Arc::default();
        let ring = ring(&map(&object, "records")?, Arc::clone(&inbox))?;
        let attached = object.progs_mut().map(|program| program.attach());
        let links = attached.collect::<Result<_, _>>();
        Ok(Self {
            ring,
            inbox,
            chosen: map(&object, "chosen")?,
            sizes: map(&object, "sizes")?,
            lost: map(&object, "lost")?,
            _links: links.map_err(failed("attach the BPF program of chosen pages"))?,
            _object: object,
        })
    }

    /// Reports the page's next access, for which it is to be armed.
    ///
    /// # Errors
    ///
    /// Where the table is full.
    pub fn insert(&self, page: PageRef) -> Result<(), HintFaultsError> {
        let key = key(page);
        self.chosen
            .update(&key, &[1], MapFlags::ANY)
            .map_err(failed("add a page to the table of chosen ones"))
    }

    /// Reports it no more.
    ///
    /// # Errors
    ///
    /// Where the table cannot be changed; a page that is not in it is no error.
    pub fn remove(&self, page: PageRef) -> Result<(), HintFaultsError> {
        absent_is_good(self.chosen.delete(&key(page)))
            .map_err(failed("take a page from the table of chosen ones"))
    }

    /// Which sizes of pages a process can have in the table; none keeps its faults from being looked at.
    ///
    /// # Errors
    ///
    /// Where there are 8,192 processes already.
    pub fn looks_at(&self, pid: Pid, base: bool, huge: bool) -> Result<(), HintFaultsError> {
        let (key, mut sizes) = (pid.0.to_ne_bytes(), 0);
        if base {
            sizes |= BASE;
        }
        if huge {
            sizes |= HUGE;
        }
        let done = if sizes == 0 {
            absent_is_good(self.sizes.delete(&key))
        } else {
            self.sizes.update(&key, &sizes.to_ne_bytes(), MapFlags::ANY)
        };
        done.map_err(failed("change whose pages are looked for"))
    }

    /// Hands out the accesses there are, oldest first, without waiting.
    ///
    /// # Errors
    ///
    /// Where the ring cannot be read.
    pub fn poll(&self, sink: impl FnMut(ChosenFault)) -> Result<(), HintFaultsError> {
        self.ring
            .consume()
            .map_err(failed("read the ring of chosen pages"))?;
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.drain(..).for_each(sink);
        Ok(())
    }

    /// Accesses that found no room in the ring.
    ///
    /// # Errors
    ///
    /// Where the counter cannot be read.
    pub fn lost(&self) -> Result<u64, HintFaultsError> {
        let found = self.lost.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(failed("read the counter of lost accesses"))?;
        Ok(found
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_ne_bytes))
    }
}

fn ring(
    records: &MapHandle,
    inbox: Arc<Mutex<Vec<ChosenFault>>>,
) -> Result<RingBuffer<'static>, HintFaultsError> {
    let mut builder = RingBufferBuilder::new();
    builder
        .add(records, move |bytes| {
            let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.extend(decode(bytes));
            0
        })
        .map_err(failed("open the ring of chosen pages"))?;
    builder
        .build()
        .map_err(failed("open the ring of chosen pages"))
}

/// `struct chosen_page`.
fn key(page: PageRef) -> [u8; KEY_BYTES] {
    let mut wire = [0; KEY_BYTES];
    wire[..8].copy_from_slice(&page.addr.align_down(page.size).0.to_ne_bytes());
    wire[8..12].copy_from_slice(&page.pid.0.to_ne_bytes());
    wire[12..].copy_from_slice(&u32::from(page.size.shift()).to_ne_bytes());
    wire
}

/// `struct chosen_record`; nothing where the bytes are none.
fn decode(bytes: &[u8]) -> Option<ChosenFault> {
    let wire: &[u8; RECORD_BYTES] = bytes.try_into().ok()?;
    let shift = u8::try_from(u32_at(wire, 20)).ok()?;
    Some(ChosenFault {
        time: Nanos(u64_at(wire, 0)),
        page: PageRef {
            pid: Pid(u32_at(wire, 16)),
            addr: Addr(u64_at(wire, 8)),
            size: PageSize::from_shift(shift)?,
        },
        tid: u32_at(wire, 24),
        cpu: u32_at(wire, 28),
        cpu_node: Some(u16_at(wire, 32))
            .filter(|node| *node != NO_NODE)
            .map(NodeId),
        write: wire[34] != 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_says_the_page_of_its_key() {
        for size in [PageSize::Base4K, PageSize::Huge2M] {
            let page = PageRef {
                pid: Pid(7),
                addr: Addr(5 << 21),
                size,
            };
            let inside = PageRef {
                addr: Addr(page.addr.0 + 0xfff),
                ..page
            };
            assert_eq!(key(inside), key(page));
            let mut wire = [0; RECORD_BYTES];
            wire[0] = 9;
            wire[8..24].copy_from_slice(&key(page));
            wire[24] = 3;
            wire[28] = 2;
            wire[32] = 1;
            wire[34] = 1;
            let expected = ChosenFault {
                page,
                tid: 3,
                cpu: 2,
                cpu_node: Some(NodeId(1)),
                write: true,
                time: Nanos(9),
            };
            assert_eq!(decode(&wire), Some(expected));
            wire[20] = 13;
            assert_eq!(decode(&wire), None, "no page has that size");
        }
    }

    proptest! {
        #[test]
        fn fuzz_chosen_records(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(fault) = decode(&bytes) {
                prop_assert_eq!(bytes.len(), RECORD_BYTES);
                prop_assert_ne!(fault.cpu_node, Some(NodeId(NO_NODE)));
            }
        }
    }
}

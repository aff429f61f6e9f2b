// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots are emptied whatever is in them, wherever there is room for it, and nobody is told.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use terrace_core::PageSize::Base4K;
use terrace_core::PageSize::Huge2M;
use terrace_sys::uffd::Events;
use terrace_sys::uffd::Writers;

use super::*;
use crate::ops::memory::pointer;

/// There is room for few layouts.
static ONE: Mutex<()> = Mutex::new(());

/// Of one size, with slots that are full.
struct Place {
    _one: MutexGuard<'static, ()>,
    grounds: Grounds,
    addresses: Addresses,
    slots: Vec<u64>,
}

impl Place {
    fn new(size: PageSize, pages: u64) -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let layout = Layout::new().expect("address space");
        let layout: &'static Layout = Box::leak(Box::new(layout));
        let open = |events| Uffd::open(events, Writers::GoOn).expect("a userfaultfd");
        let grounds = Grounds {
            layout,
            uffd: Arc::new(open(Events::Mappings)),
            quiet: open(Events::None),
            pagemap: Arc::new(Pagemap::own().expect("a page map")),
        };
        let mut addresses = Addresses::new(layout, size);
        let grow = |part| grounds.make(part, &grounds.uffd);
        let (first, count) = addresses.slots.take(pages, grow).expect("slots");
        assert_eq!(count, pages);
        let slots = (0..pages).map(|page| first + page * size.bytes()).collect();
        let place = Self {
            _one: one,
            grounds,
            addresses,
            slots,
        };
        place.fill();
        place
    }

    /// Huge pages in parts, unless the kernel makes whole ones of them.
    fn fill(&self) {
        for slot in &self.slots {
            for page in (*slot..*slot + self.addresses.size.bytes()).step_by(4096) {
                // SAFETY: the slot is ours, mapped and writable.
                unsafe { pointer::<u64>(page).write_volatile(page) };
            }
        }
    }

    fn lock(&self, slot: u64) {
        // SAFETY: it is mapped, and stays.
        unsafe { rustix::mm::mlock(pointer(slot), 4096) }.expect("locked memory");
    }

    /// Drops what is in all slots; then they are empty and can be had again, and so is each old address.
    fn bury(mut self) {
        self.addresses.dead.clone_from(&self.slots);
        self.addresses.bury_dead(&self.grounds);
        let mut events = [0; 4096];
        assert_eq!(self.grounds.uffd.read(&mut events), Ok(0), "it was told");
        let bytes = self.addresses.size.bytes();
        let mut old = Vec::new();
        while old.len() < self.slots.len() {
            match self.addresses.take_old(&self.grounds, 1) {
                Ok((one, _)) => old.push(one),
                Err(_) => break,
            }
        }
        for page in self.slots.iter().chain(&old) {
            for at in (*page..page + bytes).step_by(4096) {
                assert!(self.is_empty(at), "{at:#x} is not empty");
            }
        }
        for _ in 0..self.slots.len() {
            let nothing_new = |_| Err(Errno::NOMEM);
            let (again, _) = self.addresses.slots.take(1, nothing_new).expect("a slot");
            assert!(self.slots.contains(&again), "{again:#x} is another one");
        }
        self.fill();
        let layout = self.grounds.layout;
        drop(self.grounds);
        layout.give_frames_back();
    }

    fn is_empty(&self, page: u64) -> bool {
        let kind = self.grounds.pagemap.kind(page);
        kind.expect("a page map").is_empty()
    }

    fn room_for_old(&mut self, pages: u64) {
        let size = self.addresses.size;
        let zone = self.grounds.layout.old(size);
        let len = pages * size.bytes();
        self.addresses.old = Area::new(Zone { len, ..zone }, size);
    }
}

#[test]
fn slots_are_emptied_together() {
    Place::new(Base4K, 100).bury();
}

/// `UFFDIO_MOVE` leaves locked pages alone where the destination is not locked.
#[test]
fn a_slot_that_cannot_be_moved_is_mapped_anew_and_others_are_moved() {
    for locked in [0, 50, 99] {
        let place = Place::new(Base4K, 100);
        place.lock(place.slots[locked]);
        place.bury();
    }
}

#[test]
fn slots_are_emptied_with_little_room_and_with_none() {
    for room in [7, 1, 0] {
        let mut place = Place::new(Base4K, 20);
        place.room_for_old(room);
        place.bury();
    }
}

#[test]
fn what_is_left_of_a_huge_page_is_dropped_in_parts() {
    let mut place = Place::new(Huge2M, 3);
    let slot = place.slots[1];
    let old = place.addresses.take_old(&place.grounds, 1);
    let (old, _) = old.expect("room");
    assert_eq!(place.grounds.carry(slot + 4096, old, 3 * 4096), 3 * 4096);
    place.addresses.drop_old(&place.grounds, old, 1);
    place.bury();
}

#[test]
fn an_old_address_that_a_lock_has_filled_is_mapped_anew() {
    let mut place = Place::new(Base4K, 10);
    let (first, count) = place.addresses.take_old(&place.grounds, 4).expect("room");
    place.lock(first);
    for page in 0..count {
        place.addresses.unused(&place.grounds, first + page * 4096);
    }
    place.bury();
}

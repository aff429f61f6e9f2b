// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a transaction is made of: write protection, moves, and a write fault that another thread
//! answers, which is what an aborted transaction costs the program.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::io::Errno;
use terrace_sys::uffd::EVENT_BYTES;
use terrace_sys::uffd::Event;
use terrace_sys::uffd::Events;
use terrace_sys::uffd::Uffd;
use terrace_sys::uffd::Writers;

use super::BATCH;
use super::PAGES;
use super::Value;
use super::Why;
use super::mean;
use super::region::PAGE;
use super::region::Region;
use super::value;

const PAGE_BYTES: u64 = PAGE as u64;

pub(super) fn measure() -> Vec<Value> {
    let kinds = [
        (
            1,
            "uffd_protect",
            "write-protecting a page, a call for each",
            "uffd_move",
            "UFFDIO_MOVE of a page, a call for each",
        ),
        (
            BATCH,
            "uffd_protect_batched",
            "write-protecting a page, 512 a call",
            "uffd_move_batched",
            "UFFDIO_MOVE of a page, 512 a call",
        ),
    ];
    let mut values = Vec::new();
    for (pages, protect_name, protect_about, move_name, move_about) in kinds {
        let (protect, moving) = match protect_and_move(pages) {
            Ok((protect, moving)) => (Ok(protect), Ok(moving)),
            Err(why) => (Err(why.clone()), Err(why)),
        };
        values.push(value(protect_name, protect_about, protect));
        values.push(value(move_name, move_about, moving));
    }
    let about = "a write to a protected page, answered by another thread";
    values.push(value("uffd_fault", about, answered_fault()));
    values
}

fn protect_and_move(pages: usize) -> Result<(f64, f64), Why> {
    let uffd = Uffd::open(Events::None, Writers::Wait)?;
    let app = Region::populated(PAGES)?;
    let park = Region::anonymous(PAGES)?;
    for region in [&app, &park] {
        uffd.register(region.start(), region.bytes(), true)?;
    }
    let length = (pages * PAGE) as u64;
    let steps = || (0..PAGES / pages).map(|step| step as u64 * length);
    let protect = mean(PAGES, || {
        steps().try_for_each(|at| uffd.write_protect(app.start() + at, length, true).map(drop))
    })?;
    // Out and back again: two moves a page.
    let moving = mean(2 * PAGES, || {
        steps().try_for_each(|at| {
            let (here, there) = (app.start() + at, park.start() + at);
            for (to, from) in [(there, here), (here, there)] {
                // SAFETY: both ranges are whole pages of our regions, into which no reference
                // points.
                let moved = unsafe { uffd.move_pages(to, from, length, false) }?;
                if moved.bytes != length {
                    return Err(Errno::BUSY);
                }
            }
            Ok(())
        })
    })?;
    Ok((protect, moving))
}

fn answered_fault() -> Result<f64, Why> {
    let pages = PAGES / 4;
    let uffd = Uffd::open(Events::None, Writers::Wait)?;
    let region = Region::populated(pages)?;
    uffd.register(region.start(), region.bytes(), false)?;
    // Every page is protected once and answered once.
    let _ = uffd.write_protect(region.start(), region.bytes(), true)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| answer(&uffd, &done));
        let ns = mean(pages, || {
            region.touch_all();
            Ok(())
        });
        done.store(true, Ordering::Release);
        match answers.join() {
            Ok(Ok(count)) if count < pages => {
                let text = format!("of {pages} writes only {count} faulted");
                Err(Why::Refused(text))
            }
            Ok(result) => result.map_err(Why::from).and(ns),
            Err(_) => Err(Why::Refused("the answering thread died".to_owned())),
        }
    })
}

/// Answers faults until told to stop; gives how many.
fn answer(uffd: &Uffd, done: &AtomicBool) -> Result<usize, Errno> {
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: 10_000_000,
    };
    let mut buffer = [0; EVENT_BYTES * 8];
    let mut count = 0;
    while !done.load(Ordering::Acquire) {
        rustix::event::poll(&mut [PollFd::new(uffd, PollFlags::IN)], Some(&pause))?;
        let events = uffd.read(&mut buffer)?;
        for wire in buffer.as_chunks::<EVENT_BYTES>().0.iter().take(events) {
            // SAFETY: straight from `read`, decoded once.
            if let Event::WriteProtected { addr } = unsafe { Event::decode(wire) } {
                let _ = uffd.write_protect(addr, PAGE_BYTES, false)?;
                count += 1;
            }
        }
    }
    Ok(count)
}

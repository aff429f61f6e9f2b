// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor, the kernel's entry, page faults without another node, marking.

use std::convert::Infallible;
use std::hint::black_box;

use super::PAGES;
use super::Value;
use super::Why;
use super::mean;
use super::region::Region;
use super::value;

pub(super) fn measure() -> Vec<Value> {
    vec![
        value("alu", "six dependent operations of the processor", alu()),
        value("syscall", "getppid(2)", syscall()),
        value(
            "page_fault",
            "first touch of an anonymous page: allocated, cleared, mapped",
            page_fault(),
        ),
        value("page_clear", "clearing a page that is there", page_clear()),
        value(
            "minor_fault",
            "mapping a page that is in memory already",
            minor_fault(),
        ),
        value(
            "pte_marking",
            "taking the access right from a page, in one call for many, as a scanner does",
            pte_marking(),
        ),
    ]
}

fn infallible(result: Result<f64, Infallible>) -> Result<f64, Why> {
    result.map_err(|never| match never {})
}

fn alu() -> Result<f64, Why> {
    let steps = 5_000_000;
    infallible(mean(steps, || {
        // Six dependent operations, which no compiler takes together.
        let mut x = black_box(1u64);
        for _ in 0..steps {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        black_box(x);
        Ok(())
    }))
}

fn syscall() -> Result<f64, Why> {
    let calls = 50_000;
    infallible(mean(calls, || {
        (0..calls).for_each(|_| _ = black_box(rustix::process::getppid()));
        Ok(())
    }))
}

fn page_fault() -> Result<f64, Why> {
    let region = Region::anonymous(PAGES)?;
    infallible(mean(PAGES, || {
        region.touch_all();
        Ok(())
    }))
}

fn page_clear() -> Result<f64, Why> {
    let region = Region::populated(PAGES)?;
    infallible(mean(PAGES, || {
        region.clear();
        Ok(())
    }))
}

fn minor_fault() -> Result<f64, Why> {
    let region = Region::cached_file(PAGES)?;
    infallible(mean(PAGES, || {
        region.touch_all();
        Ok(())
    }))
}

fn pte_marking() -> Result<f64, Why> {
    let region = Region::populated(PAGES)?;
    Ok(mean(PAGES, || region.forbid())?)
}

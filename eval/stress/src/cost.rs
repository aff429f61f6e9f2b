// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each kind of move costs a page, the program being idle: the agent's against move_pages(2).
//!
//! Processor time of the agent's threads (of move_pages: wall time) over the number of pages, and
//! the median time a page was inaccessible as the agent says. Ratios within one run mean something; absolute
//! figures depend on the machine and on who else is on it.

use std::time::Instant;

use terrace_core::Addr;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_proto::Op;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;

use crate::driver::Driver;
use crate::driver::WINDOW;
use crate::options::WORDS_BASE;

const ROUNDS: u32 = 5;

/// Measures everything a few times; the best round counts.
pub(crate) fn measure(driver: &mut Driver<'_>) -> anyhow::Result<()> {
    let (fast, slow) = (driver.fast, driver.slow);
    let promote = |keep_shadow| Op::Promote {
        node: fast,
        keep_shadow,
    };
    let demote = Op::Demote {
        node: slow,
        copy: true,
    };
    type Step = (&'static str, fn(Op, Op) -> Op);
    let mut best: Vec<(&'static str, f64, u64, u64)> = Vec::new();
    let pick: [Step; 4] = [
        ("to the slow node, transaction", |_, demote| demote),
        (
            "to the fast node, transaction, shadow kept",
            |promote, _| promote,
        ),
        ("to the slow node, onto the shadow", |_, demote| demote),
        ("to the fast node, transaction, no shadow", |promote, _| {
            promote
        }),
    ];
    for _ in 0..ROUNDS {
        for (at, (name, choose)) in pick.iter().enumerate() {
            let op = choose(promote(at == 1), demote);
            let (us, inaccessible, moved) = one(driver, op)?;
            note(&mut best, name, us, inaccessible, moved);
        }
        let (us, inaccessible, moved) = exchange(driver)?;
        note(&mut best, "exchange, a pair", us, inaccessible, moved);
        for (name, node) in [
            ("to the slow node, move_pages", slow),
            ("to the fast node, move_pages", fast),
        ] {
            let (us, moved) = by_kernel(driver, node)?;
            note(&mut best, name, us, 0, moved);
        }
    }
    driver.counts.costs = best
        .iter()
        .map(|(name, us, inaccessible, moved)| {
            format!(
                "{name}: {us:.2} us a page, inaccessible {:.2} us, {moved} moved",
                inaccessible.to_owned() as f64 / 1e3
            )
        })
        .collect();
    Ok(())
}

fn note(
    best: &mut Vec<(&'static str, f64, u64, u64)>,
    name: &'static str,
    us: f64,
    inaccessible: u64,
    moved: u64,
) {
    match best.iter_mut().find(|(known, ..)| *known == name) {
        Some(entry) if entry.1 > us => *entry = (name, us, inaccessible, moved),
        Some(_) => {}
        None => best.push((name, us, inaccessible, moved)),
    }
}

/// Processor time of the agent's threads, ns.
fn agent_time(driver: &Driver<'_>) -> u64 {
    let tasks = format!("/proc/{}/task", driver.link.hello.pid);
    std::fs::read_dir(tasks)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|task| {
            std::fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name.starts_with("terrace-"))
        })
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|stat| stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()))
        .sum()
}

fn one(driver: &mut Driver<'_>, op: Op) -> anyhow::Result<(f64, u64, u64)> {
    let size = driver.options.page_size.size();
    driver.agent_time = agent_time(driver);
    driver.moved.clear();
    driver.times.clear();
    for page in order(driver) {
        driver.order(op, WORDS_BASE + page * size.bytes(), size);
        if driver.waiting.len() >= WINDOW {
            driver.settle()?;
        }
    }
    driver.settle()?;
    let count = driver.moved.len().max(1) as u64;
    Ok(summary(driver, count))
}

/// The pages of a round: all in order, or every other one in none.
fn order(driver: &Driver<'_>) -> Vec<u64> {
    let pages = driver.options.pages;
    if !driver.options.scattered {
        return (0..pages).collect();
    }
    // The same ones in every round: a multiplication modulo a power of two mixes well enough.
    let count = (pages / 2).next_power_of_two();
    (0..count)
        .map(|n| n.wrapping_mul(0x9e37_79b1) % count * 2)
        .filter(|page| *page < pages)
        .collect()
}

fn exchange(driver: &mut Driver<'_>) -> anyhow::Result<(f64, u64, u64)> {
    let size = driver.options.page_size.size();
    let half = driver.options.pages / 2;
    driver.agent_time = agent_time(driver);
    driver.moved.clear();
    driver.times.clear();
    for page in 0..half {
        let with = Addr(WORDS_BASE + (page + half) * size.bytes());
        driver.order(
            Op::Exchange { with },
            WORDS_BASE + page * size.bytes(),
            size,
        );
        if driver.waiting.len() >= WINDOW {
            driver.settle()?;
        }
    }
    driver.settle()?;
    Ok(summary(driver, half))
}

fn summary(driver: &mut Driver<'_>, pages: u64) -> (f64, u64, u64) {
    let cpu = agent_time(driver).saturating_sub(driver.agent_time) as f64 / 1e3 / pages as f64;
    let us = cpu;
    driver.times.sort_unstable();
    let median = driver.times.get(driver.times.len() / 2).copied();
    (us, median.unwrap_or(0), driver.moved.len() as u64)
}

fn by_kernel(driver: &Driver<'_>, node: NodeId) -> anyhow::Result<(f64, u64)> {
    let size = driver.options.page_size.size();
    let pages: Vec<u64> = order(driver)
        .into_iter()
        .map(|page| WORDS_BASE + page * size.bytes())
        .collect();
    let target = Target::Process(Pid(driver.link.hello.pid));
    let begun = Instant::now();
    let mut moved = 0;
    for batch in pages.chunks(WINDOW) {
        let status = move_pages::migrate(target, batch, node, Sharing::OwnOnly)?;
        moved += status
            .iter()
            .filter(|s| **s == PageStatus::On(node))
            .count() as u64;
    }
    let us = begun.elapsed().as_secs_f64() * 1e6 / pages.len() as f64;
    Ok((us, moved))
}

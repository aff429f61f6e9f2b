// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a process's pages move or rest, as its policy says it: an object for programs, words for people.

use std::fmt::Write;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use serde::Serialize;
use terrace_policy::Belief;
use terrace_policy::belief::ClassBelief;
use terrace_policy::belief::PageBelief;
use terrace_policy::belief::PlanBelief;
use terrace_policy::belief::SplitBelief;

const PAGE: u64 = 4096;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyQuestion {
    /// The process.
    pub pid: u32,
    /// An address in it.
    pub page: Option<u64>,
}

/// What the policy of a process believes of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// The process.
    pub pid: u32,
    /// Its policy.
    pub policy: String,
    /// Absent where the policy does not say, or knows nothing of the process yet.
    pub belief: Option<Belief>,
}

impl Why {
    /// In plain words.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self {
            pid,
            policy,
            belief,
        } = self;
        let Some(belief) = belief else {
            return format!(
                "process {pid}, policy {policy}: it says nothing of it, or has seen nothing of it yet\n"
            );
        };
        let mut out = format!("process {pid}, policy {policy}\n");
        let _ = known(&mut out, belief);
        let _ = classes(&mut out, &belief.classes);
        let _ = hot_set(&mut out, &belief.classes);
        let _ = writeln!(out, "  {}", decision(&belief.plan, belief.passes));
        if let Some(page) = &belief.page {
            let _ = writeln!(out, "  {}", page_words(page, &belief.plan));
        }
        out
    }
}

/// A time of so many ns, to two digits.
fn time(ns: f64) -> String {
    let digits = 10_f64
        .powf((ns.abs().max(1.0)).log10().floor() - 1.0)
        .max(1.0);
    let rounded = (ns.abs() / digits).round() * digits;
    let sign = if ns < 0.0 { "-" } else { "" };
    let span = Duration::try_from_secs_f64(rounded / 1e9).unwrap_or(Duration::MAX);
    format!("{sign}{span:?}")
}

/// Minutes, where they are some.
fn minutes(seconds: f64) -> String {
    if seconds < 120.0 {
        return time(seconds * 1e9);
    }
    format!("{:.0} minutes", seconds / 60.0)
}

fn memory(pages: u64) -> String {
    ByteSize(pages.saturating_mul(PAGE))
        .display()
        .iec()
        .to_string()
}

fn known(out: &mut String, belief: &Belief) -> std::fmt::Result {
    let pages = |of: fn(&ClassBelief) -> u64| belief.classes.iter().map(of).sum::<u64>();
    let (fast, slow) = (pages(|one| one.fast_pages), pages(|one| one.slow_pages));
    writeln!(
        out,
        "  knows {}: {} fast, {} slow",
        memory(fast + slow),
        memory(fast),
        memory(slow)
    )?;
    writeln!(
        out,
        "  an access saves {} on the fast tier, a visit is {:.1} of them; moving a page costs {} (4 KiB), {} (2 MiB)",
        time(belief.saved_ns),
        belief.accesses_a_visit,
        time(belief.move_base_ns),
        time(belief.move_huge_ns)
    )?;
    writeln!(
        out,
        "  looks at all of it every {}, and counts savings of the next {}",
        time(belief.pass_s * 1e9),
        minutes(belief.horizon_s)
    )?;
    if let Some(share) = &belief.share {
        let iec = |bytes: u64| ByteSize(bytes).display().iec().to_string();
        let most = share
            .ceiling_bytes
            .map_or_else(|| "all of it".to_owned(), iec);
        writeln!(
            out,
            "  others leave it {} of fast memory, {most} may be there; what it saves counts {} times",
            iec(share.floor_bytes),
            u64::from(share.priority) + 1
        )?;
    }
    if !belief.accessed_from.is_empty() {
        let each = belief.accessed_from.iter();
        let each = each.map(|of| format!("{} by node {}'s processors", memory(of.pages), of.node));
        let each: Vec<String> = each.collect();
        writeln!(out, "  accesses {} mostly", each.join(", "))?;
    }
    if let Some(ledger) = &belief.ledger {
        let (earned, spent) = (time(ledger.earned_ns), time(ledger.spent_ns));
        let state = if ledger.may_ns < 0.0 {
            format!(
                "owes {} more than it may: its pages go back to where they first were, and rest",
                time(-ledger.may_ns)
            )
        } else {
            format!("the next moves may take {}", time(ledger.may_ns))
        };
        writeln!(out, "  moves brought it {earned} and took {spent}; {state}")?;
    }
    if let Some(split) = &belief.split {
        writeln!(out, "  {}", split_words(split))?;
    }
    if let Some(ago) = belief.surprised_s {
        writeln!(
            out,
            "  it did what nobody expected {} ago, and is learnt anew since",
            time(ago * 1e9)
        )?;
    }
    Ok(())
}

fn split_words(split: &SplitBelief) -> String {
    let (pages, takes) = (split.pages, time(split.walk_ns));
    let next = match split.adds {
        None => "whether that pays is not known yet".to_owned(),
        Some(adds) if adds > 0.0 => {
            let percent = adds * 100.0;
            format!("that adds {percent:.0} % at least to what they save, so more are split")
        }
        Some(_) => "to split more would not pay".to_owned(),
    };
    format!("{pages} of its huge pages are in parts, where a visit takes {takes} more; {next}")
}

/// A line for each octave of rates.
fn classes(out: &mut String, classes: &[ClassBelief]) -> std::fmt::Result {
    if classes.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "  {:>14} {:>12} {:>12} {:>12}",
        "visits a page", "fast", "slow", "saves a page"
    )?;
    #[expect(clippy::cast_possible_truncation, reason = "an exponent")]
    let octave = |one: &ClassBelief| (one.rate > 0.0).then(|| one.rate.log2().floor() as i32);
    for same in classes.chunk_by(|a, b| octave(a) == octave(b)) {
        let sum = |of: fn(&ClassBelief) -> u64| memory(same.iter().map(of).sum());
        let rate = octave(&same[0]).map_or_else(|| "not known".to_owned(), rate);
        let (fast, slow) = (sum(|one| one.fast_pages), sum(|one| one.slow_pages));
        writeln!(
            out,
            "  {rate:>14} {fast:>12} {slow:>12} {:>12}",
            time(same[0].value_ns)
        )?;
    }
    Ok(())
}

/// How much memory takes most of the visits: what fast memory it needs.
fn hot_set(out: &mut String, classes: &[ClassBelief]) -> std::fmt::Result {
    let all: f64 = classes.iter().map(|one| one.visits).sum();
    if all <= 0.0 {
        return Ok(());
    }
    let mut hottest: Vec<&ClassBelief> = classes.iter().collect();
    hottest.sort_by(|a, b| each(b).total_cmp(&each(a)));
    let parts = [0.5, 0.9, 0.99].map(|share| {
        let (mut visits, mut pages) = (0.0, 0.0);
        for class in hottest.iter().filter(|class| class.visits > 0.0) {
            let part = ((share * all - visits) / class.visits).clamp(0.0, 1.0);
            visits += part * class.visits;
            pages += part * pages_of(class);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of pages, whole"
        )]
        let text = memory(pages.ceil() as u64);
        format!("{:.0} % to {text}", share * 100.0)
    });
    writeln!(out, "  of its visits {}", parts.join(", "))
}

#[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
fn pages_of(class: &ClassBelief) -> f64 {
    (class.fast_pages + class.slow_pages) as f64
}

/// Visits a second of a base page of it.
fn each(class: &ClassBelief) -> f64 {
    class.visits / pages_of(class).max(1.0)
}

fn rate(octave: i32) -> String {
    match octave {
        0.. => format!("{}/s", 1_u64 << octave.min(63)),
        _ => format!("1 in {} s", 1_u64 << (-octave).min(63)),
    }
}

/// Why it moves or rests.
fn decision(plan: &PlanBelief, passes: u32) -> String {
    if plan.up_pages + plan.down_pages > 0 {
        return format!(
            "moves {} up and {} down: that saves {} more than it costs; {} moves are under way",
            memory(plan.up_pages),
            memory(plan.down_pages),
            time(plan.gain_ns),
            plan.under_way
        );
    }
    match (plan.best_slow_ns, plan.least_fast_ns) {
        _ if passes == 0 => "waits: no pass over its memory is through yet".to_owned(),
        (None, _) => "rests: nothing is on the slow tier".to_owned(),
        (Some(best), _) if best <= 0.0 => format!(
            "rests: no page of the slow tier saves what its move costs (the best lacks {})",
            time(-best)
        ),
        (Some(best), Some(least)) => format!(
            "rests: the best page of the slow tier would gain {}, and the page that made room for it would lose {}",
            time(best),
            time(least)
        ),
        (Some(best), None) => format!(
            "rests: a page would gain {}, and there is no room",
            time(best)
        ),
    }
}

fn page_words(page: &PageBelief, plan: &PlanBelief) -> String {
    let tier = if page.fast { "fast" } else { "slow" };
    let from = page.accessed_from;
    let from = from.map_or_else(String::new, |node| {
        format!(" for node {node}'s processors, which access it")
    });
    let what = format!(
        "the page of {} at {:#x} is {tier}{from}",
        ByteSize(page.bytes).display().iec(),
        page.address
    );
    let Some(rate) = page.rate else {
        return format!("{what}; how often it is visited is not known yet");
    };
    let worth = format!(
        "{what}, visited {rate:.3} times a second: being fast saves {}, a move costs {}",
        time(page.value_ns),
        time(page.move_ns)
    );
    #[expect(clippy::cast_precision_loss, reason = "pages of a page")]
    let base = (page.bytes / PAGE).max(1) as f64;
    let net = (page.value_ns - page.move_ns) / base;
    let why = match (page.moving, page.fast) {
        (true, _) => "it is to be moved".to_owned(),
        (false, true) => "it stays: nothing is worth its place by more than the moves".to_owned(),
        (false, false) if net <= 0.0 => "it stays: it does not save what its move costs".to_owned(),
        (false, false) => match plan.least_fast_ns {
            Some(least) if plan.room_pages == 0 && net <= least => {
                "it stays: what would make room for it is worth more".to_owned()
            }
            _ => "it goes up when its turn comes".to_owned(),
        },
    };
    format!("{worth}; {why}")
}

#[cfg(test)]
mod tests {
    use terrace_policy::belief::AccessedBelief;
    use terrace_policy::belief::LedgerBelief;
    use terrace_policy::belief::ShareBelief;

    use super::*;

    fn belief() -> Belief {
        let class = |rate: f64, fast_pages: u32, slow_pages: u32, value_ns| ClassBelief {
            rate,
            fast_pages: fast_pages.into(),
            slow_pages: slow_pages.into(),
            visits: rate * f64::from(fast_pages + slow_pages),
            value_ns,
        };
        Belief {
            saved_ns: 170.4,
            accesses_a_visit: 3.2,
            move_base_ns: 3_141.0,
            move_huge_ns: 123_456.0,
            pass_s: 2.0,
            passes: 9,
            horizon_s: 600.0,
            surprised_s: None,
            share: None,
            split: None,
            accessed_from: Vec::new(),
            ledger: Some(LedgerBelief {
                earned_ns: 7.2e9,
                spent_ns: 1.1e9,
                may_ns: 6.3e9,
            }),
            classes: vec![
                class(700.0, 256, 0, 5e6),
                class(600.0, 256, 0, 4e6),
                class(0.3, 0, 512, 900.0),
                class(0.0, 0, 1, 0.0),
            ],
            plan: PlanBelief {
                best_slow_ns: Some(-2_200.0),
                least_fast_ns: Some(4e6),
                ..PlanBelief::default()
            },
            page: None,
        }
    }

    fn split(adds: Option<f64>) -> Option<SplitBelief> {
        let (pages, walk_ns) = (8, 21.0);
        Some(SplitBelief {
            pages,
            adds,
            walk_ns,
        })
    }

    fn text(belief: Belief) -> String {
        let (pid, policy) = (7, "adaptive".to_owned());
        let belief = Some(belief);
        Why {
            pid,
            policy,
            belief,
        }
        .to_text()
    }

    #[test]
    fn it_says_what_it_knows_by_octaves() {
        let told = text(belief());
        assert!(
            told.contains("knows 4.0 MiB: 2.0 MiB fast, 2.0 MiB slow"),
            "{told}"
        );
        assert!(
            told.contains("an access saves 170ns on the fast tier, a visit is 3.2 of them")
                && told.contains("3.1µs (4 KiB), 120µs (2 MiB)"),
            "{told}"
        );
        assert!(
            told.contains("512/s") && told.contains("1 in 4 s") && told.contains("not known"),
            "{told}"
        );
        assert!(
            told.contains("moves brought it 7.2s and took 1.1s; the next moves may take 6.3s"),
            "{told}"
        );
        assert!(
            told.contains("of its visits 50 % to 952.0 KiB, 90 % to 1.8 MiB, 99 % to 2.0 MiB"),
            "{told}"
        );
        assert_eq!(told.lines().count(), 1 + 4 + 1 + 3 + 1 + 1, "{told}");
    }

    #[test]
    fn each_decision_has_its_reason() {
        let with = |change: fn(&mut Belief)| {
            let mut belief = belief();
            change(&mut belief);
            text(belief)
        };
        for (change, words) in [
            ((|_| ()) as fn(&mut Belief), "lacks 2.2µs"),
            (|b| b.passes = 0, "no pass over its memory"),
            (
                |b| b.plan.best_slow_ns = None,
                "nothing is on the slow tier",
            ),
            (
                |b| b.plan.best_slow_ns = Some(1e6),
                "would gain 1ms, and the page that made room for it would lose 4ms",
            ),
            (
                |b| (b.plan.up_pages, b.plan.gain_ns) = (256, 2e9),
                "moves 1.0 MiB up and 0 B down: that saves 2s more",
            ),
            (
                |b| b.ledger.as_mut().expect("there").may_ns = -4e8,
                "owes 400ms more than it may: its pages go back",
            ),
            (
                |b| {
                    b.share = Some(ShareBelief {
                        priority: 2,
                        floor_bytes: 1 << 20,
                        ceiling_bytes: Some(1 << 30),
                    });
                },
                "leave it 1.0 MiB of fast memory, 1.0 GiB may be there; what it saves counts 3 times",
            ),
            (|b| b.surprised_s = Some(12.0), "nobody expected 12s ago"),
            (
                |b| b.split = split(Some(0.431)),
                "8 of its huge pages are in parts, where a visit takes 21ns more; that adds 43 % at least",
            ),
            (|b| b.split = split(Some(-0.1)), "would not pay"),
            (|b| b.split = split(None), "not known yet"),
            (
                |b| {
                    let of = |node, pages| AccessedBelief { node, pages };
                    b.accessed_from = vec![of(0, 512), of(1, 1024)];
                },
                "accesses 2.0 MiB by node 0's processors, 4.0 MiB by node 1's processors mostly",
            ),
        ] {
            let told = with(change);
            assert!(told.contains(words), "{words}: {told}");
        }
    }

    #[test]
    fn each_page_has_its_reason() {
        let page = |fast, value_ns, moving| PageBelief {
            address: 0x7f00_0000_1000,
            bytes: 4096,
            fast,
            accessed_from: None,
            rate: Some(0.25),
            value_ns,
            move_ns: 3_000.0,
            moving,
        };
        for (page, words) in [
            (
                page(false, 100.0, false),
                "it does not save what its move costs",
            ),
            (
                page(false, 9_000.0, false),
                "what would make room for it is worth more",
            ),
            (page(false, 9e9, false), "when its turn comes"),
            (page(false, 9e9, true), "it is to be moved"),
            (page(true, 9.0, false), "nothing is worth its place"),
        ] {
            let told = text(Belief {
                page: Some(page),
                ..belief()
            });
            assert!(
                told.contains("page of 4.0 KiB at 0x7f0000001000") && told.contains(words),
                "{words}: {told}"
            );
        }
        let told = text(Belief {
            page: Some(PageBelief {
                accessed_from: Some(1),
                ..page(true, 9.0, false)
            }),
            ..belief()
        });
        let words = "is fast for node 1's processors, which access it, visited";
        assert!(told.contains(words), "{told}");
        let unknown = PageBelief {
            rate: None,
            ..page(false, 0.0, false)
        };
        let told = text(Belief {
            page: Some(unknown),
            ..belief()
        });
        assert!(told.contains("not known yet"), "{told}");
    }

    #[test]
    fn nothing_known_is_said() {
        let why = Why {
            pid: 7,
            policy: "none".to_owned(),
            belief: None,
        };
        assert!(why.to_text().contains("policy none: it says nothing"));
    }
}

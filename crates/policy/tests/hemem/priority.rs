// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with priority (HeMem 5.2.2).

use terrace_core::NodeMemory;

use super::*;

/// That process is put before others.
fn first(pid: Pid) -> Event {
    let share = Share {
        priority: 1,
        ..Share::default()
    };
    Event::Share { pid, share }
}

/// What an inventory finds of a program with priority is put right also where a part of 2 MiB is fast already.
#[test]
fn a_slow_part_of_a_page_of_a_program_with_priority_is_promoted() {
    let huge = Params {
        page_size: PageSize::Huge2M,
        free_reserve: Some(0),
        ..params(0)
    };
    let mut policy = Hemem::new(huge, &tiers(4 * 512));
    mapped(&mut policy, PID, 0, 512);
    let see = |policy: &mut Hemem, n, node| {
        policy.observe(
            Nanos::ZERO,
            &Event::Resident {
                page: page(n),
                node,
            },
        );
    };
    let promotes = |policy: &mut Hemem| {
        let memory = NodeMemory {
            free_bytes: 4 << 21,
            ..NodeMemory::default()
        };
        for node in [FAST, SLOW] {
            policy.observe(Nanos::ZERO, &Event::Memory { node, memory });
        }
        policy.tick(Nanos::from_secs(1));
        let actions = std::iter::from_fn(|| policy.poll_action());
        actions
            .filter(|one| matches!(one, Action::Migrate { .. }))
            .count()
    };
    see(&mut policy, 0, FAST);
    see(&mut policy, 511, SLOW);
    assert_eq!(promotes(&mut policy), 0);
    policy.observe(Nanos::ZERO, &first(PID));
    assert_eq!(promotes(&mut policy), 0, "nothing is known to be slow");
    see(&mut policy, 511, SLOW);
    see(&mut policy, 0, FAST);
    assert_eq!(promotes(&mut policy), 1);
}

fn tell_memory(policy: &mut Hemem, machine: &Machine, now: Nanos) {
    for (node, memory) in [(FAST, machine.memory()), (SLOW, machine.slow_memory())] {
        policy.observe(now, &Event::Memory { node, memory });
    }
}

/// Does as it was told. Why, where pages were to be moved.
fn carry_out(
    policy: &mut Hemem,
    machine: &mut Machine,
    action: Action,
    now: Nanos,
) -> Option<Reason> {
    match action {
        Action::FindSlow { pid } => {
            for page in machine.slow_of(pid) {
                policy.observe(now, &Event::Resident { page, node: SLOW });
            }
            None
        }
        Action::Migrate {
            page,
            migration,
            reason,
            ..
        } => {
            let promote = matches!(migration, Migration::Promote { .. });
            let verdict = machine.finish(page.addr.0 / PAGE, promote, 0);
            let ended = Event::Ended {
                from: None,
                page,
                migration,
                verdict,
                mechanism: Mechanism::MovePages,
                took: Nanos::ZERO,
                inaccessible: Nanos::ZERO,
            };
            policy.observe(now, &ended);
            Some(reason)
        }
        _ => None,
    }
}

/// 5.2.2: a program with priority keeps all its memory in the fast tier, cold or not, large or small;
/// the others share the rest.
#[test]
fn a_program_with_priority_has_its_memory_in_the_fast_tier() {
    let fast = FAST_PAGES - RESERVE - machine::HIGH_PAGES;
    let params = Params {
        inventory_interval: Nanos::from_secs(1),
        ..params(0)
    };
    let (mut policy, mut machine) = told(0..fast, params);
    for n in 0..fast {
        heat(&mut policy, n, FAST, 8, true);
    }
    let other = Pid(2);
    machine.adopt(other, 300..306);
    mapped(&mut policy, other, 300, 8);
    policy.observe(Nanos::ZERO, &first(other));
    let mut reasons = Vec::new();
    for tick in 0..600 {
        // Its last pages come when it has been looked at already.
        if tick == 150 {
            machine.adopt(other, 306..308);
        }
        let now = Nanos::from_secs(1) + Nanos(TICK.0 * tick);
        tell_memory(&mut policy, &machine, now);
        policy.tick(now);
        while let Some(action) = policy.poll_action() {
            reasons.extend(carry_out(&mut policy, &mut machine, action, now));
        }
    }
    let at: Vec<_> = (300..308).map(|n| machine.node(n)).collect();
    assert_eq!(at, [FAST; 8], "{reasons:?}");
    let promoted = reasons.iter().filter(|r| **r == Reason::Priority).count();
    assert_eq!(promoted, 8, "{reasons:?}");
    // Its pages stay, though nobody samples them and others are hot.
    for n in 100..140 {
        heat(&mut policy, n, SLOW, 8, true);
    }
    for tick in 0..100 {
        let now = Nanos::from_secs(10) + Nanos(TICK.0 * tick);
        let orders = step(&mut policy, &mut machine, now);
        assert!(orders.iter().all(|(n, _)| *n < 300));
    }
}

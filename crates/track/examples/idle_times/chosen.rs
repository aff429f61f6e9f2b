// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle times of the same pages where they are armed one by one, a group at a time: again when all of it was used, at a moment of
//! chance. Those of long periods are moved to another node meanwhile, and stay armed.

use std::error::Error;
use std::time::Duration;
use std::time::Instant;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_sys::clock;
use terrace_sys::mempolicy;
use terrace_sys::move_pages;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;
use terrace_track::ChosenFaultTracker;
use terrace_track::TrackEvent;
use terrace_track::Tracker;

use crate::known::PAGES;
use crate::known::PATIENCE;
use crate::known::PERIODS;
use crate::known::Program;

/// Times that each group is armed, at least and at most.
const ROUNDS: usize = 6;
const ROUNDS_MAX: usize = 64;
/// Pages of shorter periods are used before they have moved.
const MOVED: Duration = Duration::from_millis(500);

/// What was told of a group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// From the arming to the access, as the tracker tells it.
    pub(crate) idle: Vec<Nanos>,
    /// The same as the program has it, which on a busy host is later than it was to be.
    pub(crate) waits: Vec<Nanos>,
    /// Accesses that were told of another node than the page was moved to.
    pub(crate) misplaced: usize,
    rounds: usize,
    left: usize,
    due: Instant,
    node: Option<NodeId>,
}

/// Arms the pages until there is enough of each group.
pub(crate) fn measure() -> Result<Vec<Group>, Box<dyn Error>> {
    let mut tracker = ChosenFaultTracker::open()?;
    let mut program = Program::start()?;
    let begin = Instant::now();
    let nodes = mempolicy::allowed_nodes()?;
    let new = Group {
        idle: Vec::new(),
        waits: Vec::new(),
        misplaced: 0,
        rounds: 0,
        left: 0,
        due: begin,
        node: None,
    };
    let mut groups = vec![new; PERIODS.len()];
    let mut random = clock::now().0 | 1;
    while groups.iter().any(|group| group.idle.len() < ROUNDS * PAGES) {
        if begin.elapsed() > PATIENCE {
            return Err(format!("too little in {PATIENCE:?}: {groups:?}").into());
        }
        for (at, group) in groups.iter_mut().enumerate() {
            let due = group.left == 0 && Instant::now() >= group.due;
            if due && group.rounds < ROUNDS_MAX {
                arm(&mut program, &mut tracker, (at, group), &nodes)?;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
        tracker.poll(Duration::ZERO, &mut |event| {
            let TrackEvent::HintFault(fault) = event else {
                return;
            };
            let Some(at) = program.group(fault.addr.0) else {
                return;
            };
            let group = &mut groups[at];
            group.idle.extend(fault.idle());
            group.left -= 1;
            group.misplaced += usize::from(group.node.is_some() && fault.node != group.node);
            if group.left == 0 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let period = u64::try_from(PERIODS[at].as_nanos()).unwrap_or(u64::MAX);
                group.due = Instant::now() + Duration::from_nanos(random % period);
            }
        })?;
    }
    for (group, waits) in groups.iter_mut().zip(program.waits()?) {
        group.waits = waits;
    }
    Ok(groups)
}

fn arm(
    program: &mut Program,
    tracker: &mut ChosenFaultTracker,
    (at, group): (usize, &mut Group),
    nodes: &[NodeId],
) -> Result<(), Box<dyn Error>> {
    let pid = program.pid();
    for number in 0..PAGES {
        let page = PageRef {
            pid,
            addr: Addr(program.page(at, number)),
            size: PageSize::Base4K,
        };
        tracker.order(page, clock::now())?;
        tracker.armed(page, program.arm(at, number)?);
    }
    (group.rounds, group.left) = (group.rounds + 1, PAGES);
    if PERIODS[at] >= MOVED && nodes.len() > 1 {
        let node = nodes[group.rounds % nodes.len()];
        let pages: Vec<u64> = (0..PAGES).map(|page| program.page(at, page)).collect();
        let _ = move_pages::migrate(Target::Process(pid), &pages, node, Sharing::OwnOnly)?;
        group.node = Some(node);
    }
    Ok(())
}

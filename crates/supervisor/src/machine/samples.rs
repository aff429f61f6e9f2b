// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a tracker's samples to the policy's: which node a sampled page is on.
//!
//! The source says it, or the physical address does, by the kernel's memory blocks; what is left is
//! asked of the kernel in one call for each process.

use std::collections::BTreeMap;

use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_policy::Event;
use terrace_sys::memory_blocks::MemoryBlocks;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Target;
use terrace_track::Sample;

/// Samples whose node is not known yet, and the others' events.
#[derive(Debug, Default)]
pub(super) struct Batch {
    events: Vec<Event>,
    open: BTreeMap<Pid, Vec<Sample>>,
}

impl Batch {
    pub(super) fn push(&mut self, sample: &Sample, blocks: &MemoryBlocks) {
        let by_address = || blocks.node_of(sample.phys?);
        match sample.node.or_else(by_address) {
            Some(node) => self.events.push(sampled(sample, node)),
            None => self.open.entry(sample.pid).or_default().push(*sample),
        }
    }

    /// All events. What is not in memory any more is left out.
    pub(super) fn finish(mut self) -> Vec<Event> {
        for (pid, samples) in std::mem::take(&mut self.open) {
            let pages: Vec<u64> = samples.iter().map(|sample| sample.page().addr.0).collect();
            let found = move_pages::query(Target::Process(pid), &pages).unwrap_or_default();
            for (sample, status) in samples.iter().zip(found) {
                if let PageStatus::On(node) = status {
                    self.events.push(sampled(sample, node));
                }
            }
        }
        self.events
    }
}

fn sampled(sample: &Sample, node: NodeId) -> Event {
    Event::Sampled {
        page: sample.page(),
        node,
        write: sample.write,
        accesses: sample.accesses,
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::Addr;
    use terrace_core::Nanos;

    use super::*;

    fn sample(addr: u64, node: Option<NodeId>) -> Sample {
        let pid = Pid(std::process::id());
        Sample {
            pid,
            tid: pid.0,
            cpu: 0,
            addr: Addr(addr),
            phys: None,
            node,
            write: true,
            accesses: 7,
            time: Nanos(1),
        }
    }

    #[test]
    fn the_source_is_believed_and_else_the_kernel_asked() {
        let memory = vec![1_u8; 1 << 16];
        let addr = memory.as_ptr().addr() as u64 + (1 << 15) + 5;
        let mut batch = Batch::default();
        let blocks = MemoryBlocks::default();
        batch.push(&sample(addr, Some(NodeId(77))), &blocks);
        batch.push(&sample(addr, None), &blocks);
        batch.push(&sample(0x1000, None), &blocks);
        let events = batch.finish();
        assert_eq!(events.len(), 2, "{events:?}");
        let page = sample(addr, None).page();
        let told = |event: &Event, node| {
            *event
                == Event::Sampled {
                    page,
                    node,
                    write: true,
                    accesses: 7,
                }
        };
        assert!(told(&events[0], NodeId(77)));
        assert!(!told(&events[1], NodeId(77)), "where it really is");
        assert_eq!(memory[1 << 15], 1);
    }
}

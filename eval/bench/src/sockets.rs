// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processors a thread stays on, where it is bound to a socket.
//!
//! A node that has memory and processors stands for a socket. Threads take turns over them, all programs' together: of
//! programs with one thread each, one after the other is on the next socket, and of one program's threads as well.

use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_sys::affinity;
use terrace_sys::topology::Override;
use terrace_sys::topology::Topology;
use terrace_workload::Program;

use crate::placement::PlacementError;

/// The number of a program's first thread, if its threads are bound: where all are, or where it needs it.
#[must_use]
pub fn bound_from(program: &Program, all: bool, first_thread: u32) -> Option<u32> {
    (all || program.is_bound()).then_some(first_thread)
}

/// The processors of each socket that this process may run on; none where nothing is bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sockets(Vec<(NodeId, Vec<u32>)>);

impl Sockets {
    /// This machine's.
    ///
    /// # Errors
    ///
    /// Where sysfs or the kernel does not tell, or there is no socket.
    pub fn read() -> Result<Self, PlacementError> {
        let topology = Topology::discover(std::path::Path::new("/"), &Override::default())?;
        let own = affinity::of_process(Pid(std::process::id()));
        let own = own.map_err(|source| PlacementError::Bound { source })?;
        let nodes = topology.tiers.nodes();
        let with = nodes.iter().filter(|node| !node.cpus.is_empty());
        let mut all: Vec<_> = with
            .map(|node| {
                let cpus = node.cpus.iter().copied();
                (node.id, cpus.filter(|cpu| own.contains(cpu)).collect())
            })
            .collect();
        all.sort_unstable();
        if all.is_empty() {
            return Err(PlacementError::NoSocket);
        }
        Ok(Self(all))
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Keeps the calling thread on the processors of the socket whose turn it is: after the last comes the first again.
    /// Without a number it stays where it is.
    ///
    /// # Errors
    ///
    /// Where the thread may not run there.
    pub fn stay(&self, socket: Option<usize>) -> Result<(), PlacementError> {
        let Some(socket) = socket else {
            return Ok(());
        };
        let (node, cpus) = &self.0[socket % self.0.len()];
        affinity::stay(cpus).map_err(|source| PlacementError::Bind {
            node: *node,
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of its own: what a test is bound to must not be another's.
    fn apart<T: Send>(act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(act).join()).expect("nothing to panic on")
    }

    #[test]
    fn threads_take_turns_over_the_sockets() {
        let cpus = affinity::of_process(Pid(std::process::id())).expect("this process");
        let (first, last) = (cpus.first().expect("one"), cpus.last().expect("one"));
        let sockets = Sockets(vec![
            (NodeId(0), vec![*first]),
            (NodeId(3), vec![*last, 1_000_000]),
        ]);
        apart(|| {
            for thread in 0..4 {
                sockets.stay(Some(thread)).expect("allowed");
                let wanted = [*first, *last][thread % 2];
                let on = || rustix::thread::sched_getcpu();
                assert_eq!(on(), wanted as usize);
                sockets.stay(None).expect("nothing to do");
                assert_eq!(on(), wanted as usize);
            }
        });
    }

    #[test]
    fn processors_that_are_kept_from_us_are_an_error() {
        let sockets = Sockets(vec![(NodeId(7), Vec::new())]);
        let error = apart(|| sockets.stay(Some(0))).expect_err("no processor");
        assert!(error.to_string().contains("of node 7; give"), "{error}");
    }

    #[test]
    fn this_machine_has_one_at_least() {
        let sockets = Sockets::read().expect("sysfs");
        assert!(sockets.0.iter().any(|(_, cpus)| !cpus.is_empty()));
    }
}

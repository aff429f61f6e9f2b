// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host as a policy shall see it, checked before anything is started or changed.
//!
//! Only [`Host::check`] looks at the machine; the rest decides of what was found there. On a machine with one
//! node, `--fast` gives it a simulated slow tier: for trying out, as nothing can be moved there. Without a
//! second tier only a policy that looks at no accesses runs.

use std::path::Path;

use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_core::Views;
use terrace_policy::Capabilities;
use terrace_policy::Fit;
use terrace_policy::Misfit;
use terrace_policy::Mover;
use terrace_policy::Offer;
use terrace_policy::PolicyError;
use terrace_policy::Preset;
use terrace_policy::TrackerKind;
use terrace_policy::fit::fit;
use terrace_sys::cgroup;
use terrace_sys::probe;
use terrace_sys::probe::Fact;
use terrace_sys::probe::NoSuchFact;
use terrace_sys::probe::Verdict;
use terrace_sys::topology::Topology;
use thiserror::Error;

use crate::machine::runs_on::cpu_nodes;
use crate::options::COPY_THREADS_MAX;
use crate::options::Options;
use crate::options::Target;

/// What Linux has for policies, on one socket.
pub const LINUX: Offer = Offer {
    always: Capabilities::MAPPINGS.union(Capabilities::LATENCIES),
    trackers: &TrackerKind::ALL,
    movers: &[Mover::MovePages, Mover::Agent],
    sockets: false,
};

/// Why a run cannot be as it was asked for, on this host.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HostError {
    /// `--fast` is more than there is, or nothing.
    #[error("--fast {}: the fast tier can have from 1 byte to {}", iec(*.given), iec(*.most))]
    Fast {
        /// Bytes asked for.
        given: u64,
        /// Bytes that can be had.
        most: u64,
    },
    /// There is one node.
    #[error(
        "this machine has one memory node: nothing to tier; --fast SIZE splits it in name, for trying out, \
         and --policy none runs the program as it is"
    )]
    OneNode,
    /// There are several, which nothing tells apart.
    #[error(
        "the kernel sees all memory nodes in one tier (no HMAT or CDAT): hint faults find nothing there; \
         see terrace tiers and terrace doctor"
    )]
    OneTier,
    /// Something is said of the agent's copies, and there is no agent.
    #[error(
        "{option} says how the agent copies pages, and with --policy {policy} --mover {mover} there is none; \
         add --mover agent"
    )]
    NoAgent {
        /// What was given.
        option: &'static str,
        /// The preset.
        policy: &'static str,
        /// Who moves pages.
        mover: &'static str,
    },
    /// The policy wants more of the agent than it has.
    #[error(
        "copy_threads={given}: the agent copies a page by 1 to {COPY_THREADS_MAX} threads; give so many, more can be \
         simulated (terrace sim)"
    )]
    CopyThreads {
        /// Threads that were asked for.
        given: u32,
    },
    /// Policy, trackers and mover do not go together.
    #[error(transparent)]
    Misfit(#[from] Misfit),
}

fn iec(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

/// What a run has to do with.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its tiers, as the policy sees them.
    pub tiers: Tiers,
    /// Its memory as each node of processors sees it.
    pub views: Views,
    /// What goes with the policy.
    pub fit: Fit,
    /// Why something does not work as asked.
    pub limits: Vec<String>,
    /// The slow tier is simulated: nothing can be moved, so nothing is watched.
    pub simulated_tier: bool,
}

impl Host {
    /// Looks at this machine, and makes the policy once: what is wrong is learnt before anything is changed. What
    /// will not work as asked is told.
    ///
    /// # Errors
    ///
    /// Where the run cannot be: [`HostError`], [`PolicyError`].
    pub fn check(options: &Options) -> anyhow::Result<Self> {
        let topology = Topology::discover(Path::new("/"), &options.nodes)?;
        let preset = terrace_policy::on_linux(&options.policy)?;
        let mut host = Self::of(options, preset, topology.tiers.clone())?;
        if !host.simulated_tier {
            host.views = topology.views();
        }
        host.leave_out_what_is_not_here()?;
        host.make_once(options)?;
        host.limits.extend(unseen_tiers(&topology, preset.needs));
        host.limits.extend(held_up(Path::new("/"), &options.target));
        for line in &host.limits {
            (options.tell)(line);
        }
        Ok(host)
    }

    /// Takes what this kernel has not from what the policy is given.
    fn leave_out_what_is_not_here(&mut self) -> Result<(), NoSuchFact> {
        let chosen = Capabilities::CHOSEN_FAULTS;
        if self.fit.takes.contains(chosen)
            && probe::ask(Fact::UffdReadProtect)?.verdict != Verdict::Yes
        {
            self.fit.takes = self.fit.takes.difference(chosen);
        }
        Ok(())
    }

    /// Makes the policy, to learn whether its parameters are right, and what they ask for that is not here.
    fn make_once(&mut self, options: &Options) -> anyhow::Result<()> {
        let mut settings = options.settings.clone();
        let policy =
            terrace_policy::with_settings(&options.policy, &self.for_policy(), &mut settings)?;
        settings.finish().map_err(PolicyError::from)?;
        let wanted = policy.machine_options();
        options.terms(wanted)?;
        let exchanges = self.fit.takes.contains(Capabilities::EXCHANGE);
        if wanted.exchanges && !exchanges {
            self.limits.push(format!(
                "policy '{}' is to exchange pages by its parameters, which --mover {} cannot: one goes after the other, \
                 and where no node has free memory neither goes; add --mover agent",
                policy.name(),
                self.fit.mover.name()
            ));
        }
        Ok(())
    }

    /// What a policy is made for.
    #[must_use]
    pub fn for_policy(&self) -> terrace_policy::Host {
        terrace_policy::Host {
            views: self.views.clone(),
            given: self.fit.takes,
            ..terrace_policy::Host::new(self.tiers.clone())
        }
    }

    fn of(options: &Options, preset: &Preset, tiers: Tiers) -> Result<Self, HostError> {
        let top: u64 = tiers.top().map(|n| n.capacity_bytes).sum();
        let all: u64 = tiers.nodes().iter().map(|n| n.capacity_bytes).sum();
        let most = if tiers.count() > 1 { top } else { all };
        if let Some(given) = options.fast_bytes
            && !(1..=most).contains(&given)
        {
            return Err(HostError::Fast { given, most });
        }
        let offer = Offer {
            sockets: cpu_nodes(&tiers).count() > 1,
            ..LINUX
        };
        let fit = fit(preset, &options.trackers, options.mover, &offer)?;
        if let Some(option) = options.agent_option.filter(|_| !fit.agent()) {
            return Err(HostError::NoAgent {
                option,
                policy: preset.name,
                mover: options.mover.name(),
            });
        }
        if tiers.count() > 1 || preset.needs.is_empty() {
            return Ok(Self {
                views: Views::of_tiers(&tiers),
                tiers,
                fit,
                limits: Vec::new(),
                simulated_tier: false,
            });
        }
        let fast = match (tiers.nodes().len(), options.fast_bytes) {
            (0..=1, Some(fast)) => fast,
            (0..=1, None) => return Err(HostError::OneNode),
            _ => return Err(HostError::OneTier),
        };
        let line = format!(
            "this machine has one memory node: splitting it in name into {} fast and {} slow; \
             nothing can be moved between them, so the program runs as it would without",
            iec(fast),
            iec(all - fast)
        );
        let tiers = split(&tiers, fast);
        Ok(Self {
            views: Views::of_tiers(&tiers),
            tiers,
            fit,
            limits: vec![line],
            simulated_tier: true,
        })
    }
}

/// What a program may wait for that is not held up itself when its supervisor is.
fn held_up(root: &Path, target: &Target) -> Option<String> {
    let Target::Running(pid) = target else {
        return None;
    };
    let most = cgroup::processors(root).filter(|_| !cgroup::has_same(root, *pid))?;
    Some(format!(
        "Terrace may have {most} processors at most (cpu.max of its cgroup), and process {pid} is of another: while Terrace is held up \
         for that, the program waits for pages that are on their way; attach from where there is no such limit"
    ))
}

/// What a policy that decides by hint faults gets where the kernel sees one tier and we see more.
fn unseen_tiers(topology: &Topology, needs: Capabilities) -> Option<String> {
    let unseen = topology.tiers.count() > 1 && topology.kernel_tiers == Some(1);
    (unseen && needs.contains(Capabilities::HINT_FAULTS)).then(|| {
        format!(
            "the kernel has all memory nodes in one tier (no HMAT or CDAT), so it marks no slow page: expect no hint \
             faults and no promotion; with a PMU, a policy that decides by samples needs none ({})",
            Preset::names_of(Preset::samples)
        )
    })
}

/// One real node as two in name.
fn split(tiers: &Tiers, fast: u64) -> Tiers {
    let Some(node) = tiers.nodes().first() else {
        return tiers.clone();
    };
    let slow = NodeInfo {
        id: NodeId(node.id.0 + 1),
        tier: TierId(node.tier.0 + 1),
        capacity_bytes: node.capacity_bytes - fast,
        cpus: Vec::new(),
        ..node.clone()
    };
    Tiers::new(vec![
        NodeInfo {
            capacity_bytes: fast,
            ..node.clone()
        },
        slow,
    ])
}

#[cfg(test)]
mod tests;

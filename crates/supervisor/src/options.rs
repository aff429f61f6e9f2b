// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run was asked to do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use terrace_core::Pid;
use terrace_mover::agent::Terms;
use terrace_policy::DEFAULT;
use terrace_policy::MachineOptions;
use terrace_policy::Mover;
use terrace_policy::Settings;
use terrace_policy::TrackerKind;
pub use terrace_proto::Commit;
use terrace_sys::topology::Override;
use terrace_track::PmuConfig;

use crate::host::HostError;

/// What is managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A program to start, with its arguments.
    Program(Vec<OsString>),
    /// A program that runs already. It has no agent.
    Running(Pid),
    /// Whoever joins the group of that name.
    Group(String),
}

/// Threads that copy one huge page together, at most.
pub const COPY_THREADS_MAX: u8 = 8;

/// The kernel's own size of a scan (`scan_size_mb`).
pub const SCAN_BYTES: u64 = 256 << 20;

/// One run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is managed.
    pub target: Target,
    /// Preset name.
    pub policy: String,
    /// The preset's parameters.
    pub settings: Settings,
    /// Where accesses are learnt from: all of these together; `auto` adds what the policy needs beside them.
    pub trackers: Vec<TrackerKind>,
    /// One sample in so many accesses; the tracker's own if not given.
    pub sample_period: Option<u64>,
    /// What sampling with the processor's PMU may take, and its events. Its period counts only where
    /// `sample_period` is not given.
    pub pmu: PmuConfig,
    /// Bytes that the kernel's scanner looks at in one step, whole MiB; it spreads the steps over the pass.
    pub scan_bytes: u64,
    /// What the operator says of tiers and ways to memory.
    pub nodes: Override,
    /// At most so many bytes of the fast tier; all of it if not given.
    pub fast_bytes: Option<u64>,
    /// Who moves pages.
    pub mover: Mover,
    /// Manage the program's children too.
    pub follow: bool,
    /// Start without acting, until `terrace resume`.
    pub paused: bool,
    /// Copy workers in the agent.
    pub copy_workers: u32,
    /// Pages a transaction batch may hold.
    pub batch_pages: u32,
    /// An option that was given and that only the agent heeds.
    pub agent_option: Option<&'static str>,
    /// When the agent copies pages, and what writers do meanwhile.
    pub commit: Commit,
    /// Threads that copy one huge page together; as the policy has it if not given.
    pub copy_threads: Option<u8>,
    /// Copy huge pages past the caches, while they are out of reach; as the policy has it if not given.
    pub streaming: Option<bool>,
    /// Where the agent is; beside the running program if not given.
    pub agent_path: Option<PathBuf>,
    /// Takes a line for the operator when something does not work as asked.
    pub tell: fn(&str),
}

impl Options {
    /// With the defaults, for that target.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            policy: DEFAULT.name.to_owned(),
            settings: Settings::new(DEFAULT.name, BTreeMap::new()),
            trackers: vec![TrackerKind::Auto],
            sample_period: None,
            pmu: PmuConfig::default(),
            scan_bytes: SCAN_BYTES,
            nodes: Override::default(),
            fast_bytes: None,
            mover: Mover::MovePages,
            follow: true,
            paused: false,
            copy_workers: 1,
            batch_pages: 32,
            agent_option: None,
            commit: Commit::Copy,
            copy_threads: None,
            streaming: None,
            agent_path: None,
            tell: |_| {},
        }
    }

    /// What agents are told about their work: what was given, else what the policy wants of its copies.
    ///
    /// # Errors
    ///
    /// [`HostError::CopyThreads`].
    pub fn terms(&self, wanted: MachineOptions) -> Result<Terms, HostError> {
        let waits = self.commit == Commit::Wait;
        let copy_threads = match (self.copy_threads, wanted.copy_threads) {
            (Some(given), _) => given,
            (None, Some(given)) => u8::try_from(given)
                .ok()
                .filter(|threads| *threads <= COPY_THREADS_MAX)
                .ok_or(HostError::CopyThreads { given })?,
            (None, None) if waits => 4,
            (None, None) => 1,
        };
        Ok(Terms {
            copy_workers: self.copy_workers,
            batch_pages: self.batch_pages,
            commit: self.commit,
            copy_threads,
            streaming: self.streaming.unwrap_or(waits && wanted.copies_wait),
        })
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::Tiers;
    use terrace_policy::Host;
    use terrace_policy::Preset;

    use super::*;

    /// The terms of `terrace run --policy … --commit wait --param …`.
    fn terms(options: &Options, param: &[&str]) -> Result<Terms, HostError> {
        let params: Vec<String> = param.iter().map(|param| (*param).to_owned()).collect();
        let mut settings = Settings::parse(&options.policy, &params).expect("well-formed");
        let host = Host::new(Tiers::new(Vec::new()));
        let preset = Preset::of(&options.policy).expect("a preset");
        let policy = (preset.build)(&mut settings, &host).expect("as it can be");
        options.terms(policy.machine_options())
    }

    fn options(policy: &str, commit: Commit) -> Options {
        Options {
            policy: policy.to_owned(),
            commit,
            ..Options::new(Target::Running(Pid(1)))
        }
    }

    #[test]
    fn pages_are_copied_as_the_policy_wants_it() {
        let copies = |policy, commit, param: &[&str]| {
            let terms = terms(&options(policy, commit), param).expect("can be");
            (terms.streaming, terms.copy_threads)
        };
        // Beside the program (MTM 7.2); reads go on (HeMem 3.2).
        assert_eq!(copies("mtm", Commit::Wait, &[]), (false, 4));
        assert_eq!(copies("hemem", Commit::Wait, &[]), (false, 4));
        let sync = &["migration=sync", "copy_threads=7"];
        assert_eq!(copies("mtm", Commit::Wait, sync), (true, 7));
        // A transaction is synchronous for nobody.
        assert_eq!(copies("mtm", Commit::Transaction, sync), (false, 7));
        // Who says nothing of it.
        assert_eq!(copies("none", Commit::Wait, &[]), (false, 4));
        assert_eq!(copies("none", Commit::Copy, &[]), (false, 1));
    }

    #[test]
    fn what_the_user_gives_comes_before_the_policy() {
        let mut options = options("mtm", Commit::Wait);
        options.copy_threads = Some(2);
        options.streaming = Some(true);
        let given = terms(&options, &["copy_threads=16"]).expect("can be");
        assert_eq!((given.streaming, given.copy_threads), (true, 2));
        options.streaming = Some(false);
        let given = terms(&options, &["migration=sync"]).expect("can be");
        assert!(!given.streaming);
    }

    #[test]
    fn more_threads_than_the_agent_has_are_refused() {
        let of = |policy, threads: u32| {
            let options = options(policy, Commit::Wait);
            terms(&options, &[&format!("copy_threads={threads}")])
        };
        for given in [9, 64] {
            let error = of("mtm", given).err();
            assert_eq!(error, Some(HostError::CopyThreads { given }));
        }
        assert!(of("hemem", 8).is_ok());
    }
}

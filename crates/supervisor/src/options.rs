// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run was asked to do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use terrace_core::Pid;
use terrace_policy::DEFAULT;
use terrace_policy::Mover;
use terrace_policy::Settings;
use terrace_policy::TrackerKind;
pub use terrace_proto::Commit;
use terrace_track::PmuConfig;

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
    /// Threads that copy one huge page together.
    pub copy_threads: u8,
    /// Copy huge pages past the caches.
    pub streaming: bool,
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
            fast_bytes: None,
            mover: Mover::MovePages,
            follow: true,
            paused: false,
            copy_workers: 1,
            batch_pages: 32,
            agent_option: None,
            commit: Commit::Copy,
            copy_threads: 1,
            streaming: false,
            agent_path: None,
            tell: |_| {},
        }
    }
}

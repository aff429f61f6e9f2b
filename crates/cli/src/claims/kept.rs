// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finished runs, kept in files: claims that were interrupted go on from there, and claims of a part
//! are not run again for the whole.
//!
//! A file is taken only if it was written by this very simulator ([`simulator`]) for this very set-up,
//! machine file and costs included: a simulator that was changed has other results.

use std::collections::BTreeMap;
use std::fs;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use terrace_sim::Setup;
use terrace_sys::replace::replace;

use super::work::Figures;
use crate::parallel::simulator;

/// Where runs are kept.
pub(crate) struct Kept {
    directory: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct File {
    setup: String,
    /// By name; those that are no number are left out.
    figures: BTreeMap<String, f64>,
}

impl Kept {
    pub(crate) const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// All that a result depends on. `Debug` shows every field of a set-up.
    fn text(setup: &Setup) -> String {
        format!("{} {setup:?}", simulator(&setup.system))
    }

    fn path(&self, text: &str) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        self.directory
            .join(format!("{:016x}.json", hasher.finish()))
    }

    /// A run's figures, if it was made already.
    pub(crate) fn find(&self, setup: &Setup) -> Option<Figures> {
        let text = Self::text(setup);
        let file = fs::read_to_string(self.path(&text)).ok()?;
        let file: File = serde_json::from_str(&file).ok()?;
        (file.setup == text).then_some(file.figures)
    }

    /// Keeps a run's figures. A reader never sees half a file.
    pub(crate) fn keep(&self, setup: &Setup, figures: &Figures) -> anyhow::Result<()> {
        let text = Self::text(setup);
        let path = self.path(&text);
        let finite = figures.iter().filter(|(_, figure)| figure.is_finite());
        let file = File {
            figures: finite
                .map(|(name, figure)| (name.clone(), *figure))
                .collect(),
            setup: text,
        };
        replace(&path, serde_json::to_string(&file)?.as_bytes())
            .with_context(|| format!("Cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_workload::Sizes;
    use terrace_workload::Workload;

    #[test]
    fn a_run_is_found_again_for_the_same_set_up_only() {
        let text = include_str!("../../../../machines/cxl-2tier.toml");
        let machine =
            terrace_machine_spec::Machine::parse(text, std::path::Path::new("cxl")).unwrap();
        let workload = Workload::named("gups", &Sizes::fast_free(1 << 24)).unwrap();
        let mut setup = Setup::new(machine, workload);
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path().join("new"));
        assert!(kept.find(&setup).is_none());
        let figures = Figures::from([("a".to_owned(), 0.1), ("b".to_owned(), f64::NAN)]);
        kept.keep(&setup, &figures).unwrap();
        let found = kept.find(&setup).unwrap();
        assert_eq!(found, Figures::from([("a".to_owned(), 0.1)]));
        setup.costs.hint_fault_ns += 1.0;
        assert!(kept.find(&setup).is_none());
    }
}

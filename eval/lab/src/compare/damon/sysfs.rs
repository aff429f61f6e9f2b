// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of the threads that place memory, and what a kernel lacks of them.

use std::io;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;

use super::scheme::Setting;
use super::scheme::Way;
use crate::kdamond;

/// The kernel cannot do what the system is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the guest's kernel lacks {0}")]
pub(in super::super) struct Refused(&'static str);

/// Writes all of it; what is not there or not taken is lacking.
pub(super) fn apply(root: &Path, settings: &[Setting]) -> anyhow::Result<()> {
    for setting in settings {
        let path = root.join(&setting.path);
        match kdamond::put(&path, &setting.value) {
            Err(error) if lacking(&error) => return Err(Refused(setting.lacks).into()),
            result => result
                .with_context(|| format!("Cannot write {} to {}", setting.value, path.display()))?,
        }
    }
    Ok(())
}

fn lacking(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
    )
}

pub(super) fn thread_directory(way: Way) -> PathBuf {
    Path::new(kdamond::ADMIN).join(way.thread().to_string())
}

pub(super) fn state(way: Way, value: &str) -> anyhow::Result<()> {
    kdamond::write(thread_directory(way).join("state"), value)
}

pub(super) fn stat(way: Way, name: &str) -> anyhow::Result<u64> {
    let stats = thread_directory(way).join("contexts/0/schemes/0/stats");
    kdamond::number(&stats.join(name))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use terrace_core::NodeId;
    use terrace_sys::zones::Zone;

    use super::super::Mode;
    use super::super::scheme;
    use super::super::scheme::Tiers;
    use super::*;

    fn settings(mode: Mode) -> Vec<Setting> {
        let zones = [0, 1].map(|node| Zone {
            node: NodeId(node),
            first: 1 << 20,
            count: 1 << 10,
        });
        scheme::settings(mode, Tiers { fast: 0, slow: 1 }, &zones)
    }

    /// A directory that has the files of a mode, without some.
    fn kernel(mode: Mode, without: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let all = settings(mode).into_iter();
        for setting in all.filter(|setting| without.is_empty() || !setting.path.contains(without)) {
            let path = root.path().join(setting.path);
            fs::create_dir_all(path.parent().expect("one")).expect("a directory");
            fs::write(path, "").expect("a file");
        }
        root
    }

    #[test]
    fn what_a_kernel_lacks_is_told_by_its_name() {
        let refused = |without| {
            let root = kernel(Mode::Auto, without);
            let error = apply(root.path(), &settings(Mode::Auto)).expect_err("refused");
            assert!(error.is::<Refused>(), "{error}");
            error.to_string()
        };
        for (without, lacks) in [
            ("goals/0/nid", "goals of a node's memory"),
            ("intervals_goal", "tuning of DAMON's intervals"),
            ("target_nid", "migrate_hot"),
            ("nr_kdamonds", "DAMON's sysfs interface"),
        ] {
            let why = refused(without);
            assert!(
                why.starts_with("the guest's kernel lacks ") && why.contains(lacks),
                "{why}"
            );
        }
    }

    #[test]
    fn a_kernel_that_has_all_of_it_is_told_all_of_it() {
        let root = kernel(Mode::Auto, "");
        apply(root.path(), &settings(Mode::Auto)).expect("taken");
        let last = root.path().join("1/contexts/0/schemes/0/action");
        assert_eq!(fs::read_to_string(last).expect("written"), "migrate_hot");
    }

    #[test]
    fn only_what_is_unknown_is_a_refusal() {
        let lacks = |kind| lacking(&io::Error::from(kind));
        assert!(lacks(io::ErrorKind::NotFound) && lacks(io::ErrorKind::InvalidInput));
        assert!(!lacks(io::ErrorKind::PermissionDenied));
    }
}

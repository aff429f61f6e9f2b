// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the claim files, reads them with the machines they name, and prepares their runs.
//!
//! Machine files are named relative to the folder that holds the claims' folder. The set-up of every
//! run is made here, also of those that cannot be run yet, so that a file is whole on the day that
//! its preset exists.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use terrace_claims::Claim;
use terrace_claims::Paper;
use terrace_claims::Run;
use terrace_claims::figure;
use terrace_claims::plan;
use terrace_claims::plan::Filed;
use terrace_claims::plan::Known;
use terrace_experiment::Job;
use terrace_machine_spec::Machine;

use super::of_none;
use crate::args::ClaimsArgs;

/// A claim from a file.
pub(crate) struct Loaded {
    pub(crate) claim: Claim,
    /// What is missing for it to be run.
    pub(crate) missing: Vec<String>,
    /// Its runs with `none` in place of the paper's system.
    pub(crate) of_none: Vec<Run>,
}

impl Loaded {
    /// All runs that it needs.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.claim.all_runs().chain(&self.of_none)
    }
}

/// The claims, and the runs that they need.
pub(crate) struct Folder {
    pub(crate) claims: Vec<Loaded>,
    /// By [`terrace_claims::RunSpec::key`].
    pub(crate) runs: BTreeMap<String, Job>,
}

/// Reads everything; the error is one line for the user.
pub(crate) fn load(args: &ClaimsArgs) -> Result<Folder, String> {
    let root = &args.directory;
    let paper = paper(args)?;
    let mut paths = Vec::new();
    find(root, &mut paths)?;
    paths.sort();
    let metrics = figure::names();
    let known = Known {
        systems: &terrace_sim::systems(),
        metrics: &metrics,
    };
    let mut machines = Machines::beside(root);
    let mut folder = Folder {
        claims: Vec::new(),
        runs: BTreeMap::new(),
    };
    for path in paths {
        for claim in read(root, &path)? {
            let filed = Filed {
                claim: &claim,
                path: &path,
            };
            let missing = plan::missing(&filed, known).map_err(|error| error.to_string())?;
            let wanted = paper.is_none_or(|paper| claim.paper == paper)
                && args
                    .only
                    .as_ref()
                    .is_none_or(|part| claim.id.contains(part));
            let of_none = of_none::runs(&claim);
            let runs = runs(&filed, &of_none, &mut machines, missing.is_empty())?;
            if !wanted {
                continue;
            }
            if missing.is_empty() {
                folder.runs.extend(runs);
            }
            folder.claims.push(Loaded {
                claim,
                missing,
                of_none,
            });
        }
    }
    if folder.claims.is_empty() {
        return Err(format!("No claim in {} is meant", root.display()));
    }
    Ok(folder)
}

/// The runs of a claim, checked as far as they can be before anything is run, whichever claims are meant.
fn runs(
    filed: &Filed<'_>,
    of_none: &[Run],
    machines: &mut Machines,
    can_run: bool,
) -> Result<Vec<(String, Job)>, String> {
    let claim = filed.claim;
    let runs = claim.all_runs().chain(of_none).map(|run| {
        let place = format!("{}:{}: run '{}'", filed.path.display(), run.line, run.name);
        let refuse = |what: String| format!("{place}: {what}");
        let machine = machines.get(&run.spec.machine).map_err(&refuse)?;
        let setup = run
            .spec
            .setup(machine)
            .map_err(|error| refuse(error.to_string()))?;
        if let Some(what) = plan::stranger(claim, &run.name, &setup.workload) {
            return Err(refuse(what));
        }
        if can_run {
            terrace_sim::check(&setup).map_err(|error| refuse(error.to_string()))?;
        }
        Ok((run.spec.key(), Job { place, setup }))
    });
    runs.collect()
}

fn paper(args: &ClaimsArgs) -> Result<Option<Paper>, String> {
    let Some(key) = &args.paper else {
        return Ok(None);
    };
    let keys = Paper::ALL.map(Paper::key).join(", ");
    match Paper::by_key(key) {
        Some(paper) => Ok(Some(paper)),
        None => Err(format!("No paper '{key}'; there are {keys}")),
    }
}

fn find(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("Cannot read {}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.is_dir() {
            find(&path, paths)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            paths.push(path);
        }
    }
    Ok(())
}

fn read(root: &Path, path: &Path) -> Result<Vec<Claim>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("Cannot read {}: {error}", path.display()))?;
    let inside = path.strip_prefix(root).unwrap_or(path).with_extension("");
    let id = inside.to_string_lossy();
    Claim::parse(&text, &id, path).map_err(|error| error.to_string())
}

/// Machine files, each read once.
struct Machines {
    below: PathBuf,
    read: BTreeMap<String, Machine>,
}

impl Machines {
    fn beside(root: &Path) -> Self {
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        Self {
            below: root.parent().map(Path::to_owned).unwrap_or(root),
            read: BTreeMap::new(),
        }
    }

    fn get(&mut self, name: &str) -> Result<Machine, String> {
        if let Some(machine) = self.read.get(name) {
            return Ok(machine.clone());
        }
        let machine = Machine::load(&self.below.join(name)).map_err(|error| {
            let cause = std::error::Error::source(&error);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        })?;
        self.read.insert(name.to_owned(), machine.clone());
        Ok(machine)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a result was made with, written beside it: enough to make it again, and to see why another differs.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use terrace_policy::Preset;
use terrace_sim::Costs;
use terrace_sim::Setup;

use crate::kept::hash_of;
use crate::kept::simulator;

/// Changes when a field gets another meaning or goes.
pub const SCHEMA: u32 = 1;

/// See the module. Every field is in the JSON; what a kind of run does not have is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInfo {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program's version.
    pub version: String,
    /// A hash of the sources that the result depends on: equal revisions and set-ups have equal simulations.
    pub revision: String,
    /// The machine's name; none of a run on this host, and no file.
    pub machine: Option<String>,
    /// The machine file as it was named.
    pub machine_file: Option<String>,
    /// A hash of what the file says.
    pub machine_hash: Option<String>,
    /// Of everything random; none where nothing is.
    pub seed: Option<u64>,
    /// Seconds simulated or measured; none where a command ran until its end.
    pub seconds: Option<f64>,
    /// The command line behind the program's name.
    pub options: Vec<String>,
    /// The emulator and its version, of a run in the emulated machine.
    pub emulator: Option<String>,
    /// The kernel that ran it: the guest's, or this host's.
    pub kernel: Option<String>,
    /// Costs of a simulation, ns.
    pub costs: Option<Costs>,
    /// Parameters of the preset as it ran, those that have their defaults too.
    pub parameters: BTreeMap<String, Value>,
}

impl RunInfo {
    /// Of a simulation by this program with this command line.
    #[must_use]
    pub fn of_simulation(setup: &Setup, machine_file: &Path) -> Self {
        Self {
            revision: simulator(&setup.system),
            seed: Some(setup.seed),
            seconds: Some(setup.seconds),
            costs: Some(setup.costs.clone()),
            parameters: parameters(&setup.system, given(setup)),
            ..Self::here().on((&setup.machine.name, &setup.machine), machine_file)
        }
    }

    /// Of a run in the emulated machine by this program with this command line.
    #[must_use]
    pub fn of_machine(
        machine: (&str, &impl Debug),
        machine_file: &Path,
        (emulator, kernel): (String, String),
    ) -> Self {
        Self {
            emulator: Some(emulator),
            kernel: Some(kernel),
            ..Self::here().on(machine, machine_file)
        }
    }

    /// Of a run on this host by this program with this command line.
    #[must_use]
    pub fn of_host() -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        Self {
            kernel: release.ok().map(|release| release.trim().to_owned()),
            ..Self::here()
        }
    }

    /// The same, of a system that ran with these parameters and else its defaults.
    #[must_use]
    pub fn with_parameters(self, system: &str, given: BTreeMap<String, Value>) -> Self {
        Self {
            parameters: parameters(system, given),
            ..self
        }
    }

    fn on(self, (name, machine): (&str, &impl Debug), machine_file: &Path) -> Self {
        Self {
            machine: Some(name.to_owned()),
            machine_file: Some(machine_file.display().to_string()),
            machine_hash: Some(hash_of(machine)),
            ..self
        }
    }

    fn here() -> Self {
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: env!("TERRACE_BUILD").to_owned(),
            machine: None,
            machine_file: None,
            machine_hash: None,
            seed: None,
            seconds: None,
            options: std::env::args().skip(1).collect(),
            emulator: None,
            kernel: None,
            costs: None,
            parameters: BTreeMap::new(),
        }
    }
}

fn given(setup: &Setup) -> BTreeMap<String, Value> {
    let given = setup.params.iter().map(|(name, value)| {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        (name.clone(), value)
    });
    given.collect()
}

/// A baseline has none but those given.
fn parameters(system: &str, given: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let listed = Preset::of(system).map(Preset::parameters);
    let listed = listed.into_iter().flatten();
    let listed = listed.map(|listed| listed.parameter);
    let defaults = listed.map(|one| (one.name.to_owned(), one.default.into()));
    defaults.chain(given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_machine_spec::Machine;
    use terrace_workload::Sizes;
    use terrace_workload::Workload;

    const FILE: &str = "../../machines/cxl-2tier.toml";

    #[test]
    fn a_simulation_says_all_that_it_was_made_with() {
        let machine = Machine::load(FILE.as_ref()).unwrap();
        let workload = Workload::named("gups", &Sizes::paper()).unwrap();
        let mut setup = Setup::new(machine, workload);
        setup.system = "chrono".to_owned();
        setup.params.insert("rounds".to_owned(), 1.into());
        let info = RunInfo::of_simulation(&setup, FILE.as_ref());
        let json = serde_json::to_value(&info).unwrap();
        for (field, value) in json.as_object().unwrap() {
            let none = ["emulator", "kernel"].contains(&field.as_str());
            assert_eq!(value.is_null(), none, "{field}");
        }
        assert_eq!(json["parameters"]["rounds"], 1, "as given");
        assert!(!json["parameters"]["scan_period"].is_null(), "the default");
        assert_eq!(serde_json::from_value::<RunInfo>(json).unwrap(), info);
        // What differs shows.
        let hash = info.machine_hash;
        setup.machine.nodes[0].bytes += 1;
        setup.system = "nomad".to_owned();
        let other = RunInfo::of_simulation(&setup, FILE.as_ref());
        assert_ne!(hash, other.machine_hash);
        assert_ne!(info.revision, other.revision, "a preset's own sources");
    }

    #[test]
    fn a_run_on_this_host_has_no_machine_file() {
        let info = RunInfo::of_host();
        assert!(info.machine.is_none() && info.machine_file.is_none() && info.emulator.is_none());
        assert!(info.kernel.is_some_and(|kernel| !kernel.contains('\n')));
    }

    #[test]
    fn a_run_in_the_machine_says_what_emulated_it() {
        let machine = ("cxl-2tier", &0);
        let made_by = ("QEMU 1".to_owned(), "6.12".to_owned());
        let info = RunInfo::of_machine(machine, FILE.as_ref(), made_by);
        assert_eq!(info.emulator.as_deref(), Some("QEMU 1"));
        assert_eq!(info.kernel.as_deref(), Some("6.12"));
        assert!(info.costs.is_none() && info.machine_file.as_deref() == Some(FILE));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finished runs, kept in files: who was interrupted goes on from there, and what is wanted again is not
//! run again.
//!
//! A file is taken only if all that its result depends on is the same ([`Key`]): of a simulation this very simulator
//! and set-up, machine and costs included; of a run in the emulated machine this very build and its settings.
//! What was changed has other results. A file that is there is whole.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use terrace_sim::Setup;
use terrace_sys::atomic_write::replace;

/// Where runs are kept.
#[derive(Debug, Clone)]
pub struct Kept {
    directory: PathBuf,
}

/// What a run's result depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// For people, who look at the files.
    name: String,
    /// All of it.
    text: String,
}

impl Key {
    /// Of a simulation. `Debug` shows every field of a set-up.
    #[must_use]
    pub fn of_simulation(setup: &Setup) -> Self {
        Self {
            name: format!(
                "{}-{}-{}",
                setup.machine.name, setup.workload.name, setup.system
            ),
            text: format!("{} {setup:?}", simulator(&setup.system)),
        }
    }

    /// Of a run of this build in the emulated machine; settings show every field by `Debug`.
    pub fn of_machine(name: String, settings: &impl Debug) -> Self {
        Self {
            name,
            text: format!("{} {settings:?}", env!("TERRACE_BUILD")),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct File<T> {
    key: String,
    made: T,
}

impl Kept {
    /// In that directory, which is made when it is needed.
    #[must_use]
    pub const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn path(&self, key: &Key) -> PathBuf {
        let plain = |c: char| !c.is_ascii_alphanumeric() && c != '-';
        let (name, hash) = (key.name.replace(plain, "_"), fnv(&key.text));
        self.directory.join(format!("{name}-{hash:016x}.json"))
    }

    /// What was kept of a run, if it was made already.
    #[must_use]
    pub fn find<T: DeserializeOwned>(&self, key: &Key) -> Option<T> {
        let file = fs::read_to_string(self.path(key)).ok()?;
        let file: File<T> = serde_json::from_str(&file).ok()?;
        (file.key == key.text).then_some(file.made)
    }

    /// Keeps a run. A reader never sees half a file.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn keep<T: Serialize>(&self, key: &Key, made: &T) -> io::Result<()> {
        let text = key.text.clone();
        let file = File { key: text, made };
        replace(&self.path(key), serde_json::to_string(&file)?.as_bytes())
    }
}

/// The simulator by its sources (`build.rs`), as far as a system's results depend on them: equal
/// set-ups have equal results only within one.
pub(crate) fn simulator(system: &str) -> String {
    let mut presets = env!("TERRACE_PRESETS").split(',');
    let preset = presets.find_map(|one| one.strip_prefix(system)?.strip_prefix('='));
    let preset = preset.unwrap_or_default();
    format!("{}{preset}", env!("TERRACE_SIMULATION"))
}

/// The simulator with all presets, by its sources.
#[must_use]
pub fn simulator_revision() -> String {
    let all = concat!(env!("TERRACE_SIMULATION"), " ", env!("TERRACE_PRESETS"));
    hash_of_bytes(all.as_bytes())
}

/// FNV-1a, 64 bits: the same in every build.
pub(crate) fn fnv(text: &str) -> u64 {
    fnv_of(text.as_bytes())
}

fn fnv_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A hash that says whether bytes are the same, as of a program.
#[must_use]
pub fn hash_of_bytes(bytes: &[u8]) -> String {
    format!("{:016x}", fnv_of(bytes))
}

/// A hash that says whether two values show the same, as of a machine file.
pub fn hash_of(value: &impl Debug) -> String {
    hash_of_bytes(format!("{value:?}").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use terrace_machine_spec::Machine;
    use terrace_workload::Sizes;
    use terrace_workload::Workload;

    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // From the function's published test vectors.
        assert_eq!(fnv(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_run_is_found_again_for_the_same_set_up_only() {
        type Figures = BTreeMap<String, f64>;
        let text = include_str!("../../../machines/cxl-2tier.toml");
        let machine = Machine::parse(text, Path::new("cxl")).unwrap();
        let workload = Workload::named("gups", &Sizes::fast_free(1 << 24)).unwrap();
        let mut setup = Setup::new(machine, workload);
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path().join("new"));
        let key = Key::of_simulation;
        assert!(kept.find::<Figures>(&key(&setup)).is_none());
        let figures = Figures::from([("a".to_owned(), 0.1)]);
        kept.keep(&key(&setup), &figures).unwrap();
        assert_eq!(kept.find(&key(&setup)), Some(figures));
        setup.costs.hint_fault_ns += 1.0;
        assert!(kept.find::<Figures>(&key(&setup)).is_none());
    }

    #[test]
    fn a_run_in_the_machine_is_found_again_for_the_same_settings_only() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path().to_owned());
        let key = |round: u32| Key::of_machine("gups none".to_owned(), &("seed", round));
        assert_eq!(kept.find::<u32>(&key(1)), None);
        kept.keep(&key(1), &7).unwrap();
        assert_eq!(
            (kept.find(&key(1)), kept.find::<u32>(&key(2))),
            (Some(7), None)
        );
    }

    #[test]
    fn a_result_depends_on_its_preset_s_folder() {
        for preset in terrace_policy::PRESETS {
            let own = simulator(preset.name);
            let folder = preset.name != terrace_policy::UNMANAGED.name;
            assert_eq!(own != simulator("no preset"), folder, "{}", preset.name);
        }
    }
}

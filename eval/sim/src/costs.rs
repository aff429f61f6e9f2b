// SPDX-License-Identifier: MIT OR Apache-2.0
//! What things cost, apart from memory accesses, which the machine file has.
//!
//! Files: `costs/papers.toml` (the papers' systems, most of them in the kernel; with the source of each value),
//! `costs/hardware.toml` (Terrace beside the program, on hardware) and `costs/lab.toml` (the emulated machine's).
//! What a system costs as it is ([`Costs::as_it_is`]) depends on where it decides: the kernel's own have the papers'
//! costs, Terrace's presets those of Terrace. What the kernel does for both costs the same in both.
//! A file given by the user may leave values out; those are the system's as it is.

use serde::Deserialize;
use serde::Serialize;
use terrace_policy::Mover;
use terrace_policy::Preset;
use thiserror::Error;

/// Costs; times are ns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Whether these are of Terrace as a service beside the program: where no mover is asked for, pages move as under
    /// `terrace run` without options (docs/movers.md), not by the mechanism of the preset's paper.
    pub in_service: bool,
    /// Memory latencies are multiplied by this and bandwidths divided: the lab's dilation.
    pub memory_scale: f64,
    /// The program's computing times are multiplied by this.
    pub think_scale: f64,
    /// What a visit takes beside its think time and its lines: 0 but where the processor is emulated.
    pub visit_ns: f64,
    /// An access that the last-level cache serves.
    pub cache_hit_ns: f64,
    /// How far a node queues before its bandwidth is used up: the service time of the queue is this
    /// share of the node's latency, beside the time of a line at full bandwidth.
    pub queue_share: f64,
    /// A hint fault, without what the policy orders in it.
    pub hint_fault_ns: f64,
    /// Marking one page-table entry for a hint fault.
    pub pte_scan_ns: f64,
    /// One sample of a processor's performance counters.
    pub pmu_sample_ns: f64,
    /// Samples a second that can be read; more are lost.
    pub pmu_rate_max: f64,
    /// Reading and clearing one accessed bit.
    pub probe_ns: f64,
    /// Clearing one accessed bit in a pass over whole page tables.
    pub accessed_clear_ns: f64,
    /// Reading one in such a pass.
    pub accessed_read_ns: f64,
    /// What it takes of a program that the bit of one of its pages was cleared: the translation looked up anew, the bit
    /// set, at its first access.
    pub accessed_set_ns: f64,
    /// Who starts a TLB shootdown waits so long, if any other processor must hear of it, and ...
    pub shootdown_base_ns: f64,
    /// ... so much more for each of those; the interrupted one loses as much.
    pub shootdown_per_cpu_ns: f64,
    /// What a hint fault costs the program more while a supervisor watches it: the BPF program, waking it.
    pub watched_fault_ns: f64,
    /// Processor time of Terrace's supervisor and policy for each hint fault they are told of, ...
    pub supervisor_fault_ns: f64,
    /// ... and for each migration they order without hint faults, its end included. What the agent does is charged apart.
    pub supervisor_move_ns: f64,
    /// First touch of a page, without clearing it.
    pub page_fault_ns: f64,
    /// Of the kernel's ordinary migration of one page: isolate, unmap, remap, put back.
    pub migrate_fixed_ns: f64,
    /// The same of a page that the kernel promotes by itself, in the hint fault.
    pub promote_fixed_ns: f64,
    /// Of a shadow that is copied after the kernel has moved its page (`--commit copy`): protecting, bookkeeping.
    pub shadow_fixed_ns: f64,
    /// Of a transaction on one page: protecting, bookkeeping.
    pub transaction_fixed_ns: f64,
    /// TLB shootdowns of a page's transaction before its commit.
    pub transaction_shootdowns: f64,
    /// Commit: the page is inaccessible.
    pub commit_ns: f64,
    /// TLB shootdowns of a commit, in which the page is inaccessible, too.
    pub commit_shootdowns: f64,
    /// Demotion onto a shadow: no copy; the page is inaccessible.
    pub shadow_demote_ns: f64,
    /// TLB shootdowns of a demotion onto a shadow.
    pub shadow_demote_shootdowns: f64,
    /// A write to a page that is protected while it is copied: one that aborts a transaction or waits.
    pub write_protect_fault_ns: f64,
    /// The first write to a page with a shadow, which drops that.
    pub shadow_write_ns: f64,
    /// Pages of one transaction batch: protected together, then copied, then committed.
    pub batch_pages: u32,
    /// The kernel marks so much at a time, bytes (`scan_size_mb`).
    pub scan_bytes: u64,
    /// Shortest time from one such to the next, ns (`MAX_SCAN_WINDOW`: 2560 MB a second).
    pub scan_floor_ns: f64,
    /// What the kernel takes for a page where it walks page tables and looks at each page's own record, ns: the
    /// scanner, whose pauses go by it, and the aging of generations.
    pub scan_work_ns: f64,
}

/// Why a file of costs was refused.
#[derive(Debug, Error)]
pub enum CostsError {
    /// Neither TOML nor JSON of the right shape.
    #[error("Costs: {0}")]
    Format(String),
    /// A value that cannot be.
    #[error("Costs: {name} = {value}; give a number of at least {least}")]
    Value {
        /// Which.
        name: String,
        /// What it is.
        value: f64,
        /// What it must at least be.
        least: f64,
    },
}

const PAPERS: &str = include_str!("../costs/papers.toml");
const HARDWARE: &str = include_str!("../costs/hardware.toml");
const LAB: &str = include_str!("../costs/lab.toml");

impl Costs {
    /// The papers' values, and measured ones where they have none.
    #[must_use]
    pub fn papers() -> Self {
        let given = toml::from_str(PAPERS).expect("a test reads the file");
        checked(given).expect("a test reads the file")
    }

    /// Terrace's, in user space on hardware.
    #[must_use]
    pub fn hardware() -> Self {
        Self::read(HARDWARE)
    }

    /// The emulated machine's.
    #[must_use]
    pub fn lab() -> Self {
        Self::read(LAB)
    }

    /// What [`Self::named`] knows.
    pub const NAMES: [&str; 3] = ["papers", "hardware", "lab"];

    /// One of the files here, by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "papers" => Some(Self::papers()),
            "hardware" => Some(Self::hardware()),
            "lab" => Some(Self::lab()),
            _ => None,
        }
    }

    /// What a system costs as it is: one of the kernel the papers', a preset of Terrace's Terrace's. With a mover that
    /// only a kernel can have a preset is its paper's system, too.
    #[must_use]
    pub fn as_it_is(system: &str, mover: Mover) -> Self {
        let there = [Mover::Auto, Mover::MovePages, Mover::Agent].contains(&mover);
        match Preset::of(system) {
            Some(preset) if preset.in_user_space() && there => Self::hardware(),
            _ => Self::papers(),
        }
    }

    /// One of the files here, which may leave out what is as in the papers.
    fn read(text: &str) -> Self {
        Self::papers()
            .with_toml(text)
            .expect("a test reads the file")
    }

    /// These, with what a file says in their place.
    ///
    /// # Errors
    ///
    /// For a name there is not, or a value that cannot be.
    pub fn with_toml(&self, text: &str) -> Result<Self, CostsError> {
        let given: toml::Table =
            toml::from_str(text).map_err(|error| CostsError::Format(error.message().to_owned()))?;
        self.with(given)
    }

    /// These, with what `terrace bench primitives --json` wrote in their place: an object of names and ns. Names that
    /// are not ours are passed over.
    ///
    /// # Errors
    ///
    /// Where it is not such an object, or a value cannot be.
    pub fn with_json(&self, text: &str) -> Result<Self, CostsError> {
        let json: serde_json::Value =
            serde_json::from_str(text).map_err(|error| CostsError::Format(error.to_string()))?;
        let object = json.get("costs").unwrap_or(&json).as_object();
        let object = object.ok_or_else(|| {
            CostsError::Format("Not an object of names and nanoseconds".to_owned())
        })?;
        let known = self.table();
        let mut given = toml::Table::new();
        for (name, value) in object {
            let (Some(old), Some(number)) = (known.get(name), value.as_f64()) else {
                continue;
            };
            let value = if old.is_integer() {
                value.as_i64().map(toml::Value::Integer)
            } else {
                Some(toml::Value::Float(number))
            };
            given.extend(value.map(|value| (name.clone(), value)));
        }
        if given.is_empty() {
            let text = "No cost of that name; write e.g. {\"hint_fault_ns\": 1200}";
            return Err(CostsError::Format(text.to_owned()));
        }
        self.with(given)
    }

    fn table(&self) -> toml::Table {
        toml::Table::try_from(self).expect("numbers and a truth value have a TOML form")
    }

    fn with(&self, given: toml::Table) -> Result<Self, CostsError> {
        let mut table = self.table();
        for (name, value) in given {
            // 1000 for 1000.0 is no mistake.
            let wants_float = table.get(&name).is_some_and(toml::Value::is_float);
            let value = match value.as_integer() {
                #[expect(clippy::cast_precision_loss, reason = "a time in ns, below 2^53")]
                Some(number) if wants_float => toml::Value::Float(number as f64),
                _ => value,
            };
            table.insert(name, value);
        }
        checked(table)
    }
}

fn checked(table: toml::Table) -> Result<Costs, CostsError> {
    for (name, value) in &table {
        let number = value.as_float().unwrap_or(1.0);
        let least = if name.ends_with("_scale") { 0.01 } else { 0.0 };
        if !number.is_finite() || number < least {
            return Err(CostsError::Value {
                name: name.clone(),
                value: number,
                least,
            });
        }
    }
    let costs: Costs = table
        .try_into()
        .map_err(|error: toml::de::Error| CostsError::Format(error.message().to_owned()))?;
    if costs.batch_pages == 0 || costs.scan_bytes < 1 << 20 {
        let text = "batch_pages must be at least 1, scan_bytes at least 1 MiB";
        return Err(CostsError::Format(text.to_owned()));
    }
    Ok(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_and_those_of_hardware_are_complete() {
        assert!(Costs::lab().memory_scale > 1.0);
        let names = |text| toml::from_str::<toml::Table>(text).expect("TOML").len();
        assert_eq!(names(PAPERS), Costs::papers().table().len());
        assert_eq!(names(HARDWARE), names(PAPERS), "each with its source");
    }

    /// What the kernel does for whoever decides, and the memory: the same under both, so that they can be compared.
    #[test]
    fn the_kernel_s_part_costs_the_same_for_who_decides_beside_it() {
        let (kernel, beside) = (Costs::papers().table(), Costs::hardware().table());
        let own: Vec<&str> = kernel
            .iter()
            .filter(|(name, value)| beside[*name] != **value)
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(
            own,
            [
                "accessed_clear_ns",
                "accessed_read_ns",
                "accessed_set_ns",
                "batch_pages",
                "commit_ns",
                "commit_shootdowns",
                "in_service",
                "pmu_sample_ns",
                "shadow_demote_ns",
                "shadow_demote_shootdowns",
                "shadow_fixed_ns",
                "supervisor_fault_ns",
                "supervisor_move_ns",
                "transaction_fixed_ns",
                "watched_fault_ns",
                "write_protect_fault_ns",
            ]
        );
    }

    #[test]
    fn who_decides_in_the_kernel_is_charged_as_the_kernel() {
        for preset in terrace_policy::PRESETS {
            let costs = Costs::as_it_is(preset.name, Mover::Auto);
            assert_eq!(costs.in_service, preset.in_user_space(), "{}", preset.name);
            assert_eq!(costs.watched_fault_ns > 0.0, preset.in_user_space());
        }
        assert!(!Costs::as_it_is("memory-mode", Mover::Auto).in_service);
        assert!(!Costs::as_it_is("autotiering", Mover::InFault).in_service);
        assert!(!Costs::as_it_is("mtm", Mover::AdaptiveCopy).in_service);
        assert!(Costs::as_it_is("nomad", Mover::Agent).in_service);
    }

    #[test]
    fn a_file_may_leave_values_out_but_not_invent_names() {
        let costs = Costs::papers()
            .with_toml("hint_fault_ns = 5000")
            .expect("fine");
        assert!((costs.hint_fault_ns - 5000.0).abs() < f64::EPSILON);
        assert!(Costs::papers().with_toml("hint_fault = 5000").is_err());
        assert!(Costs::papers().with_toml("hint_fault_ns = -1").is_err());
        assert!(Costs::papers().with_toml("batch_pages = 0").is_err());
        let costs = Costs::papers()
            .with_json(r#"{"pte_scan_ns": 12, "other": 3}"#)
            .expect("fine");
        assert!((costs.pte_scan_ns - 12.0).abs() < f64::EPSILON);
        assert!(Costs::papers().with_json(r#"{"other": 3}"#).is_err());
    }
}

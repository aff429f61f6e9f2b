// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which events see memory accesses, by processor: a table that is data.
//!
//! The built-in rows are `events.toml`; further ones, of the same form, go in front
//! ([`EventTable::extend`]), so that a row of the operator's wins. The first row that fits the
//! processor is taken as a whole. Reading a row is in two steps, raw and checked; nothing here asks
//! the machine. `docs/pmu.md` describes the keys.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use terrace_sys::perf::CpuModel;
use thiserror::Error;

const BUILTIN: &str = include_str!("events.toml");

/// Why a table cannot be used.
#[derive(Debug, Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("Cannot read the event table {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not of the form.
    #[error("The event table is not of the form docs/pmu.md describes: {0}")]
    Form(String),
    /// A value cannot be.
    #[error("Event '{event}' of '{cpu}' in the event table: {what}")]
    Value {
        /// The row.
        cpu: String,
        /// The event.
        event: String,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// What a sample of an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
    /// What the sample's data source says, for PMUs with one event for all.
    DataSource,
}

/// What has to be set so that the PMU leaves the kernel out, and the field that shows whether the
/// kernel can do that.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserFilter {
    /// A field of the PMU's `format` directory.
    pub format: String,
    /// Added to the event's.
    pub config2: u64,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableEvent {
    /// Its name in the maker's books.
    pub name: String,
    /// The PMU, a directory in `/sys/bus/event_source/devices`.
    pub pmu: String,
    /// What its samples are.
    pub access: Access,
    /// The PMU's word for it.
    pub config: u64,
    /// Further words.
    #[serde(default)]
    pub config1: u64,
    /// Further words.
    #[serde(default)]
    pub config2: u64,
    /// `precise_ip`, 0 to 3; PEBS needs at least 1.
    #[serde(default)]
    pub precise: u8,
    /// Occurrences that stand for one memory access.
    #[serde(default = "one")]
    pub period_factor: u64,
    /// The period must be a multiple of this.
    #[serde(default = "one")]
    pub period_multiple: u64,
    /// How the kernel's own accesses are left out; without it, as PMUs usually do
    /// (`exclude_kernel`).
    #[serde(default)]
    pub user_filter: Option<UserFilter>,
    /// Only where no other event of the row that sees loads can be opened.
    #[serde(default)]
    pub fallback: bool,
}

const fn one() -> u64 {
    1
}

impl TableEvent {
    /// The period to give the PMU so that about one in `accesses` is sampled.
    #[must_use]
    pub const fn period(&self, accesses: u64) -> u64 {
        let period = accesses.saturating_mul(self.period_factor);
        let rounded = period / self.period_multiple * self.period_multiple;
        if rounded == 0 {
            self.period_multiple
        } else {
            rounded
        }
    }

    const fn sees_loads(&self) -> bool {
        !matches!(self.access, Access::Store)
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.name.is_empty() {
            return Err("an event needs a name");
        }
        if self.precise > 3 {
            return Err("'precise' is 0, 1, 2 or 3");
        }
        if self.period_factor == 0 || self.period_multiple == 0 {
            return Err("'period_factor' and 'period_multiple' are at least 1");
        }
        Ok(())
    }
}

/// The events of some processors; a list that is absent fits all.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuEvents {
    /// What to call them.
    pub name: String,
    /// Vendor, as in `/proc/cpuinfo`.
    vendor: Option<String>,
    families: Option<Vec<u32>>,
    models: Option<Vec<u32>>,
    steppings: Option<Vec<u32>>,
    /// Where the codes are from.
    pub source: String,
    /// The events, in the order in which they are tried.
    #[serde(rename = "event")]
    pub events: Vec<TableEvent>,
}

impl CpuEvents {
    fn fits(&self, cpu: &CpuModel) -> bool {
        let among =
            |list: &Option<Vec<u32>>, value| list.as_ref().is_none_or(|list| list.contains(&value));
        self.vendor.as_ref().is_none_or(|v| *v == cpu.vendor)
            && among(&self.families, cpu.family)
            && among(&self.models, cpu.model)
            && among(&self.steppings, cpu.stepping)
    }

    fn check(&self) -> Result<(), TableError> {
        let wrong = |event: &str, what| TableError::Value {
            cpu: self.name.clone(),
            event: event.to_owned(),
            what,
        };
        if !self.events.iter().any(|e| e.sees_loads() && !e.fallback) {
            return Err(wrong("*", "one that is no fallback must see loads"));
        }
        self.events
            .iter()
            .try_for_each(|event| event.check().map_err(|what| wrong(&event.name, what)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    cpu: Vec<CpuEvents>,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTable {
    rows: Vec<CpuEvents>,
}

impl Default for EventTable {
    fn default() -> Self {
        Self::builtin()
    }
}

impl EventTable {
    /// What Terrace knows.
    ///
    /// # Panics
    ///
    /// Never: a test reads the same text.
    #[must_use]
    pub fn builtin() -> Self {
        Self {
            rows: parse(BUILTIN).expect("the built-in table is of the form, a test says"),
        }
    }

    /// Puts the rows of a TOML text in front.
    ///
    /// # Errors
    ///
    /// Where the text is not of the form.
    pub fn extend(&mut self, text: &str) -> Result<(), TableError> {
        let rows = parse(text)?;
        self.rows.splice(0..0, rows);
        Ok(())
    }

    /// Puts the rows of a TOML file in front.
    ///
    /// # Errors
    ///
    /// Where it cannot be read or is not of the form.
    pub fn extend_from(&mut self, path: &Path) -> Result<(), TableError> {
        let text = fs::read_to_string(path).map_err(|source| TableError::Read {
            path: path.to_owned(),
            source,
        })?;
        self.extend(&text)
    }

    /// The row for a processor.
    #[must_use]
    pub fn row(&self, cpu: &CpuModel) -> Option<&CpuEvents> {
        self.rows.iter().find(|row| row.fits(cpu))
    }
}

fn parse(text: &str) -> Result<Vec<CpuEvents>, TableError> {
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| {
            text[..span.start.min(text.len())].matches('\n').count() + 1
        });
        let message = error.message().replace('\n', " ");
        TableError::Form(format!("line {line}: {message}"))
    })?;
    raw.cpu.iter().try_for_each(CpuEvents::check)?;
    Ok(raw.cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(vendor: &str, family: u32, model: u32, stepping: u32) -> CpuModel {
        CpuModel {
            vendor: vendor.to_owned(),
            family,
            model,
            stepping,
            name: String::new(),
        }
    }

    #[test]
    fn rows_by_processor() {
        let table = EventTable::builtin();
        let name = |cpu| table.row(&cpu).map(|row| row.name.as_str());
        let intel = |model, stepping| name(cpu("GenuineIntel", 6, model, stepping));
        assert_eq!(intel(0x55, 4), Some("Intel Skylake-SP"));
        assert_eq!(intel(0x55, 7), Some("Intel Cascade Lake-SP, Cooper Lake"));
        assert_eq!(intel(0x6a, 6), Some("Intel Ice Lake-SP"));
        assert_eq!(
            intel(0xcf, 2),
            Some("Intel Sapphire Rapids, Emerald Rapids")
        );
        assert_eq!(intel(0xad, 0), Some("Intel Granite Rapids"));
        assert_eq!(
            name(cpu("AuthenticAMD", 0x19, 0x11, 1)),
            Some("AMD Zen (IBS)")
        );
        assert_eq!(intel(0x17, 0), None);
        assert_eq!(name(CpuModel::default()), None);
    }

    #[test]
    fn hemems_events_are_the_papers() {
        let table = EventTable::builtin();
        let row = table.row(&cpu("GenuineIntel", 6, 0x55, 7)).unwrap();
        let code = |name: &str| {
            let event = row.events.iter().find(|e| e.name == name).unwrap();
            (event.config, event.access, event.fallback)
        };
        assert_eq!(
            code("MEM_LOAD_RETIRED.LOCAL_PMM"),
            (0x80d1, Access::Load, false)
        );
        assert_eq!(
            code("MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM"),
            (0x01d3, Access::Load, false)
        );
        assert_eq!(
            code("MEM_INST_RETIRED.ALL_STORES"),
            (0x82d0, Access::Store, false)
        );
        assert_eq!(
            code("MEM_LOAD_RETIRED.L3_MISS"),
            (0x20d1, Access::Load, true)
        );
    }

    #[test]
    fn rows_of_the_operator_win() {
        let mut table = EventTable::builtin();
        let text = r#"
            [[cpu]]
            name = "mine"
            vendor = "GenuineIntel"
            source = "a book"
            [[cpu.event]]
            name = "E"
            pmu = "cpu"
            access = "load"
            config = 0xcd
            config1 = 3
        "#;
        table.extend(text).unwrap();
        let row = table.row(&cpu("GenuineIntel", 6, 0x55, 7)).unwrap();
        assert_eq!((row.name.as_str(), row.events[0].config1), ("mine", 3));
        assert!(table.row(&cpu("AuthenticAMD", 0x1a, 0, 0)).is_some());
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut table = EventTable::builtin();
        let says = |table: &mut EventTable, text: &str| table.extend(text).unwrap_err().to_string();
        let event = |more: &str| {
            format!(
                "[[cpu]]\nname = 'c'\nsource = 's'\nevent = [{{ name = 'E', pmu = 'p', config = 1, {more} }}]"
            )
        };
        let text = says(&mut table, &event("access = 'lode'"));
        assert!(text.contains("line 4: unknown variant `lode`"), "{text}");
        let text = says(&mut table, &event("access = 'load', presise = 1"));
        assert!(text.contains("presise"), "{text}");
        let text = says(&mut table, &event("access = 'load', precise = 4"));
        assert_eq!(
            text,
            "Event 'E' of 'c' in the event table: 'precise' is 0, 1, 2 or 3"
        );
        let text = says(&mut table, &event("access = 'store'"));
        assert!(text.contains("must see loads"), "{text}");
        let text = says(&mut table, &event("access = 'load', period_factor = 0"));
        assert!(text.contains("at least 1"), "{text}");
        let missing = table.extend_from(Path::new("/nowhere/t.toml")).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "Cannot read the event table /nowhere/t.toml"
        );
        assert_eq!(table, EventTable::builtin());
    }

    #[test]
    fn periods_are_what_the_pmu_takes() {
        let table = EventTable::builtin();
        let ibs = &table.row(&cpu("AuthenticAMD", 0x19, 0, 0)).unwrap().events[0];
        assert_eq!(ibs.period(5000), 100_000);
        assert_eq!(ibs.period(1), 16);
        assert_eq!(ibs.period(5001) % 16, 0);
        assert_eq!(ibs.period(u64::MAX) % 16, 0);
        let pebs = &table.row(&cpu("GenuineIntel", 6, 0x8f, 0)).unwrap().events[0];
        assert_eq!(pebs.period(5000), 5000);
    }
}

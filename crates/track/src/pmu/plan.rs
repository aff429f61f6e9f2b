// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choosing events: which row of the table, what is permitted, which events the kernel really opens.
//!
//! Everything is found by trying and closed again. What is permitted is asked with an event that
//! counts nothing, so that a refusal of the hardware's event is the hardware's.

use std::path::Path;

use rustix::io::Errno;
use terrace_sys::perf::CpuModel;
use terrace_sys::perf::Event;
use terrace_sys::perf::EventSpec;
use terrace_sys::perf::Fields;
use terrace_sys::perf::Pmu;
use terrace_sys::perf::Target;
use terrace_sys::perf::event;
use terrace_sys::perf::pmu;

use super::config::PmuConfig;
use super::config::PmuError;
use super::config::PmuScope;
use super::table::Access;
use super::table::TableEvent;

/// What every sample holds.
const FIELDS: Fields = Fields::IDENTIFIER
    .with(Fields::TID)
    .with(Fields::TIME)
    .with(Fields::ADDR)
    .with(Fields::CPU)
    .with(Fields::DATA_SOURCE);

/// An event that the kernel opens here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) access: Access,
    pub(super) event: TableEvent,
    /// But for period and children.
    pub(super) spec: EventSpec,
}

/// What is to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) events: Vec<Planned>,
    pub(super) per_cpu: bool,
    pub(super) fields: Fields,
    pub(super) cpus: Vec<u32>,
}

/// What was found out about one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventState {
    /// Its name.
    pub name: String,
    /// Why it cannot be used; `None` where it can.
    pub refused: Option<String>,
    /// Whether it is used only where others cannot be.
    pub fallback: bool,
}

/// What this machine offers, for `terrace doctor`.
#[derive(Debug, Default)]
pub struct Survey {
    /// The processor, where it says what it is.
    pub cpu: Option<CpuModel>,
    /// The table's row.
    pub row: Option<String>,
    /// Its events.
    pub events: Vec<EventState>,
    /// Whether whole processors may be watched; `None` where not even a process may.
    pub per_cpu: Option<bool>,
    /// Whether samples hold physical addresses.
    pub physical: bool,
    /// Why there are no samples; `None` where there would be.
    pub error: Option<PmuError>,
}

/// Looks what sampling would be, and starts none.
#[must_use]
pub fn survey(config: &PmuConfig) -> Survey {
    let mut survey = Survey::default();
    survey.error = plan(Path::new("/"), config, &mut survey).err();
    survey
}

/// Chooses, noting on the way what was found.
pub(super) fn plan(root: &Path, config: &PmuConfig, found: &mut Survey) -> Result<Plan, PmuError> {
    check(config)?;
    found.cpu = CpuModel::read(root);
    let cpu = found.cpu.clone().unwrap_or_default();
    let row = config.table.row(&cpu);
    found.row = row.map(|row| row.name.clone());
    let mut cpus = pmu::online_cpus(root);
    if cpus.is_empty() {
        cpus.push(0);
    }
    let (per_cpu, fields) = permission(root, config.scope, cpus[0])?;
    found.per_cpu = Some(per_cpu);
    found.physical = fields.has(Fields::PHYS_ADDR);
    let row = row.ok_or_else(|| PmuError::UnknownCpu {
        cpu: match &found.cpu {
            Some(cpu) => cpu.to_string(),
            None => "which does not say what it is".to_owned(),
        },
    })?;
    let target = target(per_cpu, 0, cpus[0]);
    let mut events = Vec::new();
    let mut missing = None;
    for event in &row.events {
        let tried = match Pmu::find(root, &event.pmu) {
            Some(pmu) => try_event(event, &pmu, fields, config.period, target)
                .map_err(|error| explain(error).to_owned()),
            None => {
                missing.get_or_insert_with(|| event.pmu.clone());
                Err(format!("no PMU '{}'", event.pmu))
            }
        };
        found.events.push(EventState {
            name: event.name.clone(),
            refused: tried.as_ref().err().cloned(),
            fallback: event.fallback,
        });
        events.extend(tried);
    }
    if !events.iter().any(sees_loads) {
        let row = row.name.clone();
        let all_missing = found.events.iter().all(|e| {
            let why = e.refused.as_deref();
            why.is_some_and(|why| why.starts_with("no PMU"))
        });
        return Err(match missing {
            Some(pmu) if all_missing => PmuError::NoPmu {
                pmu,
                row,
                have: pmu::names(root).join(", "),
            },
            _ => PmuError::NoEvent {
                row,
                why: reasons(&found.events),
            },
        });
    }
    if events.iter().any(|e| sees_loads(e) && !e.event.fallback) {
        events.retain(|e| !e.event.fallback);
    }
    Ok(Plan {
        events,
        per_cpu,
        fields,
        cpus,
    })
}

fn check(config: &PmuConfig) -> Result<(), PmuError> {
    if config.period == 0 {
        return Err(PmuError::Config("the period must be at least 1"));
    }
    if !(config.cost_share > 0.0 && config.cost_share <= 1.0) {
        return Err(PmuError::Config(
            "the share of processor time must be above 0 and at most 1",
        ));
    }
    if !config.ring_bytes.is_power_of_two() || config.ring_bytes < RING_BYTES_MIN {
        return Err(PmuError::Config(
            "a ring is a power of two of bytes, at least 16 KiB",
        ));
    }
    Ok(())
}

/// Smaller rings would be read all the time.
pub(super) const RING_BYTES_MIN: usize = 16 << 10;

fn sees_loads(event: &Planned) -> bool {
    event.access != Access::Store
}

pub(super) fn target(per_cpu: bool, tid: u32, cpu: u32) -> Target {
    if per_cpu {
        Target::Cpu(cpu)
    } else {
        let cpu = Some(cpu);
        Target::Task { tid, cpu }
    }
}

/// Whether whole processors may be watched, and what samples may hold.
fn permission(root: &Path, scope: PmuScope, cpu: u32) -> Result<(bool, Fields), PmuError> {
    let all = FIELDS.with(Fields::PHYS_ADDR);
    let scopes: &[bool] = match scope {
        PmuScope::Auto => &[true, false],
        PmuScope::PerCpu => &[true],
        PmuScope::PerProcess => &[false],
    };
    let mut refusal = Errno::ACCESS;
    for per_cpu in scopes {
        for fields in [all, FIELDS] {
            let spec = EventSpec {
                kind: event::SOFTWARE,
                config: event::DUMMY,
                period: 1,
                fields,
                user_only: true,
                ..EventSpec::default()
            };
            match Event::open(&spec, target(*per_cpu, 0, cpu)) {
                Ok(_) => return Ok((*per_cpu, fields)),
                Err(errno) => refusal = errno,
            }
        }
    }
    Err(match refusal {
        Errno::ACCESS | Errno::PERM => PmuError::NotPermitted {
            paranoid: pmu::paranoid(root).map_or("not readable".to_owned(), |p| p.to_string()),
        },
        other => PmuError::NoPerf(other),
    })
}

fn try_event(
    event: &TableEvent,
    pmu: &Pmu,
    fields: Fields,
    period: u64,
    target: Target,
) -> Result<Planned, Errno> {
    // Where the kernel cannot leave itself out, what is the kernel's is thrown away here.
    let filter = event.user_filter.as_ref();
    let filters = filter.is_none_or(|filter| pmu.has_format(&filter.format));
    let filter = filter.filter(|_| filters).map_or(0, |f| f.config2);
    let spec = EventSpec {
        kind: pmu.kind,
        config: event.config,
        config1: event.config1,
        config2: event.config2 | filter,
        period: event.period(period),
        precise: event.precise,
        fields,
        user_only: filters,
        ..EventSpec::default()
    };
    Event::open(&spec, target)?;
    Ok(Planned {
        name: event.name.clone(),
        access: event.access,
        event: event.clone(),
        spec,
    })
}

fn explain(error: Errno) -> &'static str {
    match error {
        Errno::ACCESS | Errno::PERM => "not permitted",
        Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP => "the PMU does not do it",
        Errno::INVAL => "the PMU does not know it",
        Errno::BUSY => "the PMU is in use",
        Errno::MFILE | Errno::NFILE => "too many open files",
        _ => "refused",
    }
}

fn reasons(events: &[EventState]) -> String {
    let refused = events
        .iter()
        .filter_map(|e| Some(format!("{}: {}", e.name, e.refused.as_ref()?)));
    refused.collect::<Vec<_>>().join("; ")
}

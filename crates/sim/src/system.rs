// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which systems there are, and what each is made of: a policy, a way to move pages, a placement.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::Tiers;
use terrace_core::parse_duration;
use terrace_policy::Policy;
use terrace_policy::nomad;

use crate::Setup;
use crate::SimError;
use crate::baseline;
use crate::hardware::Hardware;
use crate::space::Space;
use crate::world::Movement;

/// The systems that can be simulated: presets and baselines.
pub const SYSTEMS: &[&str] = &[
    "none",
    "nomad",
    "random",
    "oracle",
    "autonuma",
    "kernel-tiering",
    "tpp",
    "memory-mode",
];

/// Systems of the papers that are not built yet.
pub const PLANNED: [&str; 6] = [
    "hemem",
    "mtm",
    "chrono",
    "autotiering",
    "thermostat",
    "damon",
];

/// Where pages are, apart from what the policy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// As allocated.
    Normal,
    /// The best for what comes, at once and for nothing.
    Best,
    /// All on slow nodes; the fast one is a cache.
    Cache,
}

/// A system.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) tiers: Tiers,
    pub(crate) movement: Movement,
    pub(crate) placement: Placement,
}

const TRANSACTIONS: Movement = Movement {
    transactions: true,
    synchronous: false,
};
const ORDINARY: Movement = Movement {
    transactions: false,
    synchronous: false,
};
const IN_FAULT: Movement = Movement {
    transactions: false,
    synchronous: true,
};

/// Makes the system of a set-up.
pub(crate) fn make(setup: &Setup, hardware: &Hardware, space: &Space) -> Result<System, SimError> {
    let name = setup.system.as_str();
    if PLANNED.contains(&name) {
        return Err(SimError::NotBuilt(name.to_owned()));
    }
    if !SYSTEMS.contains(&name) {
        return Err(SimError::System(name.to_owned()));
    }
    let tiers = hardware.tiers(0);
    if name != "none" && tiers.count() < 2 {
        return Err(SimError::OneTier(name.to_owned()));
    }
    let mut params = Params::new(setup);
    let none = || Box::new(terrace_policy::none::None) as Box<dyn Policy>;
    let (policy, tiers, movement, placement) = match name {
        "nomad" => {
            let policy = nomad::Nomad::new(nomad_params(&mut params)?, tiers.clone());
            let policy = Box::new(policy) as Box<dyn Policy>;
            (policy, tiers, TRANSACTIONS, Placement::Normal)
        }
        "random" => {
            let policy = baseline::random::Random::new(&mut params, &tiers, space, setup.seed)?;
            let policy = Box::new(policy) as Box<dyn Policy>;
            (policy, tiers, ORDINARY, Placement::Normal)
        }
        "oracle" => (none(), tiers, ORDINARY, Placement::Best),
        "memory-mode" => (none(), tiers, ORDINARY, Placement::Cache),
        "none" => (none(), tiers, ORDINARY, Placement::Normal),
        kernel => {
            let tiers = hardware.kernel_tiers(0);
            let threads = setup.workload.programs.iter().map(|p| p.threads).max();
            let policy = baseline::make(kernel, &mut params, &tiers, space, threads.unwrap_or(1))?;
            (policy, tiers, IN_FAULT, Placement::Normal)
        }
    };
    params.finish()?;
    Ok(System {
        policy,
        tiers,
        movement,
        placement,
    })
}

/// Reads a system's parameters; a name that nothing asked for is an error.
#[derive(Debug)]
pub(crate) struct Params<'a> {
    system: &'a str,
    left: BTreeMap<&'a str, &'a toml::Value>,
    known: Vec<&'static str>,
}

impl<'a> Params<'a> {
    fn new(setup: &'a Setup) -> Self {
        Self {
            system: &setup.system,
            left: setup.params.iter().map(|(k, v)| (k.as_str(), v)).collect(),
            known: Vec::new(),
        }
    }

    fn take(&mut self, name: &'static str) -> Option<&'a toml::Value> {
        self.known.push(name);
        self.left.remove(name)
    }

    fn bad(&self, name: &str, value: &toml::Value, wanted: &'static str) -> SimError {
        SimError::Value {
            system: self.system.to_owned(),
            name: name.to_owned(),
            value: value.to_string(),
            wanted,
        }
    }

    /// A whole number of at most `most`.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        default: u64,
        most: u64,
    ) -> Result<u64, SimError> {
        let Some(value) = self.take(name) else {
            return Ok(default);
        };
        let number = match value {
            toml::Value::Integer(number) => u64::try_from(*number).ok(),
            toml::Value::String(text) => terrace_core::parse_bytes(text).ok(),
            _ => None,
        };
        number
            .filter(|number| *number <= most)
            .ok_or_else(|| self.bad(name, value, "a whole number or a size within its bounds"))
    }

    /// A time: ns, or text.
    pub(crate) fn time(&mut self, name: &'static str, default: Nanos) -> Result<Nanos, SimError> {
        let Some(value) = self.take(name) else {
            return Ok(default);
        };
        let time = match value {
            toml::Value::Integer(ns) => u64::try_from(*ns).ok().map(Nanos),
            toml::Value::String(text) => parse_duration(text).ok(),
            _ => None,
        };
        time.ok_or_else(|| self.bad(name, value, "a time such as \"1s\", or ns"))
    }

    /// Yes or no.
    pub(crate) fn switch(&mut self, name: &'static str, default: bool) -> Result<bool, SimError> {
        let Some(value) = self.take(name) else {
            return Ok(default);
        };
        let text = value.as_str().map(|text| text == "true");
        value
            .as_bool()
            .or(text)
            .ok_or_else(|| self.bad(name, value, "true or false"))
    }

    fn finish(&self) -> Result<(), SimError> {
        let Some((name, _)) = self.left.first_key_value() else {
            return Ok(());
        };
        let known = if self.known.is_empty() {
            "none".to_owned()
        } else {
            self.known.join(", ")
        };
        Err(SimError::Parameter {
            system: self.system.to_owned(),
            name: (*name).to_owned(),
            known,
        })
    }
}

fn nomad_params(params: &mut Params<'_>) -> Result<nomad::Params, SimError> {
    let d = nomad::Params::default();
    let size = |params: &mut Params<'_>, name, default: usize| {
        let number = params.number(name, default as u64, 1 << 40)?;
        Ok::<_, SimError>(usize::try_from(number).unwrap_or(usize::MAX))
    };
    Ok(nomad::Params {
        shadow_reclaim_factor: params.number(
            "shadow_reclaim_factor",
            d.shadow_reclaim_factor,
            1 << 20,
        )?,
        shadowing: params.switch("shadowing", d.shadowing)?,
        max_retries: u8::try_from(params.number("max_retries", u64::from(d.max_retries), 15)?)
            .expect("at most 15"),
        retry_delay: params.time("retry_delay", d.retry_delay)?,
        pcq_bytes: size(params, "pcq_bytes", d.pcq_bytes)?,
        mpq_bytes: size(params, "mpq_bytes", d.mpq_bytes)?,
        reference_passes: params.number("reference_passes", d.reference_passes, 1 << 20)?,
        eager_idle: params.time("eager_idle", d.eager_idle)?,
        shadow_written: params.switch("shadow_written", d.shadow_written)?,
        inflight_pages: size(params, "inflight_pages", d.inflight_pages)?,
        headroom_1024: params.number("headroom_1024", d.headroom_1024, 1024)?,
        hysteresis: params.number("hysteresis", d.hysteresis, 1 << 20)?,
        contended_rate_1024: params.number(
            "contended_rate_1024",
            d.contended_rate_1024,
            1 << 20,
        )?,
        scan_period_min: params.time("scan_period_min", d.scan_period_min)?,
        scan_period_max: params.time("scan_period_max", d.scan_period_max)?,
        scan_rate_max: params.number("scan_rate_max", d.scan_rate_max, u64::MAX)?,
        tick: params.time("tick", d.tick)?,
    })
}

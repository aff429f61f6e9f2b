// SPDX-License-Identifier: MIT OR Apache-2.0
//! How big a workload is: the paper's sizes or sizes relative to the free fast memory, and the
//! parameters given by name.
//!
//! Every workload asks for its parameters through [`Parameters`], so that a name that nothing asked
//! for is an error that lists those that there are. Sizes are bytes (`4GiB`, `512M`), times are
//! durations (`150s`, `500ns`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use terrace_core::Nanos;
use terrace_core::parse_bytes;
use terrace_core::parse_duration;

use crate::PAGE_BYTES;
use crate::Scale;
use crate::Start;
use crate::WorkloadError;

/// The sizes of a workload: where they come from, and what is set by name instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    scale: Scale,
    overrides: BTreeMap<String, String>,
}

impl Sizes {
    /// The sizes in the paper that the workload is from.
    #[must_use]
    pub fn paper() -> Self {
        Scale::Paper.into()
    }

    /// Small ones, in proportion to that many bytes free on the fast node.
    #[must_use]
    pub fn fast_free(bytes: u64) -> Self {
        Scale::FastFree(bytes).into()
    }

    /// The same with one parameter set, e.g. `working_set=32GiB`; the last one counts.
    ///
    /// # Errors
    ///
    /// If there is no `=` in it. Whether the workload has such a parameter shows when it is made.
    pub fn with(mut self, setting: &str) -> Result<Self, WorkloadError> {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| WorkloadError::Setting {
                text: setting.to_owned(),
            })?;
        let (name, value) = (name.trim().replace('-', "_"), value.trim().to_owned());
        self.overrides.insert(name, value);
        Ok(self)
    }

    /// Where the sizes come from.
    #[must_use]
    pub fn scale(&self) -> Scale {
        self.scale
    }
}

impl From<Scale> for Sizes {
    fn from(scale: Scale) -> Self {
        Self {
            scale,
            overrides: BTreeMap::new(),
        }
    }
}

/// Reads the parameters of one workload and remembers which names it asked for.
#[derive(Debug)]
pub(crate) struct Parameters<'a> {
    workload: &'a str,
    sizes: &'a Sizes,
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Parameters<'a> {
    pub(crate) fn new(workload: &'a str, sizes: &'a Sizes) -> Self {
        Self {
            workload,
            sizes,
            asked: RefCell::default(),
        }
    }

    /// The workload's name.
    pub(crate) fn workload(&self) -> &'a str {
        self.workload
    }

    /// `paper` with the paper's sizes, `small` with those relative to the fast memory.
    pub(crate) fn default<T>(&self, paper: T, small: T) -> T {
        match self.sizes.scale {
            Scale::Paper => paper,
            Scale::FastFree(_) => small,
        }
    }

    /// A size in pages: as given by name, else the paper's bytes or hundredths of the free memory.
    pub(crate) fn pages(
        &self,
        name: &'static str,
        paper_bytes: u64,
        hundredths_of_free: u64,
    ) -> Result<u32, WorkloadError> {
        let bytes = match (self.given(name), self.sizes.scale) {
            (Some(value), _) => parse_bytes(value).map_err(|_| self.bad(name, value, "a size"))?,
            (None, Scale::Paper) => paper_bytes,
            (None, Scale::FastFree(free)) => {
                let bytes = u128::from(free) * u128::from(hundredths_of_free) / 100;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        };
        let pages = bytes / PAGE_BYTES;
        match u32::try_from(pages) {
            Ok(0) => Err(self.too_small(name)),
            Ok(pages) => Ok(pages),
            Err(_) => Err(WorkloadError::TooLarge { bytes }),
        }
    }

    /// A number, at least `min` and at most `max`.
    pub(crate) fn number<T>(
        &self,
        name: &'static str,
        default: T,
        min: T,
        max: T,
    ) -> Result<T, WorkloadError>
    where
        T: Copy + FromStr + PartialOrd + Display,
    {
        let Some(value) = self.given(name) else {
            return Ok(default);
        };
        value
            .parse::<T>()
            .ok()
            .filter(|number| *number >= min && *number <= max)
            .ok_or_else(|| self.bad(name, value, &format!("a number from {min} to {max}")))
    }

    /// A duration.
    #[allow(dead_code, reason = "used by the workloads with phases")]
    pub(crate) fn time(&self, name: &'static str, default: Nanos) -> Result<Nanos, WorkloadError> {
        let Some(value) = self.given(name) else {
            return Ok(default);
        };
        parse_duration(value)
            .ok()
            .filter(|time| *time > Nanos::ZERO)
            .ok_or_else(|| self.bad(name, value, "a duration above 0 such as 150s"))
    }

    /// Where the pages start.
    pub(crate) fn start(&self, default: Start) -> Result<Start, WorkloadError> {
        match self.given("start") {
            None => Ok(default),
            Some("slow") => Ok(Start::Slow),
            Some("first-touch") => Ok(Start::FirstTouch),
            Some(value) => Err(self.bad("start", value, "slow or first-touch")),
        }
    }

    /// The error for a size that leaves too little.
    pub(crate) fn too_small(&self, what: &'static str) -> WorkloadError {
        WorkloadError::TooSmall {
            workload: self.workload.to_owned(),
            what,
        }
    }

    /// Fails for a name that nothing asked for.
    pub(crate) fn finish(&self) -> Result<(), WorkloadError> {
        let asked = self.asked.borrow();
        match self
            .sizes
            .overrides
            .keys()
            .find(|name| !asked.contains(&name.as_str()))
        {
            None => Ok(()),
            Some(name) => Err(WorkloadError::Parameter {
                workload: self.workload.to_owned(),
                name: name.clone(),
                known: asked.join(", "),
            }),
        }
    }

    fn given(&self, name: &'static str) -> Option<&'a str> {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&name) {
            asked.push(name);
        }
        self.sizes.overrides.get(name).map(String::as_str)
    }

    fn bad(&self, name: &'static str, value: &str, wanted: &str) -> WorkloadError {
        WorkloadError::Value {
            name,
            value: value.to_owned(),
            wanted: wanted.to_owned(),
        }
    }
}

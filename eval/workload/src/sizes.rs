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

use crate::DRAW_NS;
use crate::PAGE_BYTES;
use crate::Phase;
use crate::Program;
use crate::Start;
use crate::Workload;
use crate::WorkloadError;

/// What the sizes relate to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The sizes in the papers.
    Paper,
    /// Small ones in proportion to that many bytes free on the fast node.
    FastFree(u64),
}

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

/// Fewer pages are no workload.
const PAGES_MIN: u32 = 64;

/// What a workload of one program is, besides the parameters that all have.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) pages: u32,
    pub(crate) threads_paper: u32,
    pub(crate) start: Start,
    pub(crate) think_ns: f64,
    pub(crate) phases: Vec<Phase>,
}

/// Reads the parameters of one workload and remembers which names it asked for.
#[derive(Debug)]
pub(crate) struct Parameters<'a> {
    workload: &'a str,
    sizes: &'a Sizes,
    asked: RefCell<Vec<String>>,
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

    /// The free fast memory that small sizes relate to.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        match self.sizes.scale {
            Scale::Paper => None,
            Scale::FastFree(bytes) => Some(bytes),
        }
    }

    /// The exponent of a zipfian distribution.
    pub(crate) fn theta(&self, default: f64) -> Result<f64, WorkloadError> {
        self.number("theta", default, 0.01, 5.0)
    }

    /// Visits that write, in percent.
    pub(crate) fn write_percent(&self, default: u8) -> Result<u8, WorkloadError> {
        self.number("write_percent", default, 0, 100)
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
    pub(crate) fn time(&self, name: &'static str, default: Nanos) -> Result<Nanos, WorkloadError> {
        let Some(value) = self.given(name) else {
            return Ok(default);
        };
        parse_duration(value)
            .ok()
            .filter(|time| *time > Nanos::ZERO)
            .ok_or_else(|| self.bad(name, value, "a duration above 0 such as 150s"))
    }

    /// An odd number of lines from one touched line to the next: no line comes twice.
    pub(crate) fn step(&self, default: u8) -> Result<u8, WorkloadError> {
        let step = self.number("step", default, 1, 63)?;
        if step % 2 == 1 {
            Ok(step)
        } else {
            Err(self.bad("step", &step.to_string(), "an odd number from 1 to 63"))
        }
    }

    /// Think time of a visit, ns.
    pub(crate) fn think(&self, default_ns: f64) -> Result<f64, WorkloadError> {
        let Some(value) = self.given("think") else {
            return Ok(default_ns.max(DRAW_NS));
        };
        let time = parse_duration(value)
            .map_err(|_| self.bad("think", value, "a duration such as 300ns"))?;
        Ok(nanoseconds(time).max(DRAW_NS))
    }

    /// The workload of one program, with the parameters that all have.
    pub(crate) fn program(&self, shape: Shape) -> Result<Workload, WorkloadError> {
        if shape.pages < PAGES_MIN {
            return Err(self.too_small("its working set"));
        }
        let think_ns = self.think(shape.think_ns)?;
        let mut phases = shape.phases;
        for phase in &mut phases {
            phase.think_ns = think_ns;
        }
        Ok(Workload::of(Program {
            name: self.workload.to_owned(),
            pages: shape.pages,
            threads: self.threads(shape.threads_paper)?,
            start: self.start(shape.start)?,
            fill: Vec::new(),
            partitions: Vec::new(),
            phases,
            priority: 0,
        }))
    }

    /// Threads: as many as in the paper, one with the small sizes.
    pub(crate) fn threads(&self, paper: u32) -> Result<u32, WorkloadError> {
        self.number("threads", self.default(paper, 1), 1, 1024)
    }

    /// The parameters for a workload inside this one: a `count`th of the memory, and what is set
    /// with its name in front (`scan.working_set=1GiB`).
    pub(crate) fn inner(&self, name: &str, count: u64) -> Sizes {
        let prefix = format!("{name}.");
        let mut asked = self.asked.borrow_mut();
        let mut overrides = BTreeMap::new();
        for (key, value) in &self.sizes.overrides {
            if let Some(own) = key.strip_prefix(&prefix) {
                asked.push(key.clone());
                overrides.insert(own.to_owned(), value.clone());
            }
        }
        let scale = match self.sizes.scale {
            Scale::Paper => Scale::Paper,
            Scale::FastFree(free) => Scale::FastFree(free / count.max(1)),
        };
        Sizes { scale, overrides }
    }

    /// A word.
    pub(crate) fn text(&self, name: &'static str, default: &'a str) -> &'a str {
        self.given(name).unwrap_or(default)
    }

    /// Where the pages start.
    pub(crate) fn start(&self, default: Start) -> Result<Start, WorkloadError> {
        match self.given("start") {
            None => Ok(default),
            Some("slow") => Ok(Start::Slow),
            Some("first-touch") => Ok(Start::FirstTouch),
            Some("across") => Ok(Start::Across),
            Some(value) => Err(self.bad("start", value, "slow, first-touch or across")),
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
            .find(|name| !asked.contains(name))
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
        if !asked.iter().any(|other| other == name) {
            asked.push(name.to_owned());
        }
        self.sizes.overrides.get(name).map(String::as_str)
    }

    pub(crate) fn bad(&self, name: &'static str, value: &str, wanted: &str) -> WorkloadError {
        WorkloadError::Value {
            name,
            value: value.to_owned(),
            wanted: wanted.to_owned(),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a think time is far below 2^53 ns"
)]
fn nanoseconds(time: Nanos) -> f64 {
    time.0 as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_once_and_strangers_refused() {
        let sizes = Sizes::fast_free(1 << 30)
            .with("working-set=64MiB")
            .and_then(|sizes| sizes.with("moves_at = 2s"))
            .expect("name and value");
        let parameters = Parameters::new("test", &sizes);
        assert_eq!(parameters.pages("working_set", 1, 1), Ok(16_384));
        let error = parameters.finish().expect_err("moves_at was not asked for");
        assert_eq!(
            error.to_string(),
            "test has no parameter 'moves_at'; it has working_set"
        );
        assert_eq!(
            parameters.time("moves_at", Nanos::ZERO),
            Ok(Nanos(2_000_000_000))
        );
        assert_eq!(parameters.finish(), Ok(()));
        assert_eq!(parameters.pages("hot", 1, 50), Ok(131_072), "half of 1 GiB");
    }

    #[test]
    fn bad_values_say_what_would_do() {
        for (setting, wanted) in [
            (
                "threads=0",
                "threads cannot be '0'; give a number from 1 to 1024",
            ),
            ("threads=many", "threads cannot be 'many'"),
            ("step=2", "step cannot be '2'; give an odd number"),
            ("think=fast", "think cannot be 'fast'; give a duration"),
            (
                "start=fast",
                "start cannot be 'fast'; give slow, first-touch or across",
            ),
            ("hot=1ZiBs", "hot cannot be '1ZiBs'; give a size"),
            ("hot=1", "test has too few pages for hot"),
        ] {
            let sizes = Sizes::paper().with(setting).expect("name and value");
            let parameters = Parameters::new("test", &sizes);
            let result = parameters
                .threads(1)
                .and_then(|_| parameters.step(7))
                .and_then(|_| parameters.think(1.0))
                .and_then(|_| parameters.start(Start::Slow))
                .and_then(|_| parameters.pages("hot", 1 << 20, 1));
            let text = result.expect_err(setting).to_string();
            assert!(text.starts_with(wanted), "{text}");
        }
        let error = Sizes::paper().with("threads").expect_err("no value");
        assert!(error.to_string().contains("name=value"), "{error}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a claim does not hold: words, and figures that are not typed but taken from the claim's own runs.
//!
//! `"Reading brings {one.fast_access_ratio} of ..."`: what stands in braces is a term as in a relation, of the claim's
//! runs. Where a cause is named, a [`Counterfactual`] shows it: the same runs with one thing changed, under which
//! the claim holds. A cause that nothing shows is not accepted.

use serde::Serialize;

use crate::claim::Run;
use crate::judge::short;
use crate::relation::Lookup;
use crate::relation::Term;

/// Whose doing it is that a claim does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// Our policy's.
    Preset,
    /// The simulator's: what it leaves out, or charges.
    Model,
    /// Our set-up's, where the paper does not give its own or it is divided.
    Setup,
    /// The paper's: it holds where the paper's own figures say that it should not.
    Paper,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Preset, Self::Model, Self::Setup, Self::Paper];

    /// As claim files write it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Preset => "preset",
            Self::Model => "model",
            Self::Setup => "setup",
            Self::Paper => "paper",
        }
    }
}

/// The runs with what is said to be the cause taken away.
#[derive(Debug, Clone, PartialEq)]
pub struct Counterfactual {
    /// What is changed, in words.
    pub changes: String,
    /// Named as the claim's runs, each with the change.
    pub runs: Vec<Run>,
}

/// A sentence with figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Reason(pub(crate) Vec<Part>);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Words(String),
    Figure(Term),
}

impl Reason {
    /// The sentence with the figures as the runs have them; "-" for one that is missing.
    #[must_use]
    pub fn said(&self, lookup: &Lookup<'_>) -> String {
        let parts = self.0.iter().map(|part| match part {
            Part::Words(words) => words.clone(),
            Part::Figure(term) => short(term.value(lookup)),
        });
        parts.collect()
    }

    /// The runs and metrics that it names.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|part| match part {
            Part::Words(_) => Vec::new(),
            Part::Figure(term) => term.names(),
        })
    }

    /// Reads a sentence; `term` reads what stands in braces.
    pub(crate) fn read<E>(
        text: &str,
        mut term: impl FnMut(&str) -> Result<Term, E>,
    ) -> Result<Self, E> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((inside, behind)) = after.split_once('}') else {
                break;
            };
            parts.push(Part::Words(before.to_owned()));
            parts.push(Part::Figure(term(inside)?));
            rest = behind;
        }
        parts.push(Part::Words(rest.to_owned()));
        Ok(Self(parts))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A policy's parameters as people write them: `name=value`, times like `10ms`, sizes like `2MiB`.
//!
//! Each parameter is asked for by its name; what nobody asked for is an error that says which names
//! there are. Plain numbers for a time are nanoseconds. Reading is all that happens here: which
//! parameters a policy has stands beside its `Params`; what was asked for is remembered, so that it can be listed ([`Settings::known`]).

use std::collections::BTreeMap;

use serde::Serialize;
use terrace_core::Nanos;
use terrace_core::parse_bytes;
use terrace_core::parse_duration;
use thiserror::Error;

/// Why a setting was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingError {
    /// The policy has no parameter of that name.
    #[error("Policy '{policy}' has no parameter '{name}'; it has: {known}")]
    Unknown {
        /// The policy.
        policy: String,
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// A parameter's value does not fit.
    #[error("Parameter {name} of '{policy}' cannot be {value}; give {wanted}")]
    Value {
        /// The policy.
        policy: String,
        /// The parameter.
        name: String,
        /// What was given.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
    /// Not `name=value`.
    #[error("'{0}' is no parameter; write name=value")]
    Form(String),
}

/// A parameter that was asked for: what it is by default, and what it may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its value if it is not given, as people write it.
    pub default: String,
    /// What it may be.
    pub range: String,
}

/// Settings that have not been asked for yet.
#[derive(Debug, Clone)]
pub struct Settings {
    policy: String,
    left: BTreeMap<String, String>,
    known: Vec<Parameter>,
}

impl Settings {
    /// Of that policy.
    #[must_use]
    pub fn new(policy: &str, given: BTreeMap<String, String>) -> Self {
        Self {
            policy: policy.to_owned(),
            left: given,
            known: Vec::new(),
        }
    }

    /// From `name=value` texts; of equal names the last counts.
    ///
    /// # Errors
    ///
    /// Where a text has no `=`, or nothing before it.
    pub fn parse(policy: &str, texts: &[String]) -> Result<Self, SettingError> {
        let mut given = BTreeMap::new();
        for text in texts {
            let (name, value) = text
                .split_once('=')
                .filter(|(name, _)| !name.trim().is_empty())
                .ok_or_else(|| SettingError::Form(text.clone()))?;
            given.insert(name.trim().to_owned(), value.trim().to_owned());
        }
        Ok(Self::new(policy, given))
    }

    /// What has been asked for so far.
    #[must_use]
    pub fn known(&self) -> &[Parameter] {
        &self.known
    }

    /// The parameter's value as `read` understands it, or `default` where it was not given, which
    /// `shown` says in words.
    ///
    /// # Errors
    ///
    /// Where `read` gives nothing; `wanted` says what would do.
    pub fn value<T>(
        &mut self,
        name: &'static str,
        (default, shown): (T, &str),
        wanted: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        self.asked(name, shown.to_owned(), wanted.to_owned());
        self.read(name, default, wanted, read)
    }

    fn asked(&mut self, name: &'static str, default: String, range: String) {
        self.known.push(Parameter {
            name,
            default,
            range,
        });
    }

    fn read<T>(
        &mut self,
        name: &'static str,
        default: T,
        wanted: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        let Some(text) = self.left.remove(name) else {
            return Ok(default);
        };
        read(&text).ok_or_else(|| SettingError::Value {
            policy: self.policy.clone(),
            name: name.to_owned(),
            value: text,
            wanted,
        })
    }

    /// A whole number or a size, within bounds.
    ///
    /// # Errors
    ///
    /// Where it is none, or outside.
    pub fn number<T: TryFrom<u64> + PartialOrd + std::fmt::Display>(
        &mut self,
        name: &'static str,
        default: T,
        bounds: std::ops::RangeInclusive<T>,
    ) -> Result<T, SettingError> {
        let wanted = "a whole number or a size within its bounds";
        let range = format!("{} to {}", bounds.start(), bounds.end());
        self.asked(name, default.to_string(), range);
        self.read(name, default, wanted, |text| {
            let number = T::try_from(parse_bytes(text).ok()?).ok()?;
            bounds.contains(&number).then_some(number)
        })
    }

    /// Bytes a second: a size, with or without `/s`.
    ///
    /// # Errors
    ///
    /// Where it is none, or 0.
    pub fn rate(&mut self, name: &'static str, default: u64) -> Result<u64, SettingError> {
        let wanted = "a rate such as 10GB/s";
        self.asked(name, format!("{default}B/s"), wanted.to_owned());
        self.read(name, default, wanted, |text| {
            let bytes = parse_bytes(text.trim_end_matches("/s")).ok()?;
            (bytes > 0).then_some(bytes)
        })
    }

    /// A time: text with its unit, or ns.
    ///
    /// # Errors
    ///
    /// Where it is none.
    pub fn time(&mut self, name: &'static str, default: Nanos) -> Result<Nanos, SettingError> {
        let wanted = "a time such as 1s, or ns";
        let shown = humantime::format_duration(default.into()).to_string();
        self.asked(name, shown, wanted.to_owned());
        self.read(name, default, wanted, |text| {
            let ns = text.parse::<u64>().ok().map(Nanos);
            ns.or_else(|| parse_duration(text).ok())
        })
    }

    /// Yes or no.
    ///
    /// # Errors
    ///
    /// Where it is neither.
    pub fn switch(&mut self, name: &'static str, default: bool) -> Result<bool, SettingError> {
        let wanted = "true or false";
        self.asked(name, default.to_string(), wanted.to_owned());
        self.read(name, default, wanted, |text| text.parse().ok())
    }

    /// All that was given has been asked for.
    ///
    /// # Errors
    ///
    /// For the first that was not.
    pub fn finish(&self) -> Result<(), SettingError> {
        let Some((name, _)) = self.left.first_key_value() else {
            return Ok(());
        };
        let known = match &self.known[..] {
            [] => "none".to_owned(),
            known => {
                let names: Vec<&str> = known.iter().map(|one| one.name).collect();
                names.join(", ")
            }
        };
        Err(SettingError::Unknown {
            policy: self.policy.clone(),
            name: name.clone(),
            known,
        })
    }
}

/// A time that is longer by a factor, as a setting's value.
pub(crate) fn dilated(time: Nanos, by: f64) -> String {
    format!("{:.0}", time.as_secs_f64() * 1e9 * by)
}

/// What comes in some time, fewer by a factor, as a setting's value.
#[expect(clippy::cast_precision_loss, reason = "bytes far below 2^53")]
pub(crate) fn slowed(bytes: u64, by: f64) -> String {
    format!("{:.0}", bytes as f64 / by)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(texts: &[&str]) -> Settings {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Settings::parse("p", &texts).expect("name=value")
    }

    #[test]
    fn values_as_people_write_them() {
        let mut given = settings(&["a=2MiB", "b=10GB/s", "c = 10ms", "d=5", "e=true", "a=3"]);
        assert_eq!(given.number("a", 0_u64, 0..=9), Ok(3));
        assert_eq!(given.rate("b", 1), Ok(10_000_000_000));
        assert_eq!(given.time("c", Nanos::ZERO), Ok(Nanos::from_millis(10)));
        assert_eq!(given.time("d", Nanos::ZERO), Ok(Nanos(5)));
        assert_eq!(given.switch("e", false), Ok(true));
        assert_eq!(given.number("f", 7_u8, 0..=9), Ok(7));
        assert_eq!(given.finish(), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_named() {
        assert!(Settings::parse("p", &["a".to_owned()]).is_err());
        assert!(Settings::parse("p", &["=1".to_owned()]).is_err());
        let mut given = settings(&["a=10", "b=soon", "c=0", "typo=1"]);
        let error = given.number("a", 0_u8, 0..=9).expect_err("above");
        assert!(error.to_string().contains("cannot be 10"), "{error}");
        assert!(given.time("b", Nanos::ZERO).is_err());
        assert!(given.rate("c", 1).is_err());
        let error = given.finish().expect_err("nobody asked for it");
        assert!(
            error.to_string().contains("'typo'; it has: a, b, c"),
            "{error}"
        );
    }
}

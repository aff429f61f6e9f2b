// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be asked of a supervisor, and how it answers.

use serde::Deserialize;
use serde::Serialize;
use terrace_core::Pid;
use terrace_policy::Share;

use crate::status::Status;
use crate::why::Why;
use crate::why::WhyQuestion;

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Its figures.
    Status,
    /// Stop acting.
    Pause,
    /// Act again.
    Resume,
    /// Manage a program of the group.
    Join(Join),
    /// What the policy believes of a process.
    Why(WhyQuestion),
}

/// A member of a group says who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The `terrace run` that runs the program. What descends from it belongs to the group.
    pub member: u32,
    /// 0 is no priority.
    pub priority: u32,
    /// Bytes that others of the group do not push out of the fast tier, as far as it uses them.
    #[serde(default)]
    pub floor_bytes: u64,
    /// Bytes that may be in the fast tier.
    #[serde(default)]
    pub ceiling_bytes: Option<u64>,
    /// The program, once it runs.
    pub program: Option<u32>,
}

impl Join {
    /// What the member's processes have beside the others, together.
    #[must_use]
    pub const fn share(&self) -> Share {
        Share {
            whose: Some(Pid(self.member)),
            priority: self.priority,
            floor_bytes: self.floor_bytes,
            ceiling_bytes: self.ceiling_bytes,
        }
    }
}

/// What a supervisor answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The request was carried out; this is how things are now.
    Status(Box<Status>),
    /// What was asked by [`Request::Why`].
    Why(Box<Why>),
    /// What is wrong with the request.
    Error(String),
}

impl Request {
    /// Reads what somebody sent.
    ///
    /// # Errors
    ///
    /// Where it is no request.
    pub fn read(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }

    /// As it is sent, with the end of its line.
    ///
    /// # Panics
    ///
    /// Never: a request has no map whose keys are no text.
    #[must_use]
    pub fn line(&self) -> String {
        line(self)
    }
}

impl Answer {
    /// Reads what a supervisor sent.
    ///
    /// # Errors
    ///
    /// Where it is no answer, or a status of another version than [`crate::SCHEMA_VERSION`].
    pub fn read(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }

    /// As it is sent, with the end of its line.
    ///
    /// # Panics
    ///
    /// Never: an answer has no map whose keys are no text.
    #[must_use]
    pub fn line(&self) -> String {
        line(self)
    }
}

fn line(what: &impl Serialize) -> String {
    serde_json::to_string(what).expect("all keys of its maps are text") + "\n"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Questions that are right but for some characters: refused, or what they say.
        #[test]
        fn fuzz_questions(
            which in 0_u8..5,
            (member, priority) in any::<(u32, u32)>(),
            program in any::<Option<u32>>(),
            (page, floor_bytes, ceiling_bytes) in any::<(Option<u64>, u64, Option<u64>)>(),
            wrong in prop::collection::vec((any::<prop::sample::Index>(), "[ -~]"), 0..3),
            deep in 0_usize..200,
        ) {
            let request = match which {
                0 => Request::Status,
                1 => Request::Pause,
                2 => Request::Resume,
                3 => Request::Join(Join { member, priority, floor_bytes, ceiling_bytes, program }),
                _ => Request::Why(WhyQuestion { pid: member, page }),
            };
            let mut line = request.line().trim_end().to_owned();
            let whole = Request::read(&line).expect("its own words");
            prop_assert_eq!(whole, request);
            for (at, with) in &wrong {
                let at = at.index(line.len());
                line.replace_range(at..=at, with);
            }
            if let Ok(read) = Request::read(&line) {
                prop_assert_eq!(Request::read(&read.line()).expect("its own words"), read);
            }
            let nested = "[".repeat(deep) + &line;
            prop_assert!(deep == 0 || Request::read(&nested).is_err());
        }
    }
}

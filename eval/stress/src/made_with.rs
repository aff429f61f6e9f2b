// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run came to as JSON, and beside it what it was made with.

use serde::Serialize;
use terrace_experiment::RunInfo;

/// An object of these figures on one line, and under `run` what they were made with. Orders are drawn anew each time,
/// so that there is no seed; `seconds` is how long they were to last, where that was said.
pub(crate) fn json(figures: &impl Serialize, seconds: Option<f64>) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(figures)?;
    let run = RunInfo {
        seconds,
        ..RunInfo::of_host()
    };
    value["run"] = serde_json::to_value(run)?;
    Ok(value.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn figures_say_what_they_were_made_with() {
        let figures = BTreeMap::from([("moved", 7)]);
        let text = json(&figures, Some(2.5)).expect("data");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["moved"], 7);
        let run: RunInfo = serde_json::from_value(value["run"].clone()).expect("all fields");
        assert_eq!(run.seconds, Some(2.5));
        assert!(run.kernel.is_some() && !run.revision.is_empty());
    }
}

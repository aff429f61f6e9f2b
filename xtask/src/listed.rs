// SPDX-License-Identifier: MIT OR Apache-2.0
//! A preset is its folder, the folder's `pub mod` and a line in `PRESETS`: each value is listed there once, and nothing
//! else leads to it.
//!
//! That no text names it says `names`. So code outside a folder cannot tell its preset from others, and what holds of
//! all presets (`crates/cli/tests/policies.rs`) holds of one that is added.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use proc_macro2::TokenStream;
use proc_macro2::TokenTree;

use crate::names;
use crate::sources;

/// The list, the default and what all are compared with.
const LIST: &str = "crates/policy/src/preset.rs";
/// Who leads to one all the same: what stands for the guest's kernel in the lab, with tiers and without, and the policy that does nothing, with
/// which baselines run.
const MAY: &[(&str, &str)] = &[
    ("eval/lab/src/compare/record.rs", "kernel_tiering"),
    ("eval/lab/src/compare/record.rs", "linux_nb"),
    ("eval/sim/src/system.rs", "none"),
];

/// A preset by its folder and the name of its value.
type Value = (String, String);

/// What is listed twice or not at all, and what leads to a preset beside the list; a line each.
pub(crate) fn wrong(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join(names::PRESETS);
    // How often each is listed.
    let mut values: BTreeMap<Value, usize> = BTreeMap::new();
    for file in sources::below(&folder)? {
        let path = file.strip_prefix(&folder)?.with_extension("");
        let module = path.iter().next().context("a file of the folder")?;
        let module = module.to_string_lossy().into_owned();
        let defined = statics(sources::tokens(&file)?).into_iter();
        values.extend(defined.map(|name| ((module.clone(), name), 0)));
    }
    let mut wrong = Vec::new();
    for value in listed(sources::tokens(&root.join(LIST))?) {
        match values.get_mut(&value) {
            Some(times) => *times += 1,
            None => wrong.push(format!(
                "{LIST} lists {}::{}, which there is not",
                value.0, value.1
            )),
        }
    }
    for ((module, name), times) in values.iter().filter(|(_, times)| **times != 1) {
        wrong.push(format!(
            "{LIST} lists {module}::{name} {times} times, not once"
        ));
    }
    for file in sources::all(root)? {
        let path = file.strip_prefix(root)?;
        if path.starts_with(names::PRESETS) || names::is_test(path) || path == Path::new(LIST) {
            continue;
        }
        for (module, _) in paths(&names::code(sources::tokens(&file)?)) {
            let preset = values.keys().any(|(known, _)| *known == module);
            let may = MAY
                .iter()
                .any(|(file, one)| path == Path::new(file) && module == *one);
            if preset && !may {
                wrong.push(format!("{} leads to presets::{module}", path.display()));
            }
        }
    }
    Ok(wrong)
}

/// Names of what is `static NAME: Preset`.
fn statics(tokens: TokenStream) -> Vec<String> {
    let words = words(&names::code(tokens));
    let preset = words
        .windows(4)
        .filter(|w| w[0] == "static" && w[2] == ":" && w[3] == "Preset");
    preset.map(|w| w[1].clone()).collect()
}

/// What `PRESETS` has.
fn listed(tokens: TokenStream) -> Vec<Value> {
    let code = names::code(tokens);
    let is = |token: &TokenTree, text: &str| token.to_string() == text;
    let begin = code
        .windows(2)
        .position(|w| is(&w[0], "static") && is(&w[1], "PRESETS"));
    let list = code.into_iter().skip(begin.unwrap_or(usize::MAX));
    let list: Vec<TokenTree> = list.take_while(|token| !is(token, ";")).collect();
    paths(&list)
}

/// All `presets::MODULE::NAME`; of one that goes no further the name is empty.
fn paths(code: &[TokenTree]) -> Vec<Value> {
    let words = words(code);
    let is_path = |at: usize| {
        words
            .get(at..at + 2)
            .is_some_and(|marks| marks == [":", ":"])
    };
    let begins = (0..words.len()).filter(|at| words[*at] == "presets" && is_path(at + 1));
    let value = |at: usize| {
        let module = words.get(at + 3)?.clone();
        let name = words.get(at + 6).filter(|_| is_path(at + 4));
        Some((module, name.cloned().unwrap_or_default()))
    };
    begins.filter_map(value).collect()
}

fn words(code: &[TokenTree]) -> Vec<String> {
    code.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const PRESET: &str = "pub static PRESET: Preset = Preset { name: \"made-up\" };";

    /// Sources with one preset, and what else there is.
    fn found(list: &str, more: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().expect("a folder");
        let list = format!("pub static PRESETS: &[&Preset] = &[{list}]; static OTHER: u8 = 1;");
        let preset = format!("{}/made_up/mod.rs", names::PRESETS);
        let files = [
            (LIST, list.as_str()),
            (&preset, PRESET),
            ("eval/a.rs", ""),
            ("xtask/a.rs", ""),
        ];
        for (name, text) in files.iter().chain(more) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("not the root")).expect("made");
            fs::write(path, text).expect("written");
        }
        wrong(root.path()).expect("read")
    }

    #[test]
    fn a_made_up_preset_is_a_folder_and_a_line_and_nothing_else() {
        let line = "&presets::made_up::PRESET,";
        assert_eq!(found(line, &[]), [""; 0]);
        assert!(found("", &[])[0].contains("made_up::PRESET 0 times"));
        assert!(found(&line.repeat(2), &[])[0].contains("2 times"));
        let gone = found(&format!("{line} &presets::other::PRESET"), &[]);
        assert!(
            gone[0].contains("other::PRESET, which there is not"),
            "{gone:?}"
        );
        let user = |text| found(line, &[("eval/user.rs", text)]);
        let leads = user("fn f() { g(&terrace_policy::presets::made_up::PRESET) }");
        assert_eq!(leads, ["eval/user.rs leads to presets::made_up"]);
        assert_eq!(user("use terrace_policy::presets::made_up;").len(), 1);
        assert_eq!(
            user("use comfy_table::presets::NOTHING; fn made_up() {}"),
            [""; 0]
        );
        assert_eq!(
            user("#[cfg(test)] mod tests { use a::presets::made_up::PRESET; }"),
            [""; 0]
        );
        let test = found(
            line,
            &[("eval/tests/a.rs", "use a::presets::made_up::PRESET;")],
        );
        assert_eq!(test, [""; 0]);
    }

    #[test]
    fn every_preset_is_listed_once_and_reached_by_the_list() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(wrong(&root).expect("read"), [""; 0]);
        let values = listed(sources::tokens(&root.join(LIST)).expect("read"));
        assert!(values.len() > 10, "{values:?}");
    }
}

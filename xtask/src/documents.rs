// SPDX-License-Identifier: MIT OR Apache-2.0
//! What documents say of the code: which crate names which (ARCHITECTURE.md, written from [`ALLOWED`]), and the test
//! that holds each promise (SPECIFICATION.md: every file, test and target named there exists).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::edges::ALLOWED;
use crate::sources;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const SPECIFICATION: &str = "SPECIFICATION.md";

/// What does not agree, a line each.
pub(crate) fn wrong(root: &Path) -> anyhow::Result<Vec<String>> {
    let read = |name: &str| fs::read_to_string(root.join(name)).context(name.to_owned());
    let mut wrong = Vec::new();
    let architecture = read(ARCHITECTURE)?;
    if with_edges(&architecture) != architecture {
        wrong.push(format!(
            "{ARCHITECTURE}: its table of crates; cargo run -p xtask -- write-docs writes it"
        ));
    }
    let listed = |name: &str| architecture.lines().any(|line| row_of(line) == Some(name));
    let missing = ALLOWED
        .iter()
        .filter(|(name, _)| *name != "xtask" && !listed(name));
    wrong.extend(missing.map(|(name, _)| format!("{ARCHITECTURE}: no row for {name}")));
    let known = Known::read(root)?;
    for row in read(SPECIFICATION)?
        .lines()
        .skip_while(|line| !line.starts_with("|--"))
    {
        wrong.extend(known.unheld(row));
    }
    Ok(wrong)
}

/// Writes what is generated.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    let path = root.join(ARCHITECTURE);
    let text = fs::read_to_string(&path).context(ARCHITECTURE)?;
    fs::write(path, with_edges(&text)).context(ARCHITECTURE)
}

/// The package that a row of the table of crates is about.
fn row_of(line: &str) -> Option<&'static str> {
    let folder = line.strip_prefix("| `")?.split('`').next()?;
    let name = folder
        .strip_prefix("crates/")
        .or(folder.strip_prefix("eval/"))?;
    let package = |one: &&str| one.strip_prefix("terrace-") == Some(name);
    ALLOWED.iter().map(|(one, _)| *one).find(package)
}

/// The text with the last column of each crate's row as the table of edges has it.
fn with_edges(text: &str) -> String {
    let line = |line: &str| {
        let edges = row_of(line).and_then(|name| ALLOWED.iter().find(|(one, _)| *one == name));
        let front = line
            .strip_suffix(" |")
            .and_then(|line| line.rsplit_once("| "));
        let (Some((_, edges)), Some((front, _))) = (edges, front) else {
            return format!("{line}\n");
        };
        let short = |name: &&str| name.trim_start_matches("terrace-").to_owned();
        let names: Vec<String> = edges.iter().map(short).collect();
        let names = if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(", ")
        };
        format!("{front}| {names} |\n")
    };
    text.lines().map(line).collect()
}

/// What a promise can be held by.
struct Known<'a> {
    root: &'a Path,
    functions: BTreeSet<String>,
    makefile: String,
}

impl<'a> Known<'a> {
    fn read(root: &'a Path) -> anyhow::Result<Self> {
        let mut functions = BTreeSet::new();
        for file in sources::all(root)? {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let names = text.split("fn ").skip(1);
            let names = names.filter_map(|after| after.split(['(', '<']).next());
            functions.extend(names.map(str::to_owned));
        }
        let makefile = fs::read_to_string(root.join("Makefile")).context("Makefile")?;
        Ok(Self {
            root,
            functions,
            makefile,
        })
    }

    /// What a promise is said to be held by and is not there, a line each.
    fn unheld(&self, row: &str) -> Vec<String> {
        let Some((_, held)) = row.strip_prefix('|').and_then(|row| row.split_once('|')) else {
            return Vec::new();
        };
        let quoted = held.split('`').skip(1).step_by(2);
        quoted
            .filter(|what| self.is_there(what) == Some(false))
            .map(|what| format!("{SPECIFICATION}: nothing is called '{what}'"))
            .collect()
    }

    /// Whether it exists; none where it is the name of nothing here, such as an option.
    fn is_there(&self, what: &str) -> Option<bool> {
        if let Some(target) = what.strip_prefix("make ") {
            return Some(self.makefile.contains(&format!("\n{target}:")));
        }
        if what.contains(' ') || what.starts_with('-') {
            return None;
        }
        if what.contains('/') {
            return Some(self.root.join(what).exists());
        }
        Some(match what.strip_suffix('*') {
            Some(begin) => self.functions.iter().any(|name| name.starts_with(begin)),
            None => self.functions.contains(what),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_crates_is_written_from_the_edges() {
        let stale = "| crate | job | names |\n| `crates/api` | requests | policy |\n| `crates/core` | time | x |\ntext\n";
        let fresh = "| crate | job | names |\n| `crates/api` | requests | core, policy |\n| `crates/core` | time | nothing |\ntext\n";
        assert_eq!(with_edges(stale), fresh);
        assert_eq!(with_edges(fresh), fresh);
    }

    #[test]
    fn promises_name_what_exists() {
        let known = Known {
            root: Path::new(env!("CARGO_MANIFEST_DIR")),
            functions: BTreeSet::from(["no_word_is_lost".to_owned()]),
            makefile: "all:\nfuzz: setup\n".to_owned(),
        };
        let good =
            "| it works | `src/main.rs` `no_word_is_lost`, `no_word_*` (`make fuzz`, `--chaos`) |";
        assert_eq!(known.unheld(good), [""; 0]);
        let bad = "| `gone` is no promise's test | `src/gone.rs` `no_page_is_lost`, `no_page_*`, `make gone` |";
        assert_eq!(known.unheld(bad).len(), 4, "{:?}", known.unheld(bad));
    }
}

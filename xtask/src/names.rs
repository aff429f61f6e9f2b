// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nothing outside a preset's folder knows its name: whoever offers policies goes through `PRESETS`.
//!
//! Looked for are string literals of the crates that have a preset's name as a word. Comments and tests
//! may name presets, and so may the files in [`MAY`].

use std::fs;
use std::path::Path;

use anyhow::Context;
use proc_macro2::Delimiter;
use proc_macro2::TokenStream;
use proc_macro2::TokenTree;

use crate::sources;

pub(crate) const PRESETS: &str = "crates/policy/src/presets";
/// An English word as well, in no message a preset's name.
const NOT_LOOKED_FOR: &str = "none";
/// Files whose names are not the presets', though they are spelt alike: papers, and systems of papers
/// that are not built yet.
const MAY: &[&str] = &["eval/claims/src/claim.rs", "eval/sim/src/planned.rs"];

/// What names a preset and should not, a line each.
pub(crate) fn wrong(root: &Path) -> anyhow::Result<Vec<String>> {
    let names = presets(root)?;
    let mut wrong = Vec::new();
    for file in sources::all(root)? {
        let path = file.strip_prefix(root)?;
        if path.starts_with(PRESETS)
            || is_test(path)
            || MAY.iter().any(|may| path == Path::new(may))
        {
            continue;
        }
        let tokens = sources::tokens(&file)?;
        for (name, literal) in named(tokens, &names) {
            wrong.push(format!("{} names preset {name}: {literal}", path.display()));
        }
    }
    Ok(wrong)
}

/// The presets' names, as each says it in its own source.
fn presets(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for source in sources::below(&root.join(PRESETS))? {
        let text = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
        let Some((_, value)) = text.split_once(": Preset = Preset {") else {
            continue;
        };
        let name = value.split('"').nth(1);
        let name = name.with_context(|| format!("{}: no name", source.display()))?;
        names.push(name.to_owned());
    }
    names.retain(|name| name != NOT_LOOKED_FOR);
    Ok(names)
}

/// Whether a file has tests only.
pub(crate) fn is_test(path: &Path) -> bool {
    let folder = |name: &str| path.iter().any(|part| part == name);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    folder("tests") || folder("benches") || stem == "tests" || stem.ends_with("_tests")
}

/// String literals with a name in them as a word: the name and the literal.
fn named(tokens: TokenStream, names: &[String]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for token in code(tokens) {
        let TokenTree::Literal(literal) = token else {
            continue;
        };
        let literal = literal.to_string();
        let word = |c: char| !(c.is_alphanumeric() || c == '_' || c == '-');
        let name = names
            .iter()
            .find(|name| literal.contains('"') && literal.split(word).any(|part| part == *name));
        if let Some(name) = name {
            found.push((name.clone(), literal));
        }
    }
    found
}

/// All tokens in their order, without delimiters, documentation and what is compiled for tests only.
pub(crate) fn code(tokens: TokenStream) -> Vec<TokenTree> {
    let mut found = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                // Of the file itself: `#![doc = ...]`.
                tokens.next_if(
                    |next| matches!(next, TokenTree::Punct(bang) if bang.as_char() == '!'),
                );
                let Some(TokenTree::Group(attribute)) = tokens.peek() else {
                    continue;
                };
                let text: String = attribute.stream().to_string().split_whitespace().collect();
                if text == "cfg(test)" {
                    skip_item(&mut tokens);
                } else if text.starts_with("doc=") {
                    tokens.next();
                }
            }
            TokenTree::Group(group) => found.extend(code(group.stream())),
            other => found.push(other),
        }
    }
    found
}

/// Up to the end of the item: its braces, or a semicolon.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) {
    let _ = tokens.find(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        _ => false,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        let names = ["made-up".to_owned(), "other".to_owned()];
        let found = named(source.parse().expect("Rust"), &names);
        found.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_name_is_found_where_code_has_it_and_nowhere_else() {
        assert_eq!(found(r#"fn f() { g("made-up"); }"#), ["made-up"]);
        assert_eq!(
            found(r#"const A: &str = "none,made-up,x"; const B: u8 = 1;"#),
            ["made-up"]
        );
        assert_eq!(found(r#"#[arg(default_value = "other")] x: u8"#), ["other"]);
        assert!(
            found(
                r#"//! "made-up"
            /// "made-up"
            fn f() { g("made-up-large", other, 'o'); } // "other""#
            )
            .is_empty()
        );
        let tests =
            r#"#[cfg(test)] mod tests { const A: &str = "other"; } const B: &str = "made-up";"#;
        assert_eq!(found(tests), ["made-up"]);
    }

    #[test]
    fn the_presets_are_found_and_nobody_names_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(presets(&root).expect("read").len() >= 10);
        assert_eq!(wrong(&root).expect("read"), [""; 0]);
    }
}

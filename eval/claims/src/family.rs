// SPDX-License-Identifier: MIT OR Apache-2.0
//! A family of claims: one file whose `[[case]]`s say what differs.
//!
//! A case is the file with the case's keys in place of its own: tables are merged key by key, everything else is replaced. Its id is the file's
//! and, behind a dash, the case's `name`. Places in the text stay as they are, so that errors name the right line.

use toml::Spanned;
use toml::de::DeTable;
use toml::de::DeValue;

use crate::raw::Checked;
use crate::raw::at;
use crate::raw::fault;

/// A claim of a file: its case's name, if the file has cases, and its keys.
pub(crate) type Member<'a> = (Option<String>, Spanned<DeTable<'a>>);

/// The claims of a file, one where it has no cases.
pub(crate) fn members(file: Spanned<DeTable<'_>>) -> Checked<Vec<Member<'_>>> {
    let span = file.span();
    let mut shared = file.into_inner();
    let Some(cases) = shared.remove("case") else {
        return Ok(vec![(None, Spanned::new(span, shared))]);
    };
    let start = at(&cases);
    let DeValue::Array(cases) = cases.into_inner() else {
        return fault(start, "case is not a table of its own: write [[case]]");
    };
    let mut members: Vec<Member<'_>> = Vec::new();
    for case in cases {
        let start = at(&case);
        let DeValue::Table(mut own) = case.into_inner() else {
            return fault(start, "case is not a table of its own: write [[case]]");
        };
        let name = match own.remove("name").map(Spanned::into_inner) {
            Some(DeValue::String(name)) if is_word(&name) => name.into_owned(),
            _ => return fault(start, "a [[case]] needs a name: letters, digits and dashes"),
        };
        if members
            .iter()
            .any(|(other, _)| other.as_ref() == Some(&name))
        {
            return fault(start, format!("second [[case]] named '{name}'"));
        }
        let mut whole = shared.clone();
        merge(&mut whole, own);
        members.push((Some(name), Spanned::new(span.clone(), whole)));
    }
    Ok(members)
}

fn is_word(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    !name.is_empty() && name.chars().all(fits)
}

fn merge<'a>(whole: &mut DeTable<'a>, own: DeTable<'a>) {
    for (key, value) in own {
        let span = value.span();
        let merged = match (
            whole
                .remove(key.get_ref().as_ref())
                .map(Spanned::into_inner),
            value.into_inner(),
        ) {
            (Some(DeValue::Table(mut below)), DeValue::Table(above)) => {
                merge(&mut below, above);
                DeValue::Table(below)
            }
            (_, above) => above,
        };
        whole.insert(key, Spanned::new(span, merged));
    }
}

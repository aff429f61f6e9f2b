// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files under `claims/` themselves: each is read, and its set-up is whole.

use std::path::Path;
use std::path::PathBuf;

use terrace_claims::Claim;
use terrace_claims::Paper;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../claims")
}

fn read(folder: &Path, claims: &mut Vec<Claim>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read(&path, claims);
        } else if path.extension().is_some_and(|e| e == "toml") {
            let inside = path
                .strip_prefix(root())
                .expect("below it")
                .with_extension("");
            let text = std::fs::read_to_string(&path).expect("a text");
            let claim = Claim::parse(&text, &inside.to_string_lossy(), &path);
            claims.extend(claim.unwrap_or_else(|error| panic!("{error}")));
        }
    }
}

#[test]
fn all_claims_are_read() {
    let mut claims = Vec::new();
    read(&root(), &mut claims);
    assert!(claims.len() >= 40, "{} claims", claims.len());
    for paper in Paper::ALL {
        let of = claims.iter().filter(|claim| claim.paper == paper);
        assert!(of.count() >= 5, "{}", paper.title());
    }
    for claim in &claims {
        let folder = claim.id.split('/').next().unwrap();
        assert_eq!(folder, claim.paper.key(), "{}", claim.id);
    }
}

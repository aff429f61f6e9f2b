// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replacing a file as a whole: `rename(2)` over its place, after `fsync(2)`.
//!
//! `rename(2)` is atomic for who opens the file; only with the file synced before it, and its directory
//! after it, is it so across a crash of the machine, too.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;

/// Writes a file so that it is there whole, or as it was; missing directories are made.
///
/// The new content waits beside it, as `NAME.new` in place of its extension: one writer at a time.
///
/// # Errors
///
/// What creating, writing or renaming gave. The file is as it was then.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    fs::create_dir_all(directory)?;
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made/for/it.json");
        replace(&path, b"a longer one").unwrap();
        replace(&path, b"short").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_leaves_the_file_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kept");
        replace(&path, b"kept").unwrap();
        fs::create_dir(directory.path().join("kept.new")).unwrap();
        assert!(replace(&path, b"lost").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"kept");
    }
}

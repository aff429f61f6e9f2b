// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes and times as people write them: `4GiB`, `512M`, `10ms`, `2s`.

use thiserror::Error;

use crate::Nanos;

/// Why a written quantity was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseQuantityError {
    /// Not a size.
    #[error("'{0}' is not a size; write it like 4GiB, 512M or 4096")]
    Bytes(String),
    /// Not a time.
    #[error("'{0}' is not a time; write it like 10ms, 2s or 1min")]
    Duration(String),
}

/// Reads a size in bytes. `K`, `M`, `G` and `T` alone are binary, as in `512M` for a memory size.
///
/// # Errors
///
/// Where the text is not a number with a known unit.
pub fn parse_bytes(text: &str) -> Result<u64, ParseQuantityError> {
    let trimmed = text.trim();
    let binary = match trimmed.strip_suffix(['K', 'M', 'G', 'T', 'k', 'm', 'g', 't']) {
        Some(_) => format!("{trimmed}iB"),
        None => trimmed.to_owned(),
    };
    binary
        .parse::<bytesize::ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|_| ParseQuantityError::Bytes(text.to_owned()))
}

/// Reads a time.
///
/// # Errors
///
/// Where the text is not a number with a known unit.
pub fn parse_duration(text: &str) -> Result<Nanos, ParseQuantityError> {
    humantime::parse_duration(text.trim())
        .map(Nanos::from)
        .map_err(|_| ParseQuantityError::Duration(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        assert_eq!(parse_bytes("512M"), Ok(512 << 20));
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("4 GB"), Ok(4_000_000_000));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert!(parse_bytes("lots").is_err());
        assert!(parse_bytes("-1M").is_err());
    }

    #[test]
    fn times_as_people_write_them() {
        assert_eq!(parse_duration("10ms"), Ok(Nanos::from_millis(10)));
        assert_eq!(parse_duration("2s"), Ok(Nanos::from_secs(2)));
        assert!(parse_duration("soon").is_err());
    }
}

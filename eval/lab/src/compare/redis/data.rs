// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data set of the workload `redis`.
//!
//! Every value can be recognised: those of the start say their key's number and are zero else, those
//! of the load are their key, a number and its letter, repeated (`eval/lab/scenarios/redis-load.py`). At
//! the end every key must hold one of its own, in one piece.

use std::os::unix::net::UnixStream;

use anyhow::Context;
use anyhow::bail;
use anyhow::ensure;

use crate::compare::resp::Client;
use crate::compare::resp::Reply;

/// Bytes of a value of the start.
const VALUE_BYTES: usize = 200;
/// Resident bytes of a key with its value, measured: jemalloc's size classes and the hash table.
const BYTES_PER_KEY: u64 = 310;
/// How often the load repeats the letter of a value; with key and number some 200 bytes.
pub(super) const LETTERS: usize = 180;
/// Values in one go when checking; their bytes fit a socket's buffer.
const BATCH: usize = 400;
/// The data set in hundredths of the free fast memory.
const HUNDREDTHS_OF_FREE: u64 = 175;

/// Keys for that much free fast memory.
#[must_use]
pub(super) fn keys_for(fast_free: u64) -> u32 {
    u32::try_from(fast_free / 100 * HUNDREDTHS_OF_FREE / BYTES_PER_KEY).unwrap_or(u32::MAX)
}

fn key(index: u32) -> String {
    format!("key:{index}")
}

/// What `DEBUG POPULATE` gives key `index`.
fn first_value(index: u32) -> Vec<u8> {
    let mut value = format!("value:{index}").into_bytes();
    value.resize(VALUE_BYTES, 0);
    value
}

/// What the load writes: key, a number below 64, and the letter of that number.
fn loaded_value(index: u32, number: u8) -> Vec<u8> {
    let mut value = format!("{}:{number};", key(index)).into_bytes();
    value.resize(value.len() + LETTERS, b'0' + number);
    value
}

/// Whether that is a value of key `index`: the first one, or one of the load with any number.
fn is_value_of(index: u32, found: &[u8]) -> bool {
    let number = || {
        let head = found.get(..found.len().checked_sub(LETTERS)?)?;
        let number = std::str::from_utf8(head).ok()?.rsplit_once(':')?.1;
        let number = number.strip_suffix(';')?.parse().ok()?;
        (number < 64).then_some(number)
    };
    found == first_value(index)
        || number().is_some_and(|number| found == loaded_value(index, number))
}

/// Makes all keys with their first values.
pub(super) fn preload(client: &mut Client<UnixStream>, keys: u32) -> anyhow::Result<()> {
    let (keys, bytes) = (keys.to_string(), VALUE_BYTES.to_string());
    let command = ["DEBUG", "POPULATE", &keys, "key", &bytes];
    client
        .ask(&command.map(str::as_bytes))
        .context("redis cannot make the data set")?;
    Ok(())
}

/// Reads every key: nothing may be lost or mixed up.
pub(super) fn check(client: &mut Client<UnixStream>, keys: u32) -> anyhow::Result<()> {
    let size = client.ask(&[b"DBSIZE"])?;
    ensure!(size == keys.to_string(), "{size} keys instead of {keys}");
    let all: Vec<u32> = (0..keys).collect();
    let mut batches = all.chunks(BATCH).peekable();
    let ask = |client: &mut Client<UnixStream>, batch: &[u32]| {
        let names: Vec<String> = batch.iter().copied().map(key).collect();
        let command: Vec<&[u8]> = std::iter::once(b"MGET".as_slice())
            .chain(names.iter().map(String::as_bytes))
            .collect();
        client.queue(&command);
        client.send()
    };
    if let Some(first) = batches.peek() {
        ask(client, first)?;
    }
    while let Some(batch) = batches.next() {
        // The server reads the next ones while these are looked at.
        if let Some(next) = batches.peek() {
            ask(client, next)?;
        }
        let count = client.many()?;
        ensure!(count == batch.len(), "MGET answered {count} values");
        for &index in batch {
            right(index, &client.reply()?)?;
        }
    }
    Ok(())
}

/// Whether key `index` may hold that.
fn right(index: u32, found: &Reply) -> anyhow::Result<()> {
    let name = key(index);
    match found {
        Reply::Text(found) if is_value_of(index, found) => Ok(()),
        Reply::Text(found) => {
            let begin = String::from_utf8_lossy(&found[..found.len().min(80)]);
            bail!("Memory is wrong: {name} holds '{begin}'")
        }
        other => bail!("Memory is wrong: {name} holds {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_its_key_and_is_in_one_piece() {
        assert!(is_value_of(7, &first_value(7)));
        assert!(!is_value_of(8, &first_value(7)), "another key's");
        let mut good = loaded_value(7, 17);
        assert_eq!((good.len(), &good[..10]), (9 + LETTERS, &b"key:7:17;A"[..]));
        assert!(is_value_of(7, &good));
        assert!(!is_value_of(8, &good), "another key's");
        assert!(!is_value_of(7, &good[..good.len() - 1]), "cut off");
        assert!(!is_value_of(7, &[0; VALUE_BYTES]), "a zero page");
        good[50..].copy_from_slice(&loaded_value(7, 61)[50..]);
        assert!(!is_value_of(7, &good), "two halves");
    }

    #[test]
    fn the_data_set_is_between_one_and_a_half_and_two_times_what_is_free() {
        let free = 100 << 20;
        let bytes = u64::from(keys_for(free)) * BYTES_PER_KEY;
        assert!(bytes > free * 3 / 2 && bytes < free * 2);
    }
}

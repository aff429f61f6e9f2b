// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings in memory: wrap-around, lost and broken records, and any bytes at all.

use proptest::prelude::*;

use super::feed::record;
use super::walk::RECORD_BYTES_MAX;
use super::walk::Walked;
use super::walk::walk;
use super::*;

const BYTES: usize = 4096;

fn drain(ring: &mut Ring) -> (Vec<Vec<u8>>, Drained) {
    let mut records = Vec::new();
    let drained = ring.drain(&mut |bytes| records.push(bytes.to_vec()));
    (records, drained)
}

/// A record of `bytes`, told apart by `number`.
fn numbered(number: u64, bytes: usize) -> Vec<u8> {
    let mut body = vec![0; bytes - 8];
    for (at, byte) in body.iter_mut().enumerate() {
        *byte = u8::try_from((number + at as u64) % 251).unwrap();
    }
    record(9, 0, &body)
}

#[test]
fn records_come_out_as_they_went_in_over_the_end_again_and_again() {
    let (mut feed, mut ring) = Feed::pair(BYTES, 1).unwrap();
    let mut number = 0;
    // Lengths that let the end fall into every part of a record, the header included.
    for round in 0..400 {
        let bytes = [16, 24, 40, 64, 72, 1000][round % 6];
        let mut written = Vec::new();
        for _ in 0..=round % 3 {
            let record = numbered(number, bytes);
            assert!(feed.push(&record));
            written.push(record);
            number += 1;
        }
        let (read, drained) = drain(&mut ring);
        assert_eq!(read, written);
        assert_eq!(drained.bytes, (bytes * written.len()) as u64);
        assert_eq!(drained.broken_bytes, 0);
    }
    assert_eq!(ring.waiting(), 0);
}

#[test]
fn what_finds_no_room_is_told() {
    let (mut feed, mut ring) = Feed::pair(BYTES, 42).unwrap();
    let record = numbered(0, 64);
    let written = (0..100).filter(|_| feed.push(&record)).count();
    // One byte stays free, so one record less than the ring holds.
    assert_eq!(written, BYTES / 64 - 1);
    assert_eq!(feed.pending(), 100 - written as u64);
    assert_eq!(drain(&mut ring).0.len(), written);
    assert!(feed.push(&record));
    let (records, _) = drain(&mut ring);
    let layout = Layout(Fields::TIME);
    let lost = 100 - written as u64;
    assert_eq!(layout.parse(&records[0]), Ok(Record::Lost { id: 42, lost }));
    assert!(matches!(layout.parse(&records[1]), Ok(Record::Sample(_))));
    assert_eq!((records.len(), feed.pending()), (2, 0));
}

#[test]
fn a_full_ring_is_read_to_the_end() {
    let (mut feed, mut ring) = Feed::pair(BYTES, 1).unwrap();
    // Start in the middle, so that the full ring goes over the end.
    assert!(feed.push(&numbered(0, 2000)));
    drain(&mut ring);
    let mut written = Vec::new();
    loop {
        let record = numbered(written.len() as u64, 24);
        if !feed.push(&record) {
            break;
        }
        written.push(record);
    }
    assert_eq!(drain(&mut ring).0, written);
}

#[test]
fn a_header_that_cannot_be_ends_the_turn_not_the_ring() {
    let (mut feed, mut ring) = Feed::pair(BYTES, 1).unwrap();
    let good = numbered(3, 32);
    for bad in [
        // Shorter than a header, longer than what is there, cut short, nothing but zeroes.
        [9, 0, 0, 0, 0, 0, 4, 0].to_vec(),
        [9, 0, 0, 0, 0, 0, 0xff, 0xff].to_vec(),
        good[..12].to_vec(),
        vec![0; 16],
    ] {
        assert!(feed.push(&good));
        assert!(feed.push_raw(&bad));
        let (records, drained) = drain(&mut ring);
        assert_eq!(records, std::slice::from_ref(&good));
        assert_eq!(drained.broken_bytes, bad.len() as u64);
        // On from where the writer is.
        assert!(feed.push(&good));
        assert_eq!(drain(&mut ring).0, std::slice::from_ref(&good));
    }
    // A head that is further than the ring is long.
    feed.lie(3 * BYTES as u64);
    let (records, drained) = drain(&mut ring);
    assert!(records.is_empty());
    assert_eq!(drained.broken_bytes, 3 * BYTES as u64);
    assert!(feed.push(&good));
    assert_eq!(drain(&mut ring).0, [good]);
}

#[test]
fn rings_have_sizes_that_the_kernel_takes() {
    for bytes in [0, 1, 2048, 5000, 12288] {
        assert!(Feed::pair(bytes, 1).is_err(), "{bytes}");
    }
    assert!(Feed::pair(1 << 20, 1).is_ok());
}

#[test]
fn a_writer_and_a_reader_at_the_same_time_lose_nothing_silently() {
    const RECORDS: u64 = 300_000;
    let (mut feed, mut ring) = Feed::pair(1 << 14, 7).unwrap();
    let layout = Layout(Fields::TIME.with(Fields::ADDR));
    let writer = std::thread::spawn(move || {
        for number in 0..RECORDS {
            // Contents that show a record read before it was whole.
            let body = [number.to_ne_bytes(), (!number).to_ne_bytes()].concat();
            feed.push(&record(9, 0, &body));
        }
        feed
    });
    let (mut read, mut lost, mut last) = (0, 0, None);
    let mut turn = |ring: &mut Ring| {
        let drained = ring.drain(&mut |bytes| match layout.parse(bytes) {
            Ok(Record::Sample(sample)) => {
                assert_eq!(sample.addr, !sample.time);
                assert!(last.is_none_or(|last| last < sample.time));
                last = Some(sample.time);
                read += 1;
            }
            Ok(Record::Lost { lost: some, id: 7 }) => lost += some,
            other => panic!("{other:?}"),
        });
        assert_eq!(drained.broken_bytes, 0);
    };
    while !writer.is_finished() {
        turn(&mut ring);
    }
    let feed = writer.join().unwrap();
    turn(&mut ring);
    assert_eq!(read + lost + feed.pending(), RECORDS);
    assert!(read > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Any bytes, cut anywhere into two: the walk hands out only what is there, in order, and stops
    /// at what cannot be. It is what a walk over the bytes in one piece does.
    #[test]
    fn any_bytes_are_walked(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        small in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        enough in 1usize..700,
    ) {
        let mut bytes = bytes;
        if small {
            // Lengths that occur, so that walks go far.
            for size in bytes.iter_mut().skip(7).step_by(8) {
                *size = 0;
            }
            for size in bytes.iter_mut().skip(6).step_by(8) {
                *size %= 64;
            }
        }
        let cut = cut.index(bytes.len() + 1);
        let (first, second) = bytes.split_at(cut);
        let mut joined = Vec::new();
        let walked = walk(first, second, enough, &mut Vec::new(), &mut |record| {
            assert!((8..=RECORD_BYTES_MAX).contains(&record.len()));
            joined.extend_from_slice(record);
        });
        prop_assert_eq!(&joined, &bytes[..walked.bytes]);
        prop_assert!(walked.broken || walked.bytes >= enough.min(bytes.len()));
        let mut whole = Vec::new();
        let alone = walk(&bytes, &[], enough, &mut Vec::new(), &mut |record| {
            whole.extend_from_slice(record);
        });
        prop_assert_eq!(walked, alone);
        prop_assert_eq!(joined, whole);
    }

    /// Any bytes in a ring, at any place: it is read without harm and goes on.
    #[test]
    fn any_bytes_in_a_ring(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..500), 1..40),
    ) {
        let (mut feed, mut ring) = Feed::pair(BYTES, 1).unwrap();
        let good = numbered(5, 40);
        for chunk in chunks {
            prop_assert!(feed.push_raw(&chunk));
            let (records, drained) = drain(&mut ring);
            let bytes: usize = records.iter().map(Vec::len).sum();
            prop_assert_eq!(bytes as u64, drained.bytes);
            prop_assert_eq!(drained.bytes + drained.broken_bytes, chunk.len() as u64);
            prop_assert!(feed.push(&good));
            prop_assert_eq!(drain(&mut ring).0, std::slice::from_ref(&good));
        }
    }
}

#[test]
fn nothing_is_nothing() {
    let walked = walk(&[], &[], 1, &mut Vec::new(), &mut |_| panic!("a record"));
    assert_eq!(walked, Walked::default());
}

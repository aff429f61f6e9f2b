// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records byte by byte, and any bytes at all.

use proptest::prelude::*;

use super::feed::record;
use super::*;

const ALL: Fields = Fields::IDENTIFIER
    .with(Fields::IP)
    .with(Fields::TID)
    .with(Fields::TIME)
    .with(Fields::ADDR)
    .with(Fields::CPU)
    .with(Fields::PERIOD)
    .with(Fields::WEIGHT)
    .with(Fields::DATA_SOURCE)
    .with(Fields::PHYS_ADDR);
const TRACKING: Fields = ALL
    .without(Fields::IP)
    .without(Fields::PERIOD)
    .without(Fields::WEIGHT);

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Two u32 as they lie in a record.
fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// Every field, in the order of `linux/perf_event.h`.
fn full() -> Vec<u8> {
    let body = [
        77,
        0x40_1000,
        pair(12, 13),
        1_000,
        0x7fff_1238,
        pair(5, 0),
        4_999,
        321,
        0x82_u64 << 5 | 0xd << 33 | 2,
        0x1_2345_6238,
    ];
    record(9, 2, &words(&body))
}

#[test]
fn a_sample_with_every_field() {
    let sample = Sample {
        id: 77,
        ip: 0x40_1000,
        pid: 12,
        tid: 13,
        time: 1_000,
        addr: 0x7fff_1238,
        cpu: 5,
        period: 4_999,
        weight: 321,
        source: Some(DataSource(0x82 << 5 | 0xd << 33 | 2)),
        phys: Some(0x1_2345_6238),
        user: true,
    };
    assert_eq!(full().len(), ALL.sample_bytes());
    assert_eq!(Layout(ALL).parse(&full()), Ok(Record::Sample(sample)));
    assert_eq!(sample.source.unwrap().level(), Level::LocalMemory);
}

#[test]
fn fields_not_asked_for_are_not_read() {
    let body = words(&[77, pair(12, 13), 1_000, 0x7000, pair(5, 0), 2, 0]);
    let Ok(Record::Sample(sample)) = Layout(TRACKING).parse(&record(9, 1, &body)) else {
        panic!("no sample");
    };
    assert_eq!((sample.id, sample.tid, sample.addr), (77, 13, 0x7000));
    // Kernel mode; no physical address found.
    assert_eq!((sample.user, sample.phys), (false, None));
    assert_eq!((sample.ip, sample.weight), (0, 0));
}

#[test]
fn a_sample_cut_short_is_said_to_be() {
    let whole = full();
    for bytes in 0..whole.len() {
        let kind = if bytes < 8 { 0 } else { 9 };
        let error = Layout(ALL).parse(&whole[..bytes]);
        assert_eq!(error, Err(Malformed { kind, bytes }), "{bytes} bytes");
    }
    // A later kernel may write more.
    let mut longer = whole.clone();
    longer.extend([0xff; 16]);
    assert_eq!(Layout(ALL).parse(&longer), Layout(ALL).parse(&whole));
}

#[test]
fn records_that_are_no_samples() {
    let parse = |kind, misc, body: &[u8]| Layout(TRACKING).parse(&record(kind, misc, body));
    // sample_id_all: process and thread, time, processor, event.
    let trailer = words(&[pair(1, 2), 555, pair(3, 0), 77]);
    let with = |body: &[u64]| [words(body), trailer.clone()].concat();
    assert_eq!(
        parse(2, 0, &with(&[77, 1234])),
        Ok(Record::Lost { id: 77, lost: 1234 })
    );
    assert_eq!(
        parse(13, 0, &with(&[9])),
        Ok(Record::LostSamples { lost: 9 })
    );
    assert_eq!(
        parse(5, 0, &with(&[1, 77, 78])),
        Ok(Record::Throttled { id: 77 })
    );
    assert_eq!(
        parse(6, 0, &with(&[1, 77, 78])),
        Ok(Record::Unthrottled { id: 77 })
    );
    let task = Task {
        pid: 20,
        parent: 10,
        tid: 21,
        time: 99,
    };
    let body = with(&[pair(20, 10), pair(21, 11), 99]);
    assert_eq!(parse(7, 0, &body), Ok(Record::Fork(task)));
    assert_eq!(parse(4, 0, &body), Ok(Record::Exit(task)));
    // A name of 11 bytes, padded to 16.
    let mut comm = words(&[pair(20, 20)]);
    comm.extend(b"some-thing\0\0\0\0\0\0");
    comm.extend(&trailer);
    assert_eq!(
        parse(3, 1 << 13, &comm),
        Ok(Record::Exec { pid: 20, time: 555 })
    );
    // prctl(PR_SET_NAME), a mapping.
    assert_eq!(parse(3, 0, &comm), Ok(Record::Other(3)));
    assert_eq!(parse(10, 0, &[]), Ok(Record::Other(10)));
    assert!(parse(7, 0, &words(&[pair(20, 10)])).is_err());
    assert!(parse(3, 1 << 13, &words(&[1, 2])).is_err());
}

fn fields(wanted: u16) -> Fields {
    let all = [
        Fields::IP,
        Fields::TID,
        Fields::TIME,
        Fields::ADDR,
        Fields::CPU,
        Fields::PERIOD,
        Fields::WEIGHT,
        Fields::DATA_SOURCE,
        Fields::IDENTIFIER,
        Fields::PHYS_ADDR,
    ];
    all.into_iter()
        .enumerate()
        .filter(|(bit, _)| wanted >> bit & 1 != 0)
        .fold(Fields::default(), |all, (_, field)| all.with(field))
}

proptest! {
    /// Any bytes and any fields, mostly behind a header that is right: a record or an error, no panic.
    #[test]
    fn fuzz_perf_records(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        kind in 0u32..16,
        misc in prop_oneof![any::<u16>(), Just(1 << 13)],
        wanted in any::<u16>(),
        whole in prop_oneof![7 => Just(true), 1 => Just(false)],
    ) {
        let fields = fields(wanted);
        let bytes = if whole { record(kind, misc, &bytes) } else { bytes };
        let parsed = Layout(fields).parse(&bytes);
        if whole && kind == 9 {
            prop_assert_eq!(parsed.is_ok(), bytes.len() >= fields.sample_bytes());
        }
        if let Err(error) = parsed {
            prop_assert_eq!(error.bytes, bytes.len());
        }
    }

    /// Records in a ring, over its end, one of them perhaps with a length that cannot be: all before it come out
    /// whole, nothing behind it does.
    #[test]
    fn fuzz_perf_rings(
        sizes in prop::collection::vec(0_usize..40, 0..6),
        broken in prop::option::of((0_usize..6, any::<u16>())),
        split in any::<prop::sample::Index>(),
        enough in 0_usize..400,
    ) {
        let records: Vec<Vec<u8>> = sizes.iter().map(|size| record(9, 0, &vec![7; *size])).collect();
        let mut all = records.concat();
        let lie = broken.filter(|(which, _)| *which < records.len());
        if let Some((which, size)) = lie {
            let at: usize = records[..which].iter().map(Vec::len).sum();
            all[at + 6..at + 8].copy_from_slice(&size.to_ne_bytes());
        }
        let (first, second) = all.split_at(split.index(all.len() + 1));
        let (mut came, mut buffer) = (Vec::new(), Vec::new());
        let mut sink = |bytes: &[u8]| came.push(bytes.to_vec());
        let walked = super::walk::walk(first, second, enough, &mut buffer, &mut sink);
        prop_assert_eq!(walked.bytes, came.iter().map(Vec::len).sum::<usize>());
        prop_assert!(walked.bytes <= all.len());
        prop_assert!(walked.broken || walked.bytes >= enough.min(all.len()));
        let sound = lie.map_or(records.len(), |(which, _)| which).min(came.len());
        prop_assert_eq!(&came[..sound], &records[..sound]);
        prop_assert!(lie.is_some() || !walked.broken);
    }
}

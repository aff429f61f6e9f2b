// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reader against memory as the emulator writes it, byte for byte, and against nonsense.

use proptest::prelude::*;

use super::*;

const RING_RECORDS: usize = 8;
const RING_BYTES: usize = 4096 + RING_RECORDS * 48;

/// Memory with two rings of eight records.
fn memory() -> Vec<u8> {
    let mut bytes = vec![0; 4096 + 2 * RING_BYTES];
    bytes[..8].copy_from_slice(b"TRRCPMU1");
    for (word, value) in [
        (1, 1),
        (2, 2),
        (3, RING_RECORDS),
        (4, 48),
        (5, 4096),
        (6, RING_BYTES),
        (9, 97),
        (11, 200),
    ] {
        put(&mut bytes, word * 8, value as u64);
    }
    bytes
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Writes a record as `eval/lab/plugin/pmu.c` does: number `number` of a ring.
fn write(bytes: &mut [u8], ring: usize, number: u64) {
    let start = 4096 + ring * RING_BYTES;
    let place = usize::try_from(number).unwrap() % RING_RECORDS;
    let at = start + 4096 + place * 48;
    put(bytes, at, 0x7f00_0000_1238 + number);
    put(bytes, at + 8, 0x1_0000_0238);
    put(bytes, at + 16, 1000 + number);
    // CR3 with a process-context id and the bit that spares the TLB.
    put(bytes, at + 24, 1 << 63 | 0x0012_3000 | 5);
    bytes[at + 32..at + 40].copy_from_slice(&[3, 0, 0, 0, 1, 0, 1, 0]);
    put(bytes, at + 40, number);
    put(bytes, start, number + 1);
}

fn words(bytes: &[u8]) -> Vec<AtomicU64> {
    let chunks = bytes.chunks_exact(8);
    chunks
        .map(|chunk| AtomicU64::new(u64::from_le_bytes(chunk.try_into().unwrap())))
        .collect()
}

fn drain(rings: &Rings<'_>, index: usize) -> (Vec<Record>, Drained) {
    let mut records = Vec::new();
    let drained = rings.drain(index, |record| records.push(record));
    (records, drained)
}

#[test]
fn a_record_is_what_the_emulator_wrote() {
    let mut bytes = memory();
    write(&mut bytes, 1, 0);
    let words = words(&bytes);
    let rings = Rings::new(&words).unwrap();
    assert_eq!(rings.count(), 2);
    assert_eq!(drain(&rings, 0).0, []);
    let expected = Record {
        vaddr: 0x7f00_0000_1238,
        paddr: 0x1_0000_0238,
        time_ns: 1000,
        root: 0x0012_3000,
        cpu: 3,
        node: 1,
        store: true,
    };
    assert_eq!(drain(&rings, 1).0, [expected]);
    assert_eq!(drain(&rings, 1).0, [], "each record once");
}

#[test]
fn a_ring_that_went_round_is_read_in_order() {
    let mut bytes = memory();
    for number in 0..13 {
        write(&mut bytes, 0, number);
    }
    put(&mut bytes, 4096 + 64, 6);
    let words = words(&bytes);
    let rings = Rings::new(&words).unwrap();
    let (records, drained) = drain(&rings, 0);
    let times: Vec<u64> = records.iter().map(|record| record.time_ns).collect();
    assert_eq!(times, (1006..1013).collect::<Vec<_>>());
    assert_eq!(
        drained,
        Drained {
            records: 7,
            torn: 0
        }
    );
}

#[test]
fn records_out_of_place_are_counted_and_left_out() {
    let mut bytes = memory();
    write(&mut bytes, 0, 0);
    write(&mut bytes, 0, 2);
    // The head says three; the second was never written.
    let words = words(&bytes);
    let (records, drained) = drain(&Rings::new(&words).unwrap(), 0);
    assert_eq!(records.len(), 2);
    assert_eq!(
        drained,
        Drained {
            records: 2,
            torn: 1
        }
    );
}

#[test]
fn control_and_counters_are_words_of_their_own() {
    let mut bytes = memory();
    for (word, value) in [(16, 5_u64), (17, 6), (18, 7), (19, 8)] {
        put(&mut bytes, 4096 + word * 8, value);
        put(&mut bytes, 4096 + RING_BYTES + word * 8, 10 * value);
    }
    let words = words(&bytes);
    let rings = Rings::new(&words).unwrap();
    let counts = RingCounts {
        taken: 55,
        lost: 66,
        throttled: 77,
        misses: 88,
    };
    assert_eq!(rings.counts(), counts);
    let found = rings.control();
    assert_eq!((found.enabled, found.period), (false, 97));
    let wanted = Control {
        enabled: true,
        period: 13,
        max_rate: 1,
        charge_ns: 2,
        room: 3,
    };
    rings.set(wanted);
    assert_eq!(rings.control(), wanted);
    assert_eq!(words[8].load(Ordering::Relaxed), 1);
}

#[test]
fn foreign_memory_and_other_versions_are_refused() {
    assert_eq!(Rings::new(&[]).unwrap_err(), LayoutError::Magic(0));
    let mut bytes = memory();
    put(&mut bytes, 8, 2);
    let error = Rings::new(&words(&bytes)).unwrap_err();
    assert_eq!(error, LayoutError::Version { found: 2 });
    let mut bytes = memory();
    put(&mut bytes, 16, 3);
    let error = Rings::new(&words(&bytes)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("the number of rings is 3"), "{text}");
}

proptest! {
    /// Whatever is in the memory behind a header that passes, reading does not fail, ends, and
    /// gives at most what a ring holds.
    #[test]
    fn nonsense_is_read_without_harm(
        sizes in prop::collection::vec(prop_oneof![0..9000_u64, any::<u64>()], 5),
        noise in prop::collection::vec((0..1200_usize, any::<u64>()), 0..40),
    ) {
        let mut bytes = memory();
        for (word, value) in (2..).zip(sizes) {
            if value % 3 != 0 {
                put(&mut bytes, word * 8, value);
            }
        }
        for (word, value) in noise {
            let at = 4096 + word * 8;
            if at + 8 <= bytes.len() {
                put(&mut bytes, at, value);
            }
        }
        let words = words(&bytes);
        if let Ok(rings) = Rings::new(&words) {
            for index in 0..rings.count() {
                let (records, drained) = drain(&rings, index);
                prop_assert_eq!(records.len() as u64, drained.records);
                prop_assert!(drained.records + drained.torn <= 1200);
            }
            rings.skip();
            let _ = rings.counts();
        }
    }
}

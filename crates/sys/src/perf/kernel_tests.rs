// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own rings, with events that need no PMU: page faults with their addresses.

use std::collections::BTreeSet;

use rustix::io::Errno;
use rustix::mm;

use super::*;

const PAGE: usize = 4096;
const FIELDS: Fields = Fields::IDENTIFIER
    .with(Fields::TID)
    .with(Fields::TIME)
    .with(Fields::ADDR)
    .with(Fields::CPU)
    .with(Fields::DATA_SOURCE);

/// The calling thread's faults, each one sampled.
const FAULTS: EventSpec = EventSpec {
    kind: event::SOFTWARE,
    config: event::PAGE_FAULTS,
    config1: 0,
    config2: 0,
    period: 1,
    precise: 0,
    fields: FIELDS,
    user_only: true,
    inherit: Inherit::None,
    tasks: false,
    watermark: 4096,
};
/// `PERF_COUNT_SW_PAGE_FAULTS_MIN`: those that needed no reading from disk.
const MINOR_FAULTS: u64 = 5;
const OWN: Target = Target::Task { tid: 0, cpu: None };

/// `None`, loudly, where perf events are not permitted.
fn open(spec: &EventSpec, target: Target) -> Option<Event> {
    match Event::open(spec, target) {
        Ok(event) => Some(event),
        Err(error @ (Errno::ACCESS | Errno::PERM | Errno::NOSYS)) => {
            eprintln!("SKIPPED: perf_event_open: {error}");
            None
        }
        Err(error) => panic!("perf_event_open: {error}"),
    }
}

/// Touches each page of new memory once, and says where it was. No huge pages: one fault a page.
fn touch(pages: usize) -> BTreeSet<u64> {
    let bytes = pages * PAGE;
    // SAFETY: new memory at an address of the kernel's choice, given back below; one byte of each
    // page is written by us alone.
    unsafe {
        let flags = mm::MapFlags::PRIVATE;
        let access = mm::ProtFlags::READ | mm::ProtFlags::WRITE;
        let memory = mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags).unwrap();
        mm::madvise(memory, bytes, mm::Advice::LinuxNoHugepage).unwrap();
        let first = memory.cast::<u8>();
        for page in 0..pages {
            first.add(page * PAGE + 123).write_volatile(1);
        }
        mm::munmap(memory, bytes).unwrap();
        (0..pages)
            .map(|page| first.add(page * PAGE + 123) as u64)
            .collect()
    }
}

fn samples(ring: &mut Ring) -> (Vec<Sample>, u64) {
    let (mut samples, mut lost) = (Vec::new(), 0);
    let drained = ring.drain(&mut |bytes| match Layout(FIELDS).parse(bytes) {
        Ok(Record::Sample(sample)) => samples.push(sample),
        Ok(Record::Lost { lost: some, .. }) => lost += some,
        other => panic!("{other:?}"),
    });
    assert_eq!(drained.broken_bytes, 0);
    (samples, lost)
}

#[test]
fn every_page_touched_once_is_reported_with_its_address() {
    let Some(event) = open(&FAULTS, OWN) else {
        return;
    };
    let id = event.id().unwrap();
    let mut ring = Ring::map(&event, 64 << 10).unwrap();
    event.enable().unwrap();
    // More than the ring holds, so that it goes over the end several times.
    for _ in 0..8 {
        let touched = touch(500);
        let (samples, lost) = samples(&mut ring);
        assert_eq!(lost, 0);
        let faulted: BTreeSet<u64> = samples.iter().map(|s| s.addr).collect();
        assert!(touched.is_subset(&faulted), "{} faults", faulted.len());
        for sample in &samples {
            assert_eq!((sample.id, sample.user), (id, true));
            assert_eq!(sample.pid, std::process::id());
            // The kernel knows no source of a fault.
            assert_eq!(sample.source.unwrap().level(), Level::Unknown);
        }
        assert!(samples.is_sorted_by_key(|s| s.time));
    }
    assert!(matches!(event.lost(), Ok(None | Some(0))));
}

#[test]
fn what_a_full_ring_loses_is_told_to_the_last_one() {
    let Some(event) = open(&FAULTS, OWN) else {
        return;
    };
    let mut ring = Ring::map(&event, 4096).unwrap();
    event.enable().unwrap();
    let pages = 1000;
    touch(pages);
    let counted = event.lost().unwrap().unwrap_or(0);
    let (first, told) = samples(&mut ring);
    assert!(!first.is_empty() && first.len() <= 4096 / FIELDS.sample_bytes());
    assert_eq!(told, 0, "nothing found room behind what was lost");
    // There is room again: the next one brings the count.
    touch(1);
    let (second, told) = samples(&mut ring);
    assert!(!second.is_empty() && told > 0);
    assert!(told + first.len() as u64 >= pages as u64);
    // What else faulted before the ring was read was lost, too.
    assert!(counted <= told);
    let counted = event.lost().unwrap();
    assert!(counted.is_none_or(|counted| counted == told));
}

#[test]
fn several_events_share_a_ring_and_are_told_apart() {
    // One that we may run on.
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let place = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu));
    let cpu = u32::try_from(place.unwrap()).unwrap();
    let on = Some(cpu);
    let target = Target::Task { tid: 0, cpu: on };
    let dummy = EventSpec {
        config: event::DUMMY,
        ..FAULTS
    };
    let Some(owner) = open(&dummy, target) else {
        return;
    };
    let mut ring = Ring::map(&owner, 256 << 10).unwrap();
    let minor = EventSpec {
        config: MINOR_FAULTS,
        ..FAULTS
    };
    let events: Vec<Event> = [FAULTS, minor]
        .iter()
        .map(|spec| {
            let event = open(spec, target).unwrap();
            event.redirect(&owner).unwrap();
            event.enable().unwrap();
            event
        })
        .collect();
    // Only what happens on that processor comes here.
    let mut only = rustix::thread::CpuSet::new();
    only.set(usize::try_from(cpu).unwrap());
    rustix::thread::sched_setaffinity(None, &only).unwrap();
    let touched = touch(300);
    rustix::thread::sched_setaffinity(None, &before).unwrap();
    let (samples, lost) = samples(&mut ring);
    assert_eq!(lost, 0);
    for event in &events {
        let id = event.id().unwrap();
        let of_it = samples.iter().filter(|s| s.id == id);
        let faulted: BTreeSet<u64> = of_it.map(|s| s.addr).collect();
        assert!(
            touched.is_subset(&faulted),
            "event {id}: {} of {} samples",
            faulted.len(),
            samples.len()
        );
    }
    assert!(samples.iter().all(|s| s.cpu == cpu));
    // A ring of another processor, or none that is mapped, is refused.
    let elsewhere = open(&FAULTS, OWN).unwrap();
    assert_eq!(elsewhere.redirect(&owner), Err(Errno::INVAL));
}

#[test]
fn the_period_can_be_changed() {
    let Some(event) = open(&FAULTS, OWN) else {
        return;
    };
    let mut ring = Ring::map(&event, 256 << 10).unwrap();
    event.enable().unwrap();
    touch(200);
    let all = samples(&mut ring).0.len();
    assert!(all >= 200);
    event.set_period(20).unwrap();
    touch(2000);
    let some = samples(&mut ring).0.len();
    // A hundred, and a few for what else faults.
    assert!((90..=200).contains(&some), "{some}");
}

#[test]
fn processes_come_and_go() {
    let spec = EventSpec {
        config: event::DUMMY,
        tasks: true,
        inherit: Inherit::All,
        ..FAULTS
    };
    let cpus = pmu::online_cpus(std::path::Path::new("/"));
    let mut rings = Vec::new();
    for cpu in cpus {
        let cpu = Some(cpu);
        let Some(event) = open(&spec, Target::Task { tid: 0, cpu }) else {
            return;
        };
        let ring = Ring::map(&event, 64 << 10).unwrap();
        event.enable().unwrap();
        rings.push((ring, event));
    }
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let (mut forked, mut execed, mut ended) = (None, None, None);
    for (ring, _) in &mut rings {
        ring.drain(&mut |bytes| match Layout(FIELDS).parse(bytes).unwrap() {
            Record::Fork(task) if task.pid == child.id() => forked = Some(task),
            Record::Exec { pid, time } if pid == child.id() => execed = Some(time),
            Record::Exit(task) if task.pid == child.id() => ended = Some(task.time),
            _ => {}
        });
    }
    let forked = forked.expect("a fork");
    assert_eq!(forked.parent, std::process::id());
    assert!(forked.time < execed.expect("an exec"));
    assert!(execed < ended);
}

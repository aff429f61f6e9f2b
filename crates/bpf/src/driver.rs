// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the BPF program and reads its ring.
//!
//! Kernel contract: BTF of the running kernel (`/sys/kernel/btf/vmlinux`), fentry programs
//! (Linux 5.5, `CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS`), task storage (5.11), CAP_BPF and
//! CAP_PERFMON, or CAP_SYS_ADMIN. Process ids are those of the initial pid namespace, so the
//! caller has to live in it.
//!
//! The kernel does not scan by itself here: that is a setting (`terrace_sys::settings`). Nothing
//! here has a thread; the caller polls. Dropping [`HintFaults`] detaches everything.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use libbpf_rs::Link;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use libbpf_rs::Object;
use libbpf_rs::ObjectBuilder;
use libbpf_rs::OpenObject;
use libbpf_rs::RingBuffer;
use libbpf_rs::RingBufferBuilder;
use rustix::event::Timespec;
use rustix::event::epoll;
use terrace_core::Pid;
use terrace_sys::probe;
use terrace_sys::probe::Fact;
use terrace_sys::probe::btf::KernelBtf;
use terrace_sys::probe::namespace;

use crate::coverage;
use crate::error::HintFaultsError;
use crate::error::failed;
use crate::object::Aligned;
use crate::object::absent_is_good;
use crate::object::object;
use crate::record::DecodeError;
use crate::record::Record;
use crate::record::decode;

static OBJECT: &Aligned<[u8]> = object!("hint_faults");

/// Records handed out at once: what bounds the memory between the ring and the caller.
const BATCH: usize = 1 << 16;

/// `enum hint_managed` of `hint_faults.h`.
const FOLLOW: u32 = 1;
/// `enum hint_kind`, the index of the counters of lost records.
const LOST_SCANS: u32 = 1;
const LOST_FAULTS: u32 = 2;
const LOST_PROCESS_EVENTS: std::ops::Range<u32> = 3..6;

/// How the ring is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HintFaultsConfig {
    /// Size of the ring; rounded up to a power of two. 56 bytes hold one record.
    pub ring_bytes: u32,
    /// The reader is woken before its timeout when so much waits for it.
    pub wakeup_bytes: u32,
    /// The memory node that the ring is allocated from, while it has some.
    pub node: u32,
}

impl Default for HintFaultsConfig {
    /// 16 MiB, some 300,000 records: all pages of 1 GiB fault right after a scan without a loss.
    fn default() -> Self {
        Self {
            ring_bytes: 16 << 20,
            wakeup_bytes: 256 << 10,
            node: 0,
        }
    }
}

/// Records that found no room in the ring, since the program was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Scans: faults that follow have no scan time, or an older one.
    pub scans: u64,
    /// Hint faults.
    pub faults: u64,
    /// Forks, execs and exits.
    pub process_events: u64,
}

/// The loaded program.
pub struct HintFaults {
    // Dropped in this order: no callback after the ring, no program after its links.
    ring: RingBuffer<'static>,
    inbox: Arc<Mutex<Inbox>>,
    epoll: OwnedFd,
    /// More was there than the last call took, and nobody will be woken for it.
    behind: bool,
    managed: MapHandle,
    lost: MapHandle,
    _links: Vec<Link>,
    _object: Object,
}

#[derive(Default)]
struct Inbox {
    records: Vec<Record>,
    bad: Option<DecodeError>,
}

impl std::fmt::Debug for HintFaults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HintFaults").finish_non_exhaustive()
    }
}

impl HintFaults {
    /// Loads and attaches the program. Nothing is managed yet, so nothing is reported.
    ///
    /// # Errors
    ///
    /// Where the kernel lacks what is needed (all of it is named), or permission is missing.
    pub fn open(config: HintFaultsConfig) -> Result<Self, HintFaultsError> {
        let needed = [Fact::Btf, Fact::FentryTargets, Fact::Bpf];
        if probe::forced_off()?.iter().any(|f| needed.contains(f)) {
            return Err(HintFaultsError::SwitchedOff);
        }
        let missing = coverage::missing(&KernelBtf::read()?);
        if !missing.is_empty() {
            return Err(HintFaultsError::Missing { names: missing });
        }
        if namespace::in_initial_pid_namespace() == Some(false) {
            return Err(HintFaultsError::PidNamespace);
        }
        Self::load(config, |_| true)
    }

    /// Reports forks, execs and exits only, by a ring of that size: for trackers with another source of
    /// accesses. Wakes for each. The rest as [`Self::open`].
    ///
    /// # Errors
    ///
    /// Where the kernel has no BTF, or permission is missing.
    pub fn lives(ring_bytes: u32) -> Result<Self, HintFaultsError> {
        if probe::forced_off()?.contains(&Fact::Bpf) {
            return Err(HintFaultsError::SwitchedOff);
        }
        if namespace::in_initial_pid_namespace() == Some(false) {
            return Err(HintFaultsError::PidNamespace);
        }
        let config = HintFaultsConfig {
            ring_bytes,
            wakeup_bytes: 0,
            ..HintFaultsConfig::default()
        };
        Self::load(config, |section| section.starts_with("tp_btf/"))
    }

    fn load(
        config: HintFaultsConfig,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Self, HintFaultsError> {
        crate::error::keep_what_libbpf_says();
        let mut open = ObjectBuilder::default()
            .name("hint_faults")
            .and_then(|builder| builder.open_memory(&OBJECT.0))
            .map_err(failed("open the BPF object"))?;
        configure(&mut open, config)?;
        for mut program in open.progs_mut() {
            let wanted = wanted(&program.section().to_string_lossy());
            program.set_autoload(wanted);
        }
        let object = open.load().map_err(failed("load the BPF program"))?;

        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let records = map(&object, "records")?;
        let ring = ring(&records, Arc::clone(&inbox))?;
        let epoll = edge_triggered(records.as_fd()).map_err(|e| HintFaultsError::Wait(e.into()))?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            if wanted(&program.section().to_string_lossy()) {
                links.push(program.attach().map_err(failed("attach the BPF program"))?);
            }
        }
        Ok(Self {
            ring,
            inbox,
            epoll,
            behind: false,
            managed: map(&object, "managed")?,
            lost: map(&object, "lost")?,
            _links: links,
            _object: object,
        })
    }

    /// Reports `pid` from now on; with `follow`, its future children as well.
    ///
    /// # Errors
    ///
    /// Where 8,192 processes are managed already.
    pub fn add(&self, pid: Pid, follow: bool) -> Result<(), HintFaultsError> {
        let wanted = if follow { FOLLOW } else { 0 };
        self.managed
            .update(&pid.0.to_ne_bytes(), &wanted.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed("add a process to the BPF filter"))
    }

    /// Reports `pid` no more. Records already in the ring are still delivered.
    ///
    /// # Errors
    ///
    /// Where the map cannot be changed; a process that is not there is no error.
    pub fn remove(&self, pid: Pid) -> Result<(), HintFaultsError> {
        absent_is_good(self.managed.delete(&pid.0.to_ne_bytes()))
            .map_err(failed("remove a process from the BPF filter"))
    }

    /// Waits until much is there or `timeout` is over, then hands out what there is, oldest first,
    /// at most 65,536 records. With a timeout of zero, or more records left over from the call
    /// before, it does not wait.
    ///
    /// A timeout of 10 ms bounds the age of a record; every call then has at most 10 ms of them.
    ///
    /// # Errors
    ///
    /// Where waiting fails or a record makes no sense (records before it have been handed out).
    pub fn poll(
        &mut self,
        timeout: Duration,
        mut sink: impl FnMut(Record),
    ) -> Result<(), HintFaultsError> {
        self.wait(if self.behind { Duration::ZERO } else { timeout })?;
        let taken = self.ring.consume_raw_n(BATCH);
        if taken < 0 {
            let error = libbpf_rs::Error::from_raw_os_error(taken.saturating_neg());
            return Err(failed("read the ring of hint faults")(error));
        }
        self.behind = usize::try_from(taken).is_ok_and(|taken| taken >= BATCH);
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.records.drain(..).for_each(&mut sink);
        inbox.bad.take().map_or(Ok(()), |bad| Err(bad.into()))
    }

    fn wait(&self, timeout: Duration) -> Result<(), HintFaultsError> {
        let timeout = Timespec::try_from(timeout).ok();
        let mut events: [MaybeUninit<epoll::Event>; 1] = [MaybeUninit::uninit()];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(HintFaultsError::Wait(e.into())),
        }
    }

    /// Records that were lost since [`HintFaults::open`].
    ///
    /// # Errors
    ///
    /// Where the map cannot be read.
    pub fn lost(&self) -> Result<Lost, HintFaultsError> {
        let count = |kind: u32| -> Result<u64, HintFaultsError> {
            let value = self
                .lost
                .lookup(&kind.to_ne_bytes(), MapFlags::ANY)
                .map_err(failed("read the counters of lost records"))?;
            let bytes = value.and_then(|v| v.try_into().ok());
            Ok(bytes.map_or(0, u64::from_ne_bytes))
        };
        Ok(Lost {
            scans: count(LOST_SCANS)?,
            faults: count(LOST_FAULTS)?,
            process_events: LOST_PROCESS_EVENTS.map(count).sum::<Result<u64, _>>()?,
        })
    }

    /// Readable when [`HintFaults::poll`] would not wait.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn configure(open: &mut OpenObject, config: HintFaultsConfig) -> Result<(), HintFaultsError> {
    let ring_bytes = config.ring_bytes.max(4096).next_power_of_two();
    let mut rodata = false;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "records" {
            map.set_max_entries(ring_bytes)
                .and_then(|()| map.set_numa_node(config.node))
                .map_err(failed("size and place the ring of hint faults"))?;
        } else if name.ends_with(".rodata") {
            let image = map.initial_value_mut().and_then(|v| v.get_mut(..4));
            if let Some(image) = image {
                image.copy_from_slice(&config.wakeup_bytes.to_ne_bytes());
                rodata = true;
            }
        }
    }
    if rodata {
        Ok(())
    } else {
        Err(HintFaultsError::NoMap(".rodata"))
    }
}

pub(crate) fn map(object: &Object, name: &'static str) -> Result<MapHandle, HintFaultsError> {
    let map = object
        .maps()
        .find(|m| m.name() == name)
        .ok_or(HintFaultsError::NoMap(name))?;
    MapHandle::try_from(&map).map_err(failed("take hold of a BPF map"))
}

fn ring(
    records: &MapHandle,
    inbox: Arc<Mutex<Inbox>>,
) -> Result<RingBuffer<'static>, HintFaultsError> {
    let mut builder = RingBufferBuilder::new();
    builder
        .add(records, move |bytes| {
            let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
            match decode(bytes) {
                Ok(record) => inbox.records.push(record),
                Err(bad) => inbox.bad = Some(bad),
            }
            0
        })
        .map_err(failed("open the ring of hint faults"))?;
    builder
        .build()
        .map_err(failed("open the ring of hint faults"))
}

/// libbpf's own epoll is level-triggered: it would return at once as long as a single record
/// waits, and the reader would spin at the pace of the faults.
fn edge_triggered(records: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        records,
        epoll::EventData::new_u64(0),
        epoll::EventFlags::IN | epoll::EventFlags::ET,
    )?;
    Ok(epoll)
}

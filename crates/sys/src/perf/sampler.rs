// SPDX-License-Identifier: MIT OR Apache-2.0
//! One sampled event of the calling thread, and how many samples it gave: for measurements of what
//! sampling costs. What tracks programs is `terrace-track`'s `pmu`.

use rustix::io::Errno;

use super::event;
use super::event::Event;
use super::event::EventSpec;
use super::event::Target;
use super::record::Fields;
use super::record::Layout;
use super::record::Record;
use super::ring::Ring;

/// Which event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampledEvent {
    /// Processor cycles, counted by the PMU.
    Cycles,
    /// The kernel's timer, in nanoseconds of processor time: needs no PMU.
    CpuClock,
}

/// Instruction, thread, time and address, as an access sampler asks for.
const FIELDS: Fields = Fields::IP
    .with(Fields::TID)
    .with(Fields::TIME)
    .with(Fields::ADDR);
const DATA_BYTES: usize = 256 << 10;

/// An event that samples while it lives.
#[derive(Debug)]
pub struct Sampler {
    ring: Ring,
    _event: Event,
    samples: u64,
}

impl Sampler {
    /// Samples that the ring holds at most; further ones are lost until [`Sampler::samples`] makes
    /// room.
    pub const SAMPLES_MAX: u64 = (DATA_BYTES / FIELDS.sample_bytes()) as u64;

    /// Starts sampling the calling thread's user time, once every `period` of the event.
    ///
    /// # Errors
    ///
    /// `NOENT` or `OPNOTSUPP` where there is no such event, `ACCESS` or `PERM` where it is not
    /// permitted.
    pub fn start(which: SampledEvent, period: u64) -> Result<Self, Errno> {
        let (kind, config) = match which {
            SampledEvent::Cycles => (event::HARDWARE, event::CPU_CYCLES),
            SampledEvent::CpuClock => (event::SOFTWARE, event::CPU_CLOCK),
        };
        let spec = EventSpec {
            kind,
            config,
            period,
            fields: FIELDS,
            user_only: true,
            watermark: 1 << 16,
            ..EventSpec::default()
        };
        let event = Event::open(&spec, Target::Task { tid: 0, cpu: None })?;
        let ring = Ring::map(&event, DATA_BYTES)?;
        event.enable()?;
        Ok(Self {
            ring,
            _event: event,
            samples: 0,
        })
    }

    /// Samples so far, but for those lost in a full ring.
    pub fn samples(&mut self) -> u64 {
        let samples = &mut self.samples;
        self.ring.drain(&mut |bytes| {
            let record = Layout(FIELDS).parse(bytes);
            *samples += u64::from(matches!(record, Ok(Record::Sample(_))));
        });
        *samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_while_time_is_burnt() {
        let mut sampler = match Sampler::start(SampledEvent::CpuClock, 100_000) {
            Ok(sampler) => sampler,
            Err(error) => {
                eprintln!("SKIPPED: perf_event_open: {error}");
                return;
            }
        };
        let start = std::time::Instant::now();
        while sampler.samples() < 3 {
            assert!(start.elapsed().as_secs() < 60, "no samples");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether accessed bits can be read here, and what reading a process would cost. Nothing is cleared.

use terrace_bpf::PageTables;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_core::ladder;
use terrace_sys::clock;

use super::reader::CLEAR_NS;
use super::reader::set_ns;
use crate::TrackError;

/// All of user space that a program gets without asking for more than 47 bits.
const EVERYWHERE: Range = Range {
    start: Addr(0),
    end: Addr(1 << 47),
};

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Survey {
    /// Where the kernel maps all memory.
    pub direct_map: u64,
    /// Whether that had to be searched for, as the kernel does not say.
    pub searched: bool,
    /// Of the process that was asked about.
    pub process: Option<ProcessCost>,
}

/// What a process would cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessCost {
    /// Base pages in memory.
    pub base: u64,
    /// Huge pages in memory.
    pub huge: u64,
    /// One reading, as measured.
    pub read: Nanos,
    /// A pass of a second, first reading after a millisecond: the clearing, at what it takes before it was
    /// measured, and its readings.
    pub pass: Nanos,
    /// What a pass costs the program at most, which sets the bit of each page again that it touches: as measured.
    pub set: Nanos,
}

/// Loads the reader and, where a process is named, reads its tables once.
///
/// # Errors
///
/// Where accessed bits cannot be read here; or there is no such process.
pub fn survey(process: Option<Pid>) -> Result<Survey, TrackError> {
    let mut tables = PageTables::open(&[])?;
    let (direct_map, searched) = tables.direct_map();
    let process = match process {
        Some(pid) => Some(cost(&mut tables, pid)?),
        None => None,
    };
    Ok(Survey {
        direct_map,
        searched,
        process,
    })
}

fn cost(tables: &mut PageTables, pid: Pid) -> Result<ProcessCost, TrackError> {
    let bound = tables.bind(pid)?;
    let (mut base, mut huge) = (0, 0);
    let before = clock::now();
    let walked = tables.walk(&bound, EVERYWHERE, |chunk| {
        if chunk.huge() {
            huge += 1;
        } else {
            base += u64::from(chunk.present().count());
        }
    })?;
    let read = clock::now().since(before);
    if walked.gone {
        let gone = std::io::Error::from(rustix::io::Errno::SRCH);
        return Err(terrace_bpf::PageTablesError::Run(gone).into());
    }
    let readings = ladder(Nanos::from_millis(1), Nanos::from_secs(1)).len() as u64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "times, and a count of pages"
    )]
    let all = |each: f64| Nanos(((base + huge) as f64 * each) as u64);
    Ok(ProcessCost {
        base,
        huge,
        read,
        pass: Nanos(read.0 * readings) + all(CLEAR_NS),
        set: all(set_ns()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_pages_that_cost_time_and_nobody_has_none() {
        let found = survey(Some(Pid(std::process::id()))).expect("readable page tables");
        let cost = found.process.expect("asked for");
        assert!((100..1 << 20).contains(&cost.base), "{cost:?}");
        assert!(cost.read > Nanos::ZERO && cost.pass > cost.read && cost.set > Nanos::ZERO);
        assert!(survey(Some(Pid(u32::MAX >> 2))).is_err());
    }
}

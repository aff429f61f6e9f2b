// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why hint faults cannot be watched, with what libbpf says about it.

use std::sync::Mutex;
use std::sync::PoisonError;

use libbpf_rs::PrintLevel;
use terrace_sys::probe::NoSuchFact;
use terrace_sys::probe::OFF_VARIABLE;
use thiserror::Error;

use crate::record::DecodeError;

/// How much of libbpf's words an error carries.
const WORDS_MAX: usize = 4096;

/// Why hint faults cannot be watched.
#[derive(Debug, Error)]
pub enum HintFaultsError {
    /// No type information.
    #[error("Cannot read the kernel's type information; it needs CONFIG_DEBUG_INFO_BTF")]
    Btf(#[from] terrace_sys::probe::btf::BtfError),
    /// The kernel lacks what the program attaches to.
    #[error(
        "The kernel has no {}: hint faults cannot be watched; \
         it needs CONFIG_NUMA_BALANCING, or another tracker",
        names.join(", ")
    )]
    Missing {
        /// What it lacks.
        names: Vec<&'static str>,
    },
    /// Process ids would not match.
    #[error(
        "This process is not in the initial pid namespace, and the kernel reports \
         processes by their ids there; start it outside of the container"
    )]
    PidNamespace,
    /// Refused for a test.
    #[error("Hint faults are switched off by {OFF_VARIABLE}")]
    SwitchedOff,
    /// The variable that switches things off for tests is wrong.
    #[error(transparent)]
    NoSuchFact(#[from] NoSuchFact),
    /// libbpf refused.
    #[error(
        "Cannot {step}; it needs root, or CAP_BPF and CAP_PERFMON, \
         and a kernel that is not locked down"
    )]
    Libbpf {
        /// What was being done.
        step: &'static str,
        /// What libbpf said meanwhile, the verifier's complaint for instance.
        words: String,
        /// Why.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The embedded object is not what this was built for.
    #[error("The BPF object has no map '{0}'")]
    NoMap(&'static str),
    /// Waiting failed.
    #[error("Cannot wait for the ring of hint faults")]
    Wait(#[source] std::io::Error),
    /// A record made no sense.
    #[error("Hint-fault ring holds a bad record")]
    Decode(#[from] DecodeError),
}

/// Why page tables cannot be read.
#[derive(Debug, Error)]
pub enum PageTablesError {
    /// Another processor.
    #[error("Accessed bits are read on x86-64 only, and this is another processor")]
    Processor,
    /// libbpf refused.
    #[error(
        "Cannot {step}; reading page tables needs root, or CAP_BPF and CAP_PERFMON, \
         Linux 6.1 with BTF, and a kernel that is not locked down"
    )]
    Libbpf {
        /// What was being done.
        step: &'static str,
        /// What libbpf said meanwhile, the verifier's complaint for instance.
        words: String,
        /// Why.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The embedded object is not what this was built for.
    #[error("The BPF object has no '{0}'")]
    NoPart(&'static str),
    /// It could not be found.
    #[error(
        "Cannot find where the kernel maps all memory, so no page table can be read \
         (memory encryption, or not x86-64 as it is known)"
    )]
    NoDirectMap,
    /// Frame numbers are hidden.
    #[error("Cannot see page frames in /proc/self/pagemap; that needs CAP_SYS_ADMIN")]
    Frames,
    /// The program was not run.
    #[error("Cannot run the BPF program that reads page tables")]
    Run(#[source] std::io::Error),
    /// A file or a mapping of our own.
    #[error("Cannot prepare the reading of page tables")]
    Own(#[from] std::io::Error),
}

pub(crate) fn failed_tables(
    step: &'static str,
) -> impl FnOnce(libbpf_rs::Error) -> PageTablesError {
    move |source| PageTablesError::Libbpf {
        step,
        words: take_words(),
        source,
    }
}

pub(crate) fn failed(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> HintFaultsError {
    move |source| HintFaultsError::Libbpf {
        step,
        words: take_words(),
        source,
    }
}

/// libbpf explains itself on standard error, if it is let; an error carries it instead.
static WORDS: Mutex<String> = Mutex::new(String::new());

pub(crate) fn keep_what_libbpf_says() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the type of libbpf's callback"
)]
fn keep(_: PrintLevel, words: String) {
    let mut kept = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() + words.len() < WORDS_MAX {
        kept.push_str(&words);
    }
}

fn take_words() -> String {
    std::mem::take(&mut *WORDS.lock().unwrap_or_else(PoisonError::into_inner))
}

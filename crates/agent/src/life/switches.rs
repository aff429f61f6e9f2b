// SPDX-License-Identifier: MIT OR Apache-2.0
//! Switches that break the agent on purpose, so that a test can show what a part is good for.
//!
//! They exist in builds with the feature `test-switches` only; in every other build each is off,
//! whatever the environment says. Asking allocates nothing: the allocator asks, too.

#[cfg(feature = "test-switches")]
use std::ffi::CStr;

/// One switch, named as in the environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switch {
    #[cfg(feature = "test-switches")]
    name: &'static CStr,
}

/// Shadows count without a comparison: words get lost.
pub(crate) const SKIP_VERIFY: Switch = Switch::named(c"TERRACE_TEST_SKIP_VERIFY");
/// As without `CAP_SYS_PTRACE`: forks are quiesced by `pthread_atfork`.
pub(crate) const NO_FORK_EVENTS: Switch = Switch::named(c"TERRACE_TEST_NO_FORK_EVENTS");
/// The agent's heap ends after 1 MiB.
pub(crate) const SMALL_HEAP: Switch = Switch::named(c"TERRACE_TEST_SMALL_HEAP");

impl Switch {
    #[cfg(feature = "test-switches")]
    const fn named(name: &'static CStr) -> Self {
        Self { name }
    }

    #[cfg(not(feature = "test-switches"))]
    const fn named(_: &'static std::ffi::CStr) -> Self {
        Self {}
    }

    /// Whether it was asked for and this build has it.
    #[cfg(feature = "test-switches")]
    pub(crate) fn is_on(self) -> bool {
        // SAFETY: the name ends with a zero; what comes back is not read.
        !unsafe { libc::getenv(self.name.as_ptr()) }.is_null()
    }

    /// Never, in this build.
    #[cfg(not(feature = "test-switches"))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) const fn is_on(self) -> bool {
        false
    }
}

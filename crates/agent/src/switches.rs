// SPDX-License-Identifier: MIT OR Apache-2.0
//! Switches that break the agent on purpose, so that a test can show what a part is good for.
//!
//! They exist in builds with the feature `test-switches` only; in every other build each is off,
//! whatever the environment says.

/// One switch, named as in the environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switch {
    #[cfg(feature = "test-switches")]
    name: &'static str,
}

/// Shadows count without a comparison: words get lost.
pub(crate) const SKIP_VERIFY: Switch = Switch::named("TERRACE_TEST_SKIP_VERIFY");
/// As without `CAP_SYS_PTRACE`: forks are quiesced by `pthread_atfork`.
pub(crate) const NO_FORK_EVENTS: Switch = Switch::named("TERRACE_TEST_NO_FORK_EVENTS");

impl Switch {
    #[cfg(feature = "test-switches")]
    const fn named(name: &'static str) -> Self {
        Self { name }
    }

    #[cfg(not(feature = "test-switches"))]
    const fn named(_: &'static str) -> Self {
        Self {}
    }

    /// Whether it was asked for and this build has it.
    #[cfg(feature = "test-switches")]
    pub(crate) fn is_on(self) -> bool {
        std::env::var_os(self.name).is_some()
    }

    /// Never, in this build.
    #[cfg(not(feature = "test-switches"))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) const fn is_on(self) -> bool {
        false
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BPF objects that `build.rs` compiled, in this binary, and what all that load one say of its maps.

use libbpf_rs::ErrorKind;

/// libelf wants its file aligned.
#[repr(align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

/// The object of that name.
macro_rules! object {
    ($name:literal) => {
        &$crate::object::Aligned(*include_bytes!(concat!(
            env!("OUT_DIR"),
            "/",
            $name,
            ".bpf.o"
        )))
    };
}
pub(crate) use object;

/// What is not there need not be taken out.
pub(crate) fn absent_is_good(done: libbpf_rs::Result<()>) -> libbpf_rs::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

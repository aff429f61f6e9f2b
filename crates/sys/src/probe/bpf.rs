// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a BPF program that watches a kernel function may be loaded, by loading the smallest one.
//!
//! Contract: bpf(2), `BPF_PROG_LOAD` of type `BPF_PROG_TYPE_TRACING` (Linux 5.5); wants CAP_BPF and
//! CAP_PERFMON, or CAP_SYS_ADMIN, and is refused by a security module in lockdown. The program is
//! never attached and goes at once.

use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::uffd::last_errno;

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_FENTRY: u32 = 24;

/// `r0 = 0; exit`, 8 bytes each.
const PROGRAM: [u64; 2] = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095];
const LICENCE: &[u8; 4] = b"GPL\0";

/// The members of `union bpf_attr` for `BPF_PROG_LOAD`, up to the last that is used.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}
const _: () = assert!(std::mem::offset_of!(ProgLoad, attach_btf_id) == 108);
const _: () = assert!(size_of::<ProgLoad>() == 112);

/// Loads a program for the function with that number in the kernel's BTF, and drops it.
///
/// # Errors
///
/// `EPERM` without permission, `EINVAL` where the kernel cannot watch that function.
pub fn try_fentry(function: u32) -> Result<(), Errno> {
    let attr = ProgLoad {
        prog_type: BPF_PROG_TYPE_TRACING,
        insn_cnt: 2,
        insns: PROGRAM.as_ptr().addr() as u64,
        license: LICENCE.as_ptr().addr() as u64,
        expected_attach_type: BPF_TRACE_FENTRY,
        attach_btf_id: function,
        ..ProgLoad::default()
    };
    // SAFETY: `attr` has the layout of the kernel's union up to its size, the program and the
    // licence it points to are constants, and the kernel only reads them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const attr,
            size_of::<ProgLoad>(),
        )
    };
    match i32::try_from(fd) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(())
        }
        _ => Err(last_errno()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_that_does_not_exist_is_refused() {
        assert!(try_fentry(u32::MAX).is_err());
    }
}

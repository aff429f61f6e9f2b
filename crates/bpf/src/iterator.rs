// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF iterators over what one thread has (Linux 6.1): loaded, bound, run.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use libbpf_rs::Object;
use libbpf_rs::ObjectBuilder;
use terrace_core::Pid;

use crate::error::PageTablesError;
use crate::error::failed_tables as failed;

/// A loaded iterator.
pub(crate) struct TaskIterator {
    program: OwnedFd,
    pub(crate) object: Object,
}

impl std::fmt::Debug for TaskIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskIterator").finish_non_exhaustive()
    }
}

impl TaskIterator {
    /// Loads an object, and its program of that name.
    pub(crate) fn load(
        name: &'static str,
        object: &[u8],
        program: &'static str,
    ) -> Result<Self, PageTablesError> {
        crate::error::keep_what_libbpf_says();
        let open = ObjectBuilder::default()
            .name(name)
            .and_then(|builder| builder.open_memory(object))
            .map_err(failed("open the BPF object"))?;
        let object = open.load().map_err(failed("load the BPF program"))?;
        let found = object.progs_mut().find(|one| one.name() == program);
        let program = found.ok_or(PageTablesError::NoPart(program))?;
        let program = program.as_fd().try_clone_to_owned()?;
        Ok(Self { program, object })
    }

    /// Takes hold of a thread, by its id in the pid namespace of the caller.
    pub(crate) fn bind(&self, thread: Pid) -> Result<OwnedFd, PageTablesError> {
        let mut info = libbpf_sys::bpf_iter_link_info::default();
        info.task.tid = thread.0;
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            iter_info: &raw mut info,
            iter_info_len: u32::try_from(size_of_val(&info)).unwrap_or(0),
            ..Default::default()
        };
        // SAFETY: the program is loaded; the options and what they point to outlive the call.
        let link = unsafe {
            libbpf_sys::bpf_link_create(
                self.program.as_raw_fd(),
                0,
                libbpf_sys::BPF_TRACE_ITER,
                &raw const options,
            )
        };
        owned(link).map_err(PageTablesError::Run)
    }
}

/// A run, which goes on as it is read.
pub(crate) fn start(link: BorrowedFd<'_>) -> Result<File, PageTablesError> {
    // SAFETY: the descriptor is a link's.
    let run = owned(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) });
    run.map(File::from).map_err(PageTablesError::Run)
}

fn owned(fd: i32) -> std::io::Result<OwnedFd> {
    if fd < 0 {
        return Err(std::io::Error::from_raw_os_error(fd.wrapping_neg()));
    }
    // SAFETY: the call that gave it has opened it for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

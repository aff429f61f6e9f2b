// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace doctor`: what this machine can do, what is missing and what follows.

use std::path::Path;

use terrace_sys::settings;

use crate::args::DoctorArgs;

pub(crate) fn doctor(args: &DoctorArgs) -> anyhow::Result<u8> {
    if args.restore {
        return restore();
    }
    Ok(0)
}

fn restore() -> anyhow::Result<u8> {
    let restored = settings::restore_stale(Path::new("/"))?;
    if restored.is_empty() {
        println!("nothing to restore: no supervisor has left settings changed");
    }
    for stale in restored {
        match stale.foreign {
            None => println!("put back {:?}: {}", stale.setting, stale.old),
            Some(found) => println!(
                "left {:?} at {found}: somebody else changed it (was {})",
                stale.setting, stale.old
            ),
        }
    }
    Ok(0)
}

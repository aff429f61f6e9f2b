// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program while its accessed bits are read as `terrace run` has them read, on a machine with one node
//! too, and moves nothing: `accessed_bits [PASS_MS] -- CMD…`. So what reading alone costs a program can be
//! measured anywhere: `terrace-stress toll -- accessed_bits --`.

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_sys::zones;
use terrace_track::AccessedBits;
use terrace_track::AccessedBitsConfig;
use terrace_track::Tracker as _;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (options, command) = args
        .split_at_checked(
            args.iter()
                .position(|arg| arg == "--")
                .unwrap_or(args.len()),
        )
        .filter(|(_, command)| command.len() > 1)
        .ok_or("usage: accessed_bits [PASS_MS] -- CMD…")?;
    let pass = options.first().map_or(Ok(1000), |text| text.parse())?;
    let mut tracker = AccessedBits::open(AccessedBitsConfig {
        zones: zones::read(std::path::Path::new("/")),
        ..AccessedBitsConfig::default()
    })?;
    let mut child = Command::new(&command[1]).args(&command[2..]).spawn()?;
    tracker.add(Pid(child.id()), true)?;
    tracker.ask(Nanos::from_millis(1), Nanos::from_millis(pass), 1);
    let status = loop {
        tracker.poll(Duration::ZERO, &mut |_| {})?;
        tracker.told(|_| {});
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    for (figure, value) in tracker.counters() {
        eprintln!("{} {value}", figure.name);
    }
    std::process::exit(status.code().unwrap_or(1));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client of a server in the guest: a load generator on the host, which reaches the server
//! through a forwarded port. A server's load comes from other machines; here, too, it takes neither
//! processors nor memory of the machine under test.

use std::net::Ipv4Addr;
use std::net::TcpListener;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context;

use super::record::Load;
use super::setup::PYTHON;
use crate::boot::processors;
use crate::qemu::Forward;

/// How to make the load of one run, and the generator once it runs.
#[derive(Debug)]
pub(super) struct Client {
    python_path: PathBuf,
    forward: Forward,
    running: Option<Child>,
    /// Why there is no load, where there should be.
    failed: Option<String>,
}

impl Client {
    /// For a server on `port` of the guest.
    ///
    /// # Errors
    ///
    /// If the host has no port to spare.
    pub(super) fn new(python_path: &Path, port: u16) -> anyhow::Result<Self> {
        let host = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|free| free.local_addr())
            .context("Cannot find a free port on this host")?
            .port();
        Ok(Self {
            python_path: python_path.to_owned(),
            forward: Forward { host, guest: port },
            running: None,
            failed: None,
        })
    }

    /// The port that the emulator has to forward.
    pub(super) fn forward(&self) -> Forward {
        self.forward
    }

    /// Starts the load.
    pub(super) fn start(&mut self, load: Load) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/redis-load.py");
        let started = Command::new(PYTHON)
            .arg(script)
            .arg(self.forward.host.to_string())
            .args([load.keys.to_string(), load.letters.to_string()])
            .arg(load.seconds.to_string())
            .arg(processors::last().to_string())
            .env("PYTHONPATH", &self.python_path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match started {
            Ok(child) => {
                // The server must not wait for it.
                processors::favour(child.id());
                self.running = Some(child);
            }
            Err(error) => self.failed = Some(format!("Cannot run {PYTHON}: {error}")),
        }
    }

    /// Ends it; what went wrong, if anything did.
    pub(super) fn end(&mut self) -> Option<String> {
        if let Some(mut child) = self.running.take() {
            if let Ok(Some(status)) = child.try_wait() {
                self.failed = Some(format!("The load generator ended early, with {status}"));
            }
            // Both fail only if it is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.failed.clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_ends_early_is_told() {
        let mut client = Client::new(Path::new("/nowhere"), 7777).unwrap();
        assert_eq!(client.forward().guest, 7777);
        assert_eq!(client.end(), None, "nothing was started");
        client.start(Load {
            keys: 1000,
            letters: 180,
            seconds: 1,
        });
        // Nobody listens on the port, or there is no such library: it ends by itself.
        let child = client.running.as_mut().unwrap();
        child.wait().unwrap();
        let why = client.end().unwrap();
        assert!(why.starts_with("The load generator ended early"), "{why}");
    }
}

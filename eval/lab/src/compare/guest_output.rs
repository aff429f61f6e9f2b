// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guest says while it runs: kept, told as progress, and its wishes for a load carried out.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Instant;

use terrace_workload::report::Line;

use super::client::Client;
use super::record::GuestLine;
use crate::boot::Sink;

/// Seconds between two progress lines of a run.
const PROGRESS_SECONDS: f64 = 15.0;

/// What the guest says while it runs.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Standard output that has no end of line yet.
    partial: Vec<u8>,
    pub(super) lines: Vec<GuestLine>,
    /// Standard error.
    pub(super) log: Vec<u8>,
    /// When the workload's seconds ended, by the host's clock.
    pub(super) seconds: Vec<Instant>,
    last_progress: f64,
    last: Option<(f64, u64)>,
    /// The server's, where the workload is one.
    client: Option<Client>,
    /// What went wrong with it.
    pub(super) client_failed: Option<String>,
}

impl Heard {
    /// Nothing yet; the load, where there is one, is to be made by `client`.
    pub(super) fn with(client: Option<Client>) -> Self {
        Self {
            client,
            ..Self::default()
        }
    }

    /// Ends the load where the guest has not come to that.
    pub(super) fn end(&mut self) {
        drop(self.client.take());
    }

    /// Takes output; gives a line of progress if it is time.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut progress = Vec::new();
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            match serde_json::from_slice::<GuestLine>(&line) {
                Ok(line) => {
                    progress.extend(self.progress(&line));
                    self.steer_load(&line);
                    self.lines.push(line);
                }
                Err(_) => self.log.extend_from_slice(&line),
            }
        }
        progress
    }

    /// Starts and ends the load as the guest asks.
    fn steer_load(&mut self, line: &GuestLine) {
        let Some(client) = &mut self.client else {
            return;
        };
        match line {
            GuestLine::Load(load) => client.start(*load),
            GuestLine::EndLoad => self.client_failed = client.end(),
            _ => {}
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
    fn progress(&mut self, line: &GuestLine) -> Option<String> {
        let line = match line {
            GuestLine::Workload(line) => line,
            GuestLine::Note(text) => return Some(text.clone()),
            GuestLine::Sized(_)
            | GuestLine::Load(_)
            | GuestLine::EndLoad
            | GuestLine::Moves(_)
            | GuestLine::Terrace(_)
            | GuestLine::Failed(_)
            | GuestLine::Skipped(_) => return None,
        };
        match line {
            Line::Ready(ready) => Some(format!(
                "{} MiB filled, {} MiB of it in use",
                ready.bytes >> 20,
                ready.active_bytes >> 20
            )),
            Line::Second(second) => {
                self.seconds.push(Instant::now());
                let (t, ops) = self.last.replace((second.t, second.ops))?;
                let due = second.t >= self.last_progress + PROGRESS_SECONDS - 0.5;
                due.then(|| {
                    self.last_progress = second.t;
                    let rate = second.ops.saturating_sub(ops) as f64 / (second.t - t).max(1e-6);
                    format!("{:.0} s, {rate:.0} ops/s", second.t)
                })
            }
            Line::Total(_) => Some("checking memory".to_owned()),
            Line::Check(_) => None,
        }
    }
}

/// What takes the guest's two outputs; progress is told under `label`.
pub(super) fn sinks(heard: &Arc<Mutex<Heard>>, label: &str, tell: fn(&str)) -> (Sink, Sink) {
    let (for_out, for_err) = (Arc::clone(heard), Arc::clone(heard));
    let label = label.to_owned();
    let out = Box::new(move |bytes: &[u8]| {
        let mut heard = for_out.lock().unwrap_or_else(PoisonError::into_inner);
        for line in heard.take(bytes) {
            tell(&format!("{label}: {line}"));
        }
    });
    let err = Box::new(move |bytes: &[u8]| {
        let mut heard = for_err.lock().unwrap_or_else(PoisonError::into_inner);
        heard.log.extend_from_slice(bytes);
    });
    (out, err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces_and_noise_goes_to_the_log() {
        let mut heard = Heard::default();
        heard.take(b"{\"sized\":7}\nhello\n{\"fail");
        heard.take(b"ed\":\"x\"}\n");
        let expected = [GuestLine::Sized(7), GuestLine::Failed("x".to_owned())];
        assert_eq!(heard.lines, expected);
        assert_eq!(heard.log, b"hello\n");
    }

    #[test]
    fn progress_is_told_now_and_then() {
        let mut heard = Heard::default();
        let mut told = Vec::new();
        for t in 0..=40 {
            let line = format!(
                "{{\"workload\":{{\"second\":{{\"t\":{t}.0,\"ops\":{}}}}}}}\n",
                t * 10
            );
            told.extend(heard.take(line.as_bytes()));
        }
        assert_eq!(told, ["15 s, 10 ops/s", "30 s, 10 ops/s"]);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The baseline that never moves a page.

use terrace_core::Measurement;
use terrace_core::Nanos;

use crate::Capabilities;
use crate::Policy;
use crate::event::Action;
use crate::event::Event;
use crate::preset::Colour;
use crate::preset::Preset;

/// Moves nothing: what other policies are compared with.
pub static PRESET: Preset = Preset {
    name: "none",
    title: "moves nothing",
    paper: Option::None,
    needs: Capabilities::empty(),
    uses: Capabilities::empty(),
    on_sockets: Capabilities::empty(),
    priorities: false,
    limits: false,
    colour: Colour {
        light: "#7b8188",
        dark: "#9299a1",
    },
    help: &[],
    dilated: |_| Vec::new(),
    build: |_, _| Ok(Box::new(None)),
};

/// Sees everything, does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct None;

impl Policy for None {
    fn name(&self) -> &'static str {
        "none"
    }

    fn observe(&mut self, _now: Nanos, _event: &Event) {}
    fn tick(&mut self, _now: Nanos) {}
    fn poll_action(&mut self) -> Option<Action> {
        Option::None
    }
    fn next_deadline(&self) -> Nanos {
        Nanos::MAX
    }
    fn counters(&self) -> Vec<Measurement> {
        Vec::new()
    }
}

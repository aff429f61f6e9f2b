//! Wires trackers, policy and movers together for one run.

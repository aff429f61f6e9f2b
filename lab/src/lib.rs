//! The emulated tiered machine: boot, measure, compare.

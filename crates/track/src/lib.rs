//! Trackers: what is accessed, from which source.

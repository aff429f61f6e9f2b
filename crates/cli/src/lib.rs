//! The terrace command.

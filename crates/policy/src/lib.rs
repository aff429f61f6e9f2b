//! The pure engine and the policies: events in, actions out.

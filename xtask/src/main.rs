//! Developer tasks: dependency check, set-up.
fn main() {}

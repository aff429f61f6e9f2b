//! Access patterns of the benchmark programs.

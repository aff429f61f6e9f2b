//! Configuration and machine descriptions: raw TOML to checked values.

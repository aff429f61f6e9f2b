//! Every kernel interface Terrace uses, one file each.

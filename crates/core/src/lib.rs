// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words of the domain, shared by every crate: time, addresses, pages, nodes, tiers, figures.
//!
//! Units: time is nanoseconds of one monotonic clock ([`Nanos`]), memory is bytes, pages are
//! named by their first address and size ([`PageRef`]). Nothing here reads a clock, a file or the
//! kernel; the crate builds on any operating system.
#![forbid(unsafe_code)]

mod address;
mod chunk;
mod figure;
mod parse;
mod space;
mod time;
mod topology;
mod turns;
mod views;

pub use address::Addr;
pub use address::PageRef;
pub use address::PageSize;
pub use address::Pid;
pub use address::Range;
pub use chunk::CHUNK_BYTES;
pub use chunk::CHUNK_PAGES;
pub use chunk::ChunkReading;
pub use chunk::PageBits;
pub use chunk::ladder;
pub use chunk::lengthen;
pub use chunk::shorten;
pub use figure::Figure;
pub use figure::Measurement;
pub use figure::Unit;
pub use parse::ParseQuantityError;
pub use parse::parse_bytes;
pub use parse::parse_duration;
pub use space::Region;
pub use space::Space;
pub use time::Nanos;
pub use topology::NodeId;
pub use topology::NodeInfo;
pub use topology::NodeMemory;
pub use topology::TierId;
pub use topology::Tiers;
pub use turns::Turns;
pub use turns::is_sampled;
pub use views::AccessPath;
pub use views::GivenWay;
pub use views::Seen;
pub use views::View;
pub use views::Views;
pub use views::WayError;
pub use views::WayKind;
pub use views::classes;

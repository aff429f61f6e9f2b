// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures: what is counted or measured, each defined once with its unit and a sentence.
//!
//! [`figures!`](crate::figures) makes a struct and the table of its fields of one list, so that a figure cannot be in
//! one and not in the other; a field's doc comment is its sentence. Whatever shows figures (status, JSON schema,
//! documentation) goes through the table and knows no name.

/// What a figure is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// How many of what the sentence says.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Picoseconds.
    Picoseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// From 0 to 1.
    Share,
}

impl Unit {
    /// As tables and the JSON schema have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes/s",
            Self::Picoseconds => "ps",
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Share => "share",
        }
    }
}

/// What is known of a figure besides its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// Its name, everywhere.
    pub name: &'static str,
    /// What it is in.
    pub unit: Unit,
    /// What it says. The first sentence stands alone.
    pub help: &'static str,
}

/// A figure and its value.
pub type Measurement<V = u64> = (&'static Figure, V);

/// Makes a struct whose fields are figures, and the table of them, `FIGURES`. `values` gives each figure with its
/// value as a type that all fields' types can be made into.
///
/// ```
/// terrace_core::figures! {
///     /// What a door counts.
///     #[derive(Default)]
///     pub struct Door {
///         /// Who came in.
///         came: u64 as Count,
///         /// How long it stood open.
///         open_ns: u64 as Nanoseconds,
///     }
/// }
/// let door = Door { came: 3, ..Door::default() };
/// let values: Vec<terrace_core::Measurement> = door.values();
/// assert_eq!((values[0].0.name, values[0].1), ("came", 3));
/// assert_eq!(Door::FIGURES[1].help, "How long it stood open.");
/// assert_eq!(Door::FIGURES[1].unit.name(), "ns");
/// ```
#[macro_export]
macro_rules! figures {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty as $unit:ident,
            )+
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $(
                $(#[doc = $help])+
                $visibility $field: $type,
            )+
        }

        impl $name {
            /// What each of its figures is, in their order.
            $visibility const FIGURES: &'static [$crate::Figure] = &[$(
                $crate::Figure {
                    name: stringify!($field),
                    unit: $crate::Unit::$unit,
                    help: concat!($($help),+).trim_ascii(),
                },
            )+];

            /// Each figure with its value, in their order.
            #[must_use]
            $visibility fn values<V>(self) -> Vec<$crate::Measurement<V>>
            where
                $(V: From<$type>,)+
            {
                Self::FIGURES.iter().zip([$(V::from(self.$field)),+]).collect()
            }
        }
    };
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of numbered units, from which any unit is taken out at once: what indexes of cold pages are made of.
//!
//! A unit is in one list at most; the links of all lists are in one place ([`Links`]), 8 bytes a unit, and a list is
//! its two ends ([`Ends`]).

/// No unit.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

/// The ends of a list.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    newest: u32,
    oldest: u32,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            newest: NONE,
            oldest: NONE,
        }
    }
}

impl Ends {
    /// The unit that has been in it longest.
    #[must_use]
    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }
}

/// The links of all units, by number.
#[derive(Debug, Default)]
pub struct Links(Vec<Link>);

impl Links {
    /// There are so many units. Those that are new are in no list.
    pub fn resize(&mut self, units: usize) {
        // By an eighth, not by twice: there are many.
        if self.0.capacity() < units {
            self.0.reserve_exact(units + (units - 1) / 8 - self.0.len());
        }
        let none = Link {
            newer: NONE,
            older: NONE,
        };
        self.0.resize(units, none);
    }

    /// Puts a unit that is in no list in as the newest.
    pub fn push(&mut self, list: &mut Ends, unit: u32) {
        let older = std::mem::replace(&mut list.newest, unit);
        if older == NONE {
            list.oldest = unit;
        } else {
            self.0[older as usize].newer = unit;
        }
        self.0[unit as usize] = Link { newer: NONE, older };
    }

    /// Takes a unit out of the list that it is in.
    pub fn remove(&mut self, list: &mut Ends, unit: u32) {
        let Link { newer, older } = self.0[unit as usize];
        if newer == NONE {
            list.newest = older;
        } else {
            self.0[newer as usize].older = older;
        }
        if older == NONE {
            list.oldest = newer;
        } else {
            self.0[older as usize].newer = newer;
        }
    }

    /// Bytes this takes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<Link>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against two plain vectors, the oldest first.
        #[test]
        fn they_are_lists(steps in prop::collection::vec((0_usize..2, 0_u32..16), 0..200)) {
            let (mut links, mut lists) = (Links::default(), [Ends::default(); 2]);
            let mut plain = [Vec::new(), Vec::new()];
            links.resize(16);
            for (list, unit) in steps {
                match plain.iter().position(|units| units.contains(&unit)) {
                    Some(list) => {
                        links.remove(&mut lists[list], unit);
                        plain[list].retain(|one| *one != unit);
                    }
                    None => {
                        links.push(&mut lists[list], unit);
                        plain[list].push(unit);
                    }
                }
                for (list, units) in lists.iter().zip(&plain) {
                    prop_assert_eq!(list.oldest(), units.first().copied());
                }
            }
            for (mut list, units) in lists.into_iter().zip(plain) {
                for unit in units {
                    prop_assert_eq!(list.oldest(), Some(unit));
                    links.remove(&mut list, unit);
                }
                prop_assert_eq!(list.oldest(), None);
            }
        }
    }
}

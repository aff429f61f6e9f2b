// SPDX-License-Identifier: MIT OR Apache-2.0
//! A 2 MiB page by name that is base pages in memory: all of them move, and one report tells.
//!
//! What is tracked by 2 MiB need not be mapped so. The base pages that are there go as a batch of
//! their own, by the ways of base pages; the worst end of any is the end of the whole, so that the
//! supervisor tries again where something is left.

use terrace_core::PageSize;
use terrace_proto::Outcome;

use crate::ops::item::End;
use crate::ops::item::Item;
use crate::ops::item::Order;
use crate::ops::scratch::Scratch;
use crate::state::agent::Agent;

const BASE: u64 = PageSize::Base4K.bytes();

impl Agent {
    /// Ends those items that are not huge pages in memory, by moving their base pages.
    pub(crate) fn move_in_pieces(&self, items: &mut [Item], demote: bool, scratch: &mut Scratch) {
        for item in items.iter_mut() {
            if item.order.size != PageSize::Huge2M || !item.is_open() {
                continue;
            }
            let Some(mut pieces) = self.pieces(&item.order) else {
                continue;
            };
            if demote {
                self.demote(&mut pieces, scratch);
            } else {
                self.migrate(&mut pieces, scratch);
            }
            let ends: Vec<End> = pieces.iter().filter_map(Item::ended).collect();
            item.end(together(&ends));
        }
    }

    /// The base pages that are there; `None` where a huge page is.
    fn pieces(&self, whole: &Order) -> Option<Vec<Item>> {
        let (mut huge, mut found) = (false, Vec::new());
        self.pagemap
            .scan(whole.addr, whole.end(), |run| {
                huge |= run.kind.huge;
                if run.kind.present && !run.kind.zero {
                    found.extend((run.start / BASE..run.end / BASE).map(|page| page * BASE));
                }
            })
            .ok()?;
        if huge {
            return None;
        }
        let piece = |(seq, addr): (u64, u64)| {
            Item::new(Order {
                seq,
                addr,
                size: PageSize::Base4K,
                ..*whole
            })
        };
        Some((1..).zip(found).map(piece).collect())
    }
}

/// How the whole ended: what asks for another try comes first.
fn together(pieces: &[End]) -> End {
    const ORDER: [Outcome; 10] = [
        Outcome::Failed,
        Outcome::NoMemory,
        Outcome::NoShadow,
        Outcome::NotManaged,
        Outcome::Busy,
        Outcome::Unavailable,
        Outcome::Dirtied,
        Outcome::DoneShadowStale,
        Outcome::Done,
        Outcome::ShadowHit,
    ];
    let any = |outcome: &Outcome| pieces.iter().any(|end| end.outcome == *outcome);
    End {
        outcome: ORDER.into_iter().find(any).unwrap_or(Outcome::Gone),
        errno: pieces.iter().map(|end| end.errno).max().unwrap_or(0),
        inaccessible: pieces
            .iter()
            .map(|end| end.inaccessible)
            .max()
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_end_is_the_end_of_the_whole() {
        let ended = |outcomes: &[Outcome]| {
            let ends: Vec<End> = outcomes.iter().map(|outcome| End::from(*outcome)).collect();
            together(&ends).outcome
        };
        assert_eq!(ended(&[]), Outcome::Gone);
        assert_eq!(ended(&[Outcome::Gone, Outcome::Done]), Outcome::Done);
        assert_eq!(ended(&[Outcome::ShadowHit; 2]), Outcome::ShadowHit);
        assert_eq!(ended(&[Outcome::Done, Outcome::ShadowHit]), Outcome::Done);
        assert_eq!(ended(&[Outcome::Done, Outcome::Busy]), Outcome::Busy);
        let all = ended(&Outcome::ALL);
        assert_eq!(all, Outcome::Failed);
    }
}

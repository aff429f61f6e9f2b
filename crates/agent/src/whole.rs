// SPDX-License-Identifier: MIT OR Apache-2.0
//! A 2 MiB page by name that is base pages in memory: all of them move, and one report tells.
//!
//! What is tracked by 2 MiB need not be mapped so. The base pages that are there go as a batch of
//! their own, by the ways of base pages; the worst end of any is the end of the whole, so that the
//! supervisor tries again where something is left.

use terrace_core::PageSize;
use terrace_proto::Outcome;

use crate::agent::Agent;
use crate::item::Item;
use crate::scratch::Scratch;

const BASE: u64 = PageSize::Base4K.bytes();

impl Agent {
    /// Ends those items that are not huge pages in memory, by moving their base pages.
    pub(crate) fn move_in_pieces(&self, items: &mut [Item], demote: bool, scratch: &mut Scratch) {
        for item in items.iter_mut() {
            if item.size != PageSize::Huge2M || !item.is_open() {
                continue;
            }
            let Some(mut pieces) = self.pieces(item) else {
                continue;
            };
            if demote {
                self.demote(&mut pieces, scratch);
            } else {
                self.migrate(&mut pieces, scratch);
            }
            item.outcome = Some(together(&pieces));
            item.errno = pieces.iter().map(|p| p.errno).max().unwrap_or(0);
            item.inaccessible = pieces.iter().map(|p| p.inaccessible).max().unwrap_or(0);
        }
    }

    /// The base pages that are there; `None` where a huge page is.
    fn pieces(&self, item: &Item) -> Option<Vec<Item>> {
        let (mut huge, mut found) = (false, Vec::new());
        self.pagemap
            .scan(item.addr, item.end(), |run| {
                huge |= run.kind.huge;
                if run.kind.present && !run.kind.zero {
                    found.extend((run.start / BASE..run.end / BASE).map(|page| page * BASE));
                }
            })
            .ok()?;
        if huge {
            return None;
        }
        let piece = |(n, addr): (u64, u64)| {
            let (size, node) = (PageSize::Base4K, item.node);
            let mut piece = Item::new(n, addr, size, node, item.keep_shadow);
            piece.shadow_only = item.shadow_only;
            piece
        };
        Some((1..).zip(found).map(piece).collect())
    }
}

/// How the whole ended: what asks for another try comes first.
fn together(pieces: &[Item]) -> Outcome {
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
    let any = |outcome: &Outcome| pieces.iter().any(|p| p.outcome == Some(*outcome));
    ORDER.into_iter().find(any).unwrap_or(Outcome::Gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::NodeId;

    #[test]
    fn the_worst_end_is_the_end_of_the_whole() {
        let ended = |outcomes: &[Outcome]| {
            let items: Vec<Item> = outcomes
                .iter()
                .map(|outcome| {
                    let mut item = Item::new(1, 0, PageSize::Base4K, NodeId(0), false);
                    item.outcome = Some(*outcome);
                    item
                })
                .collect();
            together(&items)
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

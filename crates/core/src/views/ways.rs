// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single ways that the operator says, where those that follow from the order of the nodes are not wanted: what AutoTiering's
//! kernel reads from `promotion_path`, `migration_path` and `demotion_path` of each node.
//!
//! A way that is said leads up, to a better node of the tier, or down, as its kind does; so no way of one kind is a
//! circle, whatever is said. One that leads elsewhere is refused by [`Views::check`].

use std::fmt;

use super::View;
use super::Views;
use crate::NodeId;

/// What a way is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayKind {
    /// To a higher tier.
    Promotion,
    /// To a better node of the same tier.
    Migration,
    /// To a lower tier.
    Demotion,
}

impl WayKind {
    const fn leads(self) -> &'static str {
        match self {
            Self::Promotion => "of a faster tier",
            Self::Migration => "a better node of its tier",
            Self::Demotion => "of a slower tier",
        }
    }
}

impl fmt::Display for WayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Promotion => "promotion",
            Self::Migration => "migration",
            Self::Demotion => "demotion",
        })
    }
}

/// Where the pages of a node go, as who accesses them sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenWay {
    /// The node of the processors.
    pub from: NodeId,
    /// The memory node that the pages are on.
    pub node: NodeId,
    /// What the way is for.
    pub kind: WayKind,
    /// Where it leads, the first choice first; nowhere if it is empty.
    pub to: Vec<NodeId>,
}

/// A way that does not fit the machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WayError {
    /// Nobody sees it.
    #[error(
        "The {kind} from node {node} as seen from {from}: node {from} has no processors here; nodes with processors: {have}"
    )]
    NoProcessors {
        /// What the way is for.
        kind: WayKind,
        /// The memory node.
        node: NodeId,
        /// The node of the processors.
        from: NodeId,
        /// What there is.
        have: String,
    },
    /// It leads up where it should lead down, or nowhere that is known.
    #[error("The {kind} from node {node} as seen from {from}: node {to} is not {}", kind.leads())]
    Elsewhere {
        /// What the way is for.
        kind: WayKind,
        /// The memory node.
        node: NodeId,
        /// The node of the processors.
        from: NodeId,
        /// Where it leads.
        to: NodeId,
    },
    /// It names a node twice, or is said twice.
    #[error(
        "The {kind} from node {node} as seen from {from} is given twice, or leads to one node twice"
    )]
    Twice {
        /// What the way is for.
        kind: WayKind,
        /// The memory node.
        node: NodeId,
        /// The node of the processors.
        from: NodeId,
    },
}

impl Views {
    /// The same with these ways; what one does not say follows from the order of the nodes.
    #[must_use]
    pub fn with(mut self, ways: &[GivenWay]) -> Self {
        for view in &mut self.views {
            let own = ways.iter().filter(|way| way.from == view.from);
            view.ways = own.cloned().collect();
        }
        self
    }

    /// Whether these ways fit.
    ///
    /// # Errors
    ///
    /// The first that does not.
    pub fn check(&self, ways: &[GivenWay]) -> Result<(), WayError> {
        for (at, way) in ways.iter().enumerate() {
            let &GivenWay {
                from, node, kind, ..
            } = way;
            let Some(view) = self.views.iter().find(|view| view.from == from) else {
                let all: Vec<String> = self.views.iter().map(|v| v.from.to_string()).collect();
                let have = all.join(", ");
                return Err(WayError::NoProcessors {
                    kind,
                    node,
                    from,
                    have,
                });
            };
            if let Some(&to) = way.to.iter().find(|to| !view.may(kind, node, **to)) {
                return Err(WayError::Elsewhere {
                    kind,
                    node,
                    from,
                    to,
                });
            }
            let same =
                |other: &GivenWay| (other.from, other.node, other.kind) == (from, node, kind);
            let again = |(at, to): (usize, &NodeId)| way.to[..at].contains(to);
            if ways[..at].iter().any(same) || way.to.iter().enumerate().any(again) {
                return Err(WayError::Twice { kind, node, from });
            }
        }
        Ok(())
    }
}

impl View {
    /// Whether a way of that kind may lead there.
    fn may(&self, kind: WayKind, node: NodeId, to: NodeId) -> bool {
        let place = |node| Some((self.seen(node)?.tier, self.rank(node)?));
        let Some(((tier, rank), (there, other))) = place(node).zip(place(to)) else {
            return false;
        };
        match kind {
            WayKind::Promotion => there < tier,
            WayKind::Migration => there == tier && other < rank,
            WayKind::Demotion => there > tier,
        }
    }

    /// Where a way leads that is said, or that follows from the order, which may have been measured to be another since.
    pub(super) fn said_or<'a>(
        &'a self,
        kind: WayKind,
        node: NodeId,
        order: impl Iterator<Item = NodeId> + 'a,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let same = |way: &&GivenWay| (way.node, way.kind) == (node, kind);
        let said = self.ways.iter().find(same);
        let order = said.is_none().then_some(order);
        let to = said.into_iter().flat_map(|way| way.to.iter().copied());
        to.filter(move |to| self.may(kind, node, *to))
            .chain(order.into_iter().flatten())
    }
}

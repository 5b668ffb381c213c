//! The nodes of a site on which a pod fits: found by a snapshot before the ledger's lock is taken, and under it only as far as
//! something is reserved there.

use std::sync::Arc;

use crate::model::node::{Node, NodeId};
use crate::placement::score::{SCORED, score};
use crate::resources::Amounts;

/// The nodes on which a pod fits by a snapshot, in the order of their site.
#[derive(Debug, Default)]
pub(super) struct CandidateNodes<'s> {
    nodes: Vec<&'s Node>,
    positions: Positions,
    /// Of the first of them, how much kube-scheduler likes each by the snapshot.
    scores: Vec<i64>,
}

/// At which position of a list the node of an id is.
#[derive(Debug)]
pub(super) enum Positions {
    /// From the smallest id on; [`NOWHERE`] for those between them that are not listed.
    Dense { first: u32, positions: Vec<u32> },
    /// By id.
    Sparse(Vec<(NodeId, u32)>),
}

const NOWHERE: u32 = u32::MAX;

/// Ids for each listed node, at most, among which a table of all of them is worth its memory.
const SPREAD: usize = 16;

impl Default for Positions {
    fn default() -> Self {
        Self::Sparse(vec![])
    }
}

impl Positions {
    /// Cost: a pass; a sort where the ids are far apart, as after many nodes were replaced.
    pub(super) fn of(nodes: &[&Node]) -> Self {
        let ids = || nodes.iter().map(|node| node.id.0);
        let (Some(first), Some(last)) = (ids().min(), ids().max()) else {
            return Self::default();
        };
        let numbered = || (0..).zip(nodes);
        let span = (last - first) as usize + 1;
        if span / SPREAD > nodes.len() {
            let mut sparse: Vec<(NodeId, u32)> = numbered().map(|(position, node)| (node.id, position)).collect();
            sparse.sort_unstable();
            return Self::Sparse(sparse);
        }
        let mut positions = vec![NOWHERE; span];
        for (position, node) in numbered() {
            positions[(node.id.0 - first) as usize] = position;
        }
        Self::Dense { first, positions }
    }

    /// Cost: as good as none; a search where the ids are far apart.
    pub(super) fn get(&self, id: NodeId) -> Option<usize> {
        let position = match self {
            Self::Dense { first, positions } => *positions.get(id.0.checked_sub(*first)? as usize)?,
            Self::Sparse(positions) => {
                let at = positions.binary_search_by_key(&id, |(id, _)| *id).ok()?;
                positions[at].1
            }
        };
        (position != NOWHERE).then_some(position as usize)
    }
}

impl<'s> CandidateNodes<'s> {
    /// Of these nodes, for this request. Cost: a pass, and a score for each of the first hundred.
    pub(super) fn new(nodes: Vec<&'s Node>, request: &Amounts) -> Self {
        let scored = nodes.iter().take(SCORED);
        Self {
            scores: scored
                .map(|node| score(request, &node.allocatable, &node.used))
                .collect(),
            positions: Positions::of(&nodes),
            nodes,
        }
    }

    pub(super) fn nodes(&self) -> &[&'s Node] {
        &self.nodes
    }

    pub(super) fn positions(&self) -> &Positions {
        &self.positions
    }
}

/// Those of a site's candidates on which a pod fits beside what is reserved and claimed.
#[derive(Debug, Clone, Default)]
pub struct Fitting<'s> {
    found: Arc<CandidateNodes<'s>>,
    /// A bit for each position of those on which it does not fit any more; nothing where it fits on all.
    lost: Vec<u64>,
    /// The scores of the first of them as they are now; nothing where they are as they were.
    scores: Vec<i64>,
    count: usize,
}

impl<'s> Fitting<'s> {
    /// All candidates.
    pub(super) fn all(found: &Arc<CandidateNodes<'s>>) -> Self {
        Self {
            count: found.nodes.len(),
            lost: vec![],
            scores: vec![],
            found: Arc::clone(found),
        }
    }

    /// How much kube-scheduler likes the node of this position now; nothing where the pod does not fit any more. Each position is
    /// updated once.
    pub(super) fn update(&mut self, position: usize, score: Option<i64>) {
        match score {
            Some(score) if position < self.found.scores.len() => {
                if self.scores.is_empty() {
                    self.scores.clone_from(&self.found.scores);
                }
                self.scores[position] = score;
            }
            Some(_) => {}
            None => {
                if self.lost.is_empty() {
                    self.lost = vec![0; self.found.nodes.len().div_ceil(64)];
                }
                self.lost[position / 64] |= 1 << (position % 64);
                self.count -= 1;
            }
        }
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it fits nowhere.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The nodes, in the order of their site.
    pub fn iter(&self) -> impl Iterator<Item = &'s Node> + Clone {
        self.scored().map(|(node, _)| node)
    }

    /// The same, each with how much kube-scheduler likes it, as far as that is known.
    pub(super) fn scored(&self) -> impl Iterator<Item = (&'s Node, Option<i64>)> + Clone {
        let is_lost = |position: usize| {
            self.lost
                .get(position / 64)
                .is_some_and(|bits| bits >> (position % 64) & 1 == 1)
        };
        let scores = match &*self.scores {
            [] => &self.found.scores,
            now => now,
        };
        let positions = self.found.nodes.iter().enumerate();
        positions
            .filter(move |(position, _)| !is_lost(*position))
            .map(|(position, node)| (*node, scores.get(position).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ids: &[u32]) -> Vec<Node> {
        let node = |id: &u32| Node {
            id: NodeId(*id),
            ..Node::default()
        };
        ids.iter().map(node).collect()
    }

    #[test]
    fn each_node_is_at_its_place_however_far_apart_the_ids_are() {
        for ids in [&[7, 3, 4][..], &[7], &[0, u32::MAX - 1, 90_000], &[u32::MAX]] {
            let nodes = nodes(ids);
            let positions = Positions::of(&nodes.iter().collect::<Vec<_>>());
            for (position, id) in ids.iter().enumerate() {
                assert_eq!(positions.get(NodeId(*id)), Some(position), "{ids:?}");
            }
            for other in [2, 5, 8, 89_999, u32::MAX - 2] {
                assert_eq!(positions.get(NodeId(other)), None, "{ids:?}");
            }
        }
        assert_eq!(Positions::of(&[]).get(NodeId(0)), None);
    }

    #[test]
    fn those_that_are_lost_are_left_out_and_the_others_stay_in_order() {
        let nodes = nodes(&(0..130).collect::<Vec<_>>());
        let found = Arc::new(CandidateNodes::new(nodes.iter().collect(), &Amounts::default()));
        let mut fitting = Fitting::all(&found);
        assert_eq!((fitting.len(), fitting.iter().count()), (130, 130));
        for position in [129, 0, 64, 5] {
            fitting.update(position, (position == 5).then_some(7));
        }
        assert_eq!((fitting.len(), fitting.iter().count()), (127, 127));
        assert!(fitting.iter().all(|node| ![0, 64, 129].contains(&node.id.0)));
        assert!(fitting.iter().is_sorted_by_key(|node| node.id));
        let scored = fitting.scored();
        let scores: Vec<_> = scored.filter_map(|(node, score)| Some((node.id.0, score?))).collect();
        assert_eq!(scores.len(), SCORED - 2);
        assert!(scores.contains(&(5, 7)) && !scores.contains(&(6, 7)));
    }
}

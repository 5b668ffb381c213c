//! The nodes of a site on which a pod fits: found by a snapshot before the ledger's lock is taken, and under it only as far as
//! something is reserved there.

use std::sync::Arc;

use crate::model::node::Node;
use crate::model::node_set::NodeSet;
use crate::model::nodes::Nodes;
use crate::placement::score::{SCORED, score};
use crate::resources::Amounts;

/// The nodes on which a pod fits by a snapshot.
#[derive(Debug)]
pub(super) struct CandidateNodes<'s> {
    nodes: &'s Nodes,
    set: NodeSet,
    count: usize,
    /// How much kube-scheduler likes each of the first of them by the snapshot, at its position.
    scores: Vec<i64>,
}

impl<'s> CandidateNodes<'s> {
    /// This set of a site's nodes, for this request. Cost: a score for each of the first hundred.
    pub(super) fn new(nodes: &'s Nodes, set: NodeSet, request: &Amounts) -> Self {
        let count = set.len();
        let mut scores = Vec::with_capacity(count.min(SCORED));
        set.iter().take(SCORED).for_each(|position| {
            let node = &nodes[position];
            scores.resize(position, 0);
            scores.push(score(request, &node.allocatable, &node.used));
        });
        Self {
            nodes,
            set,
            count,
            scores,
        }
    }

    /// All nodes of the site.
    pub(super) fn of_site(&self) -> &'s Nodes {
        self.nodes
    }

    /// Which of them these are.
    pub(super) fn set(&self) -> &NodeSet {
        &self.set
    }

    /// These, in the order of the site.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'s Node> + Clone {
        self.set.iter().map(|position| &*self.nodes[position])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Those of a site's candidates on which a pod fits beside what is reserved and claimed.
#[derive(Debug, Clone)]
pub struct Fitting<'s> {
    found: Arc<CandidateNodes<'s>>,
    /// Those on which it does not fit any more; without a word where it fits on all.
    lost: NodeSet,
    /// The scores of the first of them as they are now; nothing where they are as they were.
    scores: Vec<i64>,
    count: usize,
}

impl<'s> Fitting<'s> {
    /// All candidates.
    pub(super) fn all(found: &Arc<CandidateNodes<'s>>) -> Self {
        Self {
            count: found.count,
            lost: NodeSet::default(),
            scores: vec![],
            found: Arc::clone(found),
        }
    }

    /// How much kube-scheduler likes the node of this position now; nothing where the pod does not fit any more. Each candidate is
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
                if self.lost == NodeSet::default() {
                    self.lost = NodeSet::none_of(self.found.nodes.len());
                }
                self.lost.set(position, true);
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
        let scores = match &*self.scores {
            [] => &self.found.scores,
            now => now,
        };
        let positions = self.found.set.without(&self.lost);
        positions.map(|position| (&*self.found.nodes[position], scores.get(position).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node::NodeId;

    #[test]
    fn those_that_are_lost_are_left_out_and_the_others_stay_in_order() {
        let node = |id| Node {
            id: NodeId(id),
            ..Node::default()
        };
        let nodes: Nodes = (0..131).map(|id| Arc::new(node(id))).collect();
        let all_but_one = NodeSet::of(&nodes, |node| node.id != NodeId(130));
        let found = Arc::new(CandidateNodes::new(&nodes, all_but_one, &Amounts::default()));
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

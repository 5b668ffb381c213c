//! The nodes of a site on which a pod fits: found by a snapshot before the ledger's lock is taken, and under it only as far as
//! something is reserved there.

use std::sync::Arc;

use crate::model::node::Node;
use crate::model::node_set::NodeSet;
use crate::model::nodes::Nodes;
use crate::placement::score::{SCORED, Scorer};
use crate::resources::Amounts;

/// The nodes on which a pod fits by a snapshot.
#[derive(Debug)]
pub(super) struct CandidateNodes<'s> {
    nodes: &'s Nodes,
    set: NodeSet,
    count: usize,
    /// How much kube-scheduler likes each of the first hundred of them by the snapshot, at its position.
    scores: Vec<Score>,
}

/// What a [`Scorer`] gives, in little memory: all are copied under the lock.
type Score = i16;

/// In the place of a score where no candidate is.
const NO_CANDIDATE: Score = -1;

/// The same, but for what is outside of what scores are.
fn narrowed(score: i64) -> Score {
    score.clamp(0, Score::MAX.into()) as Score
}

impl<'s> CandidateNodes<'s> {
    /// This set of a site's nodes, for this request. Cost: a score for each of the first hundred.
    pub(super) fn new(nodes: &'s Nodes, set: NodeSet, request: &Amounts) -> Self {
        let count = set.len();
        let mut scores = Vec::with_capacity(count.min(SCORED));
        let scorer = Scorer::new(request);
        set.iter().take(SCORED).for_each(|position| {
            let node = &nodes[position];
            scores.resize(position, NO_CANDIDATE);
            scores.push(narrowed(scorer.score(&node.allocatable, &node.used)));
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
    /// Whether one of those is among the first hundred candidates, which have scores.
    lost_scored: bool,
    /// The scores of the first of them as they are now; nothing where they are as they were.
    scores: Vec<Score>,
    count: usize,
}

impl<'s> Fitting<'s> {
    /// All candidates.
    pub(super) fn all(found: &Arc<CandidateNodes<'s>>) -> Self {
        Self {
            count: found.count,
            lost: NodeSet::default(),
            lost_scored: false,
            scores: vec![],
            found: Arc::clone(found),
        }
    }

    /// None of the candidates.
    pub(super) fn none(found: &Arc<CandidateNodes<'s>>) -> Self {
        Self {
            count: 0,
            lost: found.set.clone(),
            lost_scored: true,
            ..Self::all(found)
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
                self.scores[position] = narrowed(score);
            }
            Some(_) => {}
            None => {
                if self.lost == NodeSet::default() {
                    self.lost = NodeSet::none_of(self.found.nodes.len());
                }
                self.lost.set(position, true);
                self.lost_scored |= position < self.found.scores.len();
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
        let scores = self.scores();
        let positions = self.found.set.without(&self.lost);
        let score = |position| scores.get(position).copied().map(i64::from);
        positions.map(move |position| (&*self.found.nodes[position], score(position)))
    }

    /// Of the first hundred, the node with the highest score; of equals, the first. `None` where not all of them have scores. Cost: a
    /// comparison for each.
    pub(super) fn best_scored(&self) -> Option<&'s Node> {
        if self.lost_scored {
            return None;
        }
        let (mut best, mut highest) = (None, NO_CANDIDATE);
        for (position, score) in self.scores().iter().enumerate() {
            if *score > highest {
                (best, highest) = (Some(position), *score);
            }
        }
        best.map(|position| &*self.found.nodes[position])
    }

    fn scores(&self) -> &[Score] {
        match &*self.scores {
            [] => &self.found.scores,
            now => now,
        }
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
        assert_eq!(fitting.best_scored().map(|node| node.id.0), Some(0));
        fitting.update(5, Some(7_000));
        assert_eq!(fitting.best_scored().map(|node| node.id.0), Some(5));
        fitting.update(129, None);
        assert!(fitting.best_scored().is_some(), "it had no score");
        for position in [0, 64] {
            fitting.update(position, None);
        }
        assert!(fitting.best_scored().is_none());
        assert_eq!((fitting.len(), fitting.iter().count()), (127, 127));
        assert!(fitting.iter().all(|node| ![0, 64, 129].contains(&node.id.0)));
        assert!(fitting.iter().is_sorted_by_key(|node| node.id));
        let scored = fitting.scored();
        let scores: Vec<_> = scored.filter_map(|(node, score)| Some((node.id.0, score?))).collect();
        assert_eq!(scores.len(), SCORED - 2);
        assert!(scores.contains(&(5, 7_000)) && !scores.contains(&(6, 7_000)));
    }
}

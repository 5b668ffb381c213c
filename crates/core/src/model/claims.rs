//! What is set aside for held pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::model::node::{NodeId, OnTheirWay, Share};
use crate::model::workload::Turn;
use crate::resources::Amounts;

/// Something known of nodes.
pub type ByNode<T> = HashMap<NodeId, T, BuildHasherDefault<Scatter>>;

/// Hashes a [`NodeId`], which a decision looks up for every node: they are given out in sequence, by us.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scatter(u64);

impl Hasher for Scatter {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    /// By the golden ratio, which sets the bits at both ends apart.
    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0 ^ u64::from(id))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}

/// Room on a node that is set aside for one held pod, against those that stand behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The pod's uid.
    pub uid: Arc<str>,
    /// Where it stands.
    pub turn: Turn,
    /// The site of the node.
    pub site: Arc<str>,
    /// The pod's effective request. A pod slot comes with it.
    pub amount: Amounts,
    /// Whether there is room for it now, so that it is about to come; else it waits for the rest.
    pub comes: bool,
}

/// The claims of a release plan, one for each pod, in the order of turns; and where nobody may go yet whom the plan does not
/// know or has not considered. Equal after equal calls. A copy shares the claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    made: Arc<Made>,
    /// The first pod that the plan left waiting.
    first_waiting: Option<Turn>,
    /// Nodes that gained room since it was considered.
    gained: BTreeSet<NodeId>,
    /// The first pod that was not considered.
    not_considered: Option<Turn>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Made {
    by_uid: BTreeMap<Arc<str>, (NodeId, Claim)>,
    nodes: ByNode<Line>,
    sites: BTreeMap<Arc<str>, Line>,
}

/// What is set aside in one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Line {
    turns: Vec<Turn>,
    /// What the first of them has set aside, the first two, and so on.
    sums: Vec<SetAside>,
}

/// What several held pods have set aside together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetAside {
    /// All of it.
    pub taken: Share,
    /// The part for those that are about to come.
    pub coming: OnTheirWay,
}

impl SetAside {
    fn add(&mut self, claim: &Claim) {
        self.taken.amounts.add(&claim.amount, 1);
        self.taken.pods += 1;
        if claim.comes {
            self.coming.add(&claim.amount, 1);
        }
    }

    /// The reverse, but that `coming.step` and `coming.largest` go on counting the claim.
    pub(crate) fn take(&mut self, claim: &Claim) {
        self.taken.amounts = self.taken.amounts.less(&claim.amount);
        self.taken.pods -= 1;
        if claim.comes {
            self.coming.amounts = self.coming.amounts.less(&claim.amount);
            self.coming.pods -= 1;
        }
    }
}

impl Line {
    fn add(&mut self, claim: &Claim) {
        let at = self.turns.partition_point(|turn| *turn <= claim.turn);
        let before = at.checked_sub(1).map(|last| self.sums[last].clone());
        self.turns.insert(at, claim.turn);
        self.sums.insert(at, before.unwrap_or_default());
        self.sums[at..].iter_mut().for_each(|sum| sum.add(claim));
    }

    fn ahead(&self, turn: Turn) -> Option<&SetAside> {
        let ahead = self.turns.partition_point(|other| *other < turn);
        self.sums.get(ahead.checked_sub(1)?)
    }
}

impl Claims {
    /// Sets room on this node aside. Cost: a search, and a pass over the claims of those behind, of which a plan has none.
    pub fn add(&mut self, node: NodeId, claim: Claim) {
        let made = Arc::make_mut(&mut self.made);
        made.nodes.entry(node).or_default().add(&claim);
        made.sites.entry(Arc::clone(&claim.site)).or_default().add(&claim);
        made.by_uid.insert(Arc::clone(&claim.uid), (node, claim));
    }

    /// The pod that stands there goes on waiting, and all that come later do so behind it.
    pub fn leave_waiting(&mut self, turn: Turn) {
        self.first_waiting.get_or_insert(turn);
    }

    /// This node has more room than the plan knew. Those that it left waiting are to look at it before those behind them.
    pub fn close_gained(&mut self, node: NodeId) {
        self.gained.insert(node);
    }

    /// Nobody from this turn on is considered yet, or everybody is. Who is not may not be overtaken.
    pub fn consider_up_to(&mut self, turn: Option<Turn>) {
        self.not_considered = turn;
    }

    /// From where on nobody is considered yet.
    pub fn not_considered(&self) -> Option<Turn> {
        self.not_considered
    }

    /// Whether a pod that stands there may go to this node at all. Cost: a search.
    pub fn is_open(&self, node: NodeId, turn: Turn) -> bool {
        let is_new = || self.gained.contains(&node);
        self.not_considered.is_none_or(|next| turn < next)
            && (self.first_waiting.is_none_or(|first| turn <= first) || !is_new())
    }

    /// The claim of the pod of this uid, and its node. Cost: a search.
    pub fn of(&self, uid: &str) -> Option<(NodeId, &Claim)> {
        self.made.by_uid.get(uid).map(|(node, claim)| (*node, claim))
    }

    /// What those ahead of `turn` have set aside on this node; `None` where nobody has. Cost: two searches if anything is set
    /// aside there.
    pub fn on(&self, node: NodeId, turn: Turn) -> Option<&SetAside> {
        self.made.nodes.get(&node)?.ahead(turn)
    }

    /// The same at a site.
    pub fn at(&self, site: &str, turn: Turn) -> Option<&SetAside> {
        self.made.sites.get(site)?.ahead(turn)
    }

    /// Whether anything is set aside on this node. Cost: a search.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.made.nodes.contains_key(&node)
    }

    /// Every claim and its node.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Claim)> {
        self.made.by_uid.values().map(|(node, claim)| (*node, claim))
    }
}

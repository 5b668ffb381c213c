//! What is set aside for held pods.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::NodeId;
use crate::resources::Amounts;
use crate::workload::Turn;

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
    /// The pod's `spec.priority`.
    pub priority: i32,
    /// Whether there is room for it now, so that it is about to come; else it waits for the rest.
    pub comes: bool,
}

/// The claims of a release plan, by node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims(ByNode<Vec<Claim>>);

impl Claims {
    /// None.
    pub const fn new() -> Self {
        Self(HashMap::with_hasher(BuildHasherDefault::new()))
    }

    /// Sets room on this node aside.
    pub fn add(&mut self, node: NodeId, claim: Claim) {
        self.0.entry(node).or_default().push(claim);
    }

    /// What is set aside on this node. Cost: a search if anything is set aside at all.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = &Claim> {
        self.0.get(&node).into_iter().flatten()
    }

    /// Every claim.
    pub fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.0.values().flatten()
    }

    /// The nodes on which something is set aside.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.0.keys().copied()
    }
}

//! The nodes of a site, and beside them what a decision reads of each one first.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::node::{Node, NodeId};
use super::node_set::NodeSet;
use crate::resources::Amounts;

/// The nodes of a site, in the order of their names; each is at a position, from zero on. A clone shares them.
///
/// What keeps most pods from most nodes stands in a table beside them, 32 bytes for each: who looks for a node with room reads
/// that from one end to the other, and a [`Node`] only where the table does not say enough.
#[derive(Clone, Default)]
pub struct Nodes(Arc<Table>);

#[derive(Clone, Default)]
struct Table {
    nodes: Vec<Arc<Node>>,
    free: Vec<Free>,
    restricted: NodeSet,
    with_placeholders: NodeSet,
    positions: Arc<Positions>,
}

/// What charges leave of what every node has, at least as much as is asked for: see [`Amounts::fits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Free {
    cpu: i64,
    memory: i64,
    ephemeral_storage: i64,
    slots: i64,
}

impl Free {
    fn on(node: &Node) -> Self {
        let (all, used) = (&node.allocatable, &node.used);
        Self {
            cpu: all.cpu.0.saturating_sub(used.cpu.0),
            memory: all.memory.0.saturating_sub(used.memory.0),
            ephemeral_storage: all.ephemeral_storage.0.saturating_sub(used.ephemeral_storage.0),
            slots: node.slots.saturating_sub(node.pods),
        }
    }

    /// The least that a pod needs.
    // Inlined, the condition would be asked once more for each node.
    #[inline(never)]
    fn for_pod(request: &Amounts) -> Self {
        // What is not asked for is not compared.
        let least = |request: i64| if request > 0 { request } else { i64::MIN };
        Self {
            cpu: least(request.cpu.0),
            memory: least(request.memory.0),
            ephemeral_storage: least(request.ephemeral_storage.0),
            slots: 1,
        }
    }

    fn holds(&self, least: &Self) -> bool {
        // Without branches: it is the same few instructions for each node.
        (self.cpu >= least.cpu)
            & (self.memory >= least.memory)
            & (self.ephemeral_storage >= least.ephemeral_storage)
            & (self.slots >= least.slots)
    }
}

impl Nodes {
    /// Those that have a free pod slot, and as much CPU, memory and ephemeral storage as is asked for; other resources are not
    /// compared. Cost: a nanosecond for each.
    pub fn with_room(&self, request: &Amounts) -> NodeSet {
        let least = Free::for_pod(request);
        NodeSet::of(&self.0.free, |free| free.holds(&least))
    }

    /// Those that do not let every pod without constraints in: not Ready, cordoned, or with a taint that keeps pods away.
    pub fn restricted(&self) -> &NodeSet {
        &self.0.restricted
    }

    /// Those on which placeholders are.
    pub fn with_placeholders(&self) -> &NodeSet {
        &self.0.with_placeholders
    }

    /// The position of the node of this id. Cost: as good as none; a search where the ids are far apart.
    pub fn position(&self, id: NodeId) -> Option<usize> {
        self.0.positions.get(id)
    }

    /// The same, if the node is one of this set.
    pub fn position_in(&self, set: &NodeSet, id: NodeId) -> Option<usize> {
        self.position(id).filter(|position| set.contains(*position))
    }

    /// How much of a resource charges leave free at a position; `pods` are slots.
    pub fn free<'n>(&'n self, name: &'n str) -> impl Fn(usize) -> i64 + 'n {
        let column: Option<fn(&Free) -> i64> = match name {
            "pods" => Some(|free| free.slots),
            "cpu" => Some(|free| free.cpu),
            "memory" => Some(|free| free.memory),
            "ephemeral-storage" => Some(|free| free.ephemeral_storage),
            _ => None,
        };
        let on_node = |node: &Node| node.allocatable.scalar(name).saturating_sub(node.used.scalar(name));
        move |position| match column {
            Some(of) => of(&self.0.free[position]),
            None => on_node(&self[position]),
        }
    }

    /// Those of a set, in order.
    pub fn of<'n>(&'n self, set: &'n NodeSet) -> impl Iterator<Item = &'n Node> + Clone {
        set.iter().map(|position| &*self.0.nodes[position])
    }

    /// Puts the newer form of a node, of the same id, in the place of the older one; nothing where there is none. Cost: that of a
    /// copy of all pointers and of the table, where they are shared.
    pub fn renew(&mut self, node: Arc<Node>) {
        if let Some(position) = self.position(node.id) {
            let table = Arc::make_mut(&mut self.0);
            table.restricted.set(position, is_restricted(&node));
            table.with_placeholders.set(position, !node.placeholders.is_empty());
            table.free[position] = Free::on(&node);
            table.nodes[position] = node;
        }
    }

    /// Changes them in any way that keeps their order. Cost: that of making all of them anew.
    pub fn edit(&mut self, change: impl FnOnce(&mut Vec<Arc<Node>>)) {
        let mut nodes = self.to_vec();
        change(&mut nodes);
        *self = nodes.into_iter().collect();
    }
}

#[cfg(test)]
impl Nodes {
    /// Whether what stands beside them is theirs, however they were changed.
    pub(crate) fn is_consistent(&self) -> bool {
        let anew: Self = self.iter().cloned().collect();
        let (kept, anew) = (&self.0, &anew.0);
        let at_their_positions = (0..)
            .zip(self)
            .all(|(position, node)| self.position(node.id) == Some(position));
        kept.free == anew.free
            && kept.restricted == anew.restricted
            && kept.with_placeholders == anew.with_placeholders
            && at_their_positions
    }
}

fn is_restricted(node: &Node) -> bool {
    !node.ready || node.cordoned || node.taints.iter().any(|taint| taint.is_hard())
}

impl FromIterator<Arc<Node>> for Nodes {
    fn from_iter<I: IntoIterator<Item = Arc<Node>>>(nodes: I) -> Self {
        let nodes: Vec<_> = nodes.into_iter().collect();
        Self(Arc::new(Table {
            free: nodes.iter().map(|node| Free::on(node)).collect(),
            restricted: NodeSet::of(&nodes, |node| is_restricted(node)),
            with_placeholders: NodeSet::of(&nodes, |node| !node.placeholders.is_empty()),
            positions: Arc::new(Positions::of(&nodes)),
            nodes,
        }))
    }
}

impl Deref for Nodes {
    type Target = [Arc<Node>];

    fn deref(&self) -> &Self::Target {
        &self.0.nodes
    }
}

impl<'n> IntoIterator for &'n Nodes {
    type Item = &'n Arc<Node>;
    type IntoIter = std::slice::Iter<'n, Arc<Node>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

/// At which position the node of an id is.
#[derive(Debug)]
enum Positions {
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
    fn of(nodes: &[Arc<Node>]) -> Self {
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

    fn get(&self, id: NodeId) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_at_its_place_however_far_apart_the_ids_are() {
        for ids in [&[7, 3, 4][..], &[7], &[0, u32::MAX - 1, 90_000], &[u32::MAX]] {
            let node = |id: &u32| Node {
                id: NodeId(*id),
                ..Node::default()
            };
            let nodes: Nodes = ids.iter().map(|id| Arc::new(node(id))).collect();
            for (position, id) in ids.iter().enumerate() {
                assert_eq!(nodes.position(NodeId(*id)), Some(position), "{ids:?}");
            }
            for other in [2, 5, 8, 89_999, u32::MAX - 2] {
                assert_eq!(nodes.position(NodeId(other)), None, "{ids:?}");
            }
        }
        assert_eq!(Nodes::default().position(NodeId(0)), None);
    }
}

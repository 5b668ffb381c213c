//! What is new for pods that wait: where there may be room that there was not.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::index::Index;
use crate::model::node::NodeId;

/// What is new for pods that wait, since it was last asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct News {
    /// Nodes that have room for more: they gained some, or something that keeps pods away from them changed.
    pub gained: BTreeSet<NodeId>,
    /// Nodes that have less room.
    pub lost: BTreeSet<NodeId>,
    /// Whether something else may help: a setting, a namespace.
    pub other: bool,
}

impl Index {
    /// What is new for pods that wait, since this was last asked: of nodes, what became of all changes together. Cost: a few
    /// comparisons for each node that was touched.
    pub fn take_news(&mut self) -> News {
        let mut news = std::mem::take(&mut self.news);
        for (id, before) in std::mem::take(&mut self.before) {
            match self.nodes.get(&id) {
                None => drop(news.lost.insert(id)),
                // Nobody is sent there.
                Some(entry) if entry.site.is_none() => {}
                Some(entry) => {
                    let now = &entry.node;
                    // Whoever waits may wait for those that are leaving.
                    if before.has_less_than(now) || before.leaving != now.leaving {
                        news.gained.insert(id);
                    }
                    if now.has_less_than(&before) {
                        news.lost.insert(id);
                    }
                }
            }
        }
        news
    }

    /// The room of the node is about to change.
    pub(super) fn remember(&mut self, id: NodeId) {
        if let Some(entry) = self.nodes.get(&id) {
            self.before.entry(id).or_insert_with(|| Arc::clone(&entry.node));
        }
    }

    /// Something that concerns all nodes of this site may help.
    pub(super) fn site_gained(&mut self, site: usize) {
        self.news.gained.extend(self.sites[site].members.values());
    }
}

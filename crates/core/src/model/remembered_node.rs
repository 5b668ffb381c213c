//! A node that is gone, as it was.

use std::sync::Arc;

use super::node::Node;
use crate::units::Moment;

/// A node of a cloud that may be back: it says what the cloud could hold when empty, and never that there is room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedNode {
    /// Its [shape](Node::shape).
    pub node: Arc<Node>,
    /// Since when it is known to be gone; `None` of one that was there when it was last seen.
    pub gone_since: Option<Moment>,
}

//! What one decision sees of the fleet, at one revision.

use crate::fleet::{Node, Snapshot};
use crate::resources::Amounts;

/// The snapshot together with everything promised since. The first version promises nothing: reservations and
/// claims join here, and `decide` goes on asking the room alone.
#[derive(Debug, Clone, Copy)]
pub struct Room<'s> {
    /// The picture of all sites.
    pub snapshot: &'s Snapshot,
}

impl Room<'_> {
    /// Whether `request` fits on `node` now: a free pod slot, and enough of every resource it asks for. Taints,
    /// labels and readiness are not the room's matter.
    pub fn fits(&self, request: &Amounts, node: &Node) -> bool {
        node.pods < node.slots && request.fits(&node.allocatable, &node.used)
    }
}

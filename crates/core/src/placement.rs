//! Where a pod goes: the decision, what it reads, and what it writes.

pub mod away;
mod choice;
pub mod decide;
pub mod estimate;
pub mod explain;
mod feasibility;
pub mod headroom;
pub mod ledger;
pub(crate) mod located;
pub mod patch;
pub mod policy;
pub mod room;
pub mod score;
pub mod sentences;
mod shortage;
pub mod verdict;

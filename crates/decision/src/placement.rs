//! The placement of a pod: the decision, its inputs, and the patch that it writes.

mod act;
pub mod decide;
pub mod estimate;
pub mod explain;
mod facts;
pub mod features;
mod filters;
pub mod ledger;
pub mod located;
pub mod packing;
pub mod patch;
pub mod policy;
mod rank;
mod reason;
pub mod room;
pub mod score;
pub mod sentences;
pub mod verdict;
mod wait;
mod warnings;

//! The state of edgeward: changes of nodes, pods and links in, snapshots and the release plan out. No I/O, no clock, no
//! randomness. Time, ids and data are arguments.
//!
//! | module | what it is |
//! |---|---|
//! | [`engine`] | the state machine that combines all of this |
//! | [`cache`] | nodes and pods: who charges which node |
//! | [`pod_record`] | a pod that exists, reduced to what charges and queues need |
//! | [`volumes`] | volumes and their claims |
//! | [`liqo`] | Liqo's objects, and what they say about sites and namespaces |
//! | [`wan`], [`telemetry`], `processing` | health of the links, measurements, processing times |
//! | [`queue`] | gated pods and the release plan |
//! | [`backstop`] | pods that were created without edgeward, or that kube-scheduler cannot place |
//! | [`moves`] | pods that another site has become better for |

#![warn(missing_docs)]

pub mod backstop;
pub mod cache;
pub mod engine;
pub mod liqo;
pub mod moves;
pub mod pod_record;
mod processing;
pub mod queue;
pub mod telemetry;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod volumes;
pub mod wan;

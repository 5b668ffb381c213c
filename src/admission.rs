//! The admission endpoint: receives reviews and returns patches.
//!
//! [`server`] is the HTTP and TLS around the synchronous [`Answer`]; [`review`] is the answer itself, and [`extender`] that
//! to kube-scheduler.

pub mod body;
mod clients;
mod connections;
mod deadline;
pub mod extender;
pub mod review;
pub mod server;

pub(crate) use connections::{ADMISSION, Connections, ESTIMATOR, HEALTH, Open, PEERS, Slot, serve};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use edgeward_decision::placement::verdict::Reason;
use tokio::time::Instant;

/// Answers reviews for the server. [`Reviewer`](review::Reviewer) is the production implementation; tests use slow and
/// broken ones.
pub trait Answer: Send + Sync + 'static {
    /// Answers one AdmissionReview (JSON) with the bytes of the AdmissionReview response. Synchronous; takes
    /// microseconds. A slow call blocks one review thread and one of the concurrent reviews. It may panic: the server
    /// contains the panic, so other reviews are unaffected.
    ///
    /// The implementation takes `responder` once it has decided, and reserves, counts and logs only if that
    /// succeeds. If it fails, the deadline has passed and was answered, and the returned bytes are discarded.
    ///
    /// # Errors
    /// The body is not an AdmissionReview.
    fn review(&self, body: &[u8], responder: &Responder) -> anyhow::Result<Vec<u8>>;

    /// Whether anything is answered now; otherwise the path does not exist.
    fn is_served(&self) -> bool {
        true
    }

    /// Returns what leaves the pod as it is: "allowed, no patch" with a warning that gives the reason, or all nodes. Counts it with the time since the body was
    /// complete.
    ///
    /// # Errors
    /// The body is not an AdmissionReview, so not even "allowed" can be answered.
    fn no_opinion(&self, body: &[u8], why: Reason, elapsed: Duration) -> anyhow::Result<Vec<u8>>;
}

/// A path of the admission port, and what answers there.
pub struct Route {
    /// The path.
    pub path: &'static str,
    /// Answers what is posted there.
    pub answer: Arc<dyn Answer>,
    /// The caller's timeout if a request does not state one.
    pub timeout: Duration,
}

/// What the admission endpoint must know of the server.
#[derive(Debug, Default)]
pub struct Phase {
    /// What decisions need and do not have yet. Until this is empty, every review is answered without an opinion.
    pub missing: Vec<&'static str>,
    /// Whether every answer asks the client to take its next request elsewhere.
    pub is_draining: bool,
}

/// The right to answer one review, which is had once: a review and its deadline may come to an end in the same
/// moment, and only what was answered is counted and logged.
#[derive(Debug)]
pub struct Responder {
    since: Instant,
    taken: AtomicBool,
}

impl Responder {
    /// For a review whose body is complete now.
    pub fn start() -> Self {
        Self {
            since: Instant::now(),
            taken: AtomicBool::new(false),
        }
    }

    /// True for the first who asks, who then answers.
    pub fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::AcqRel)
    }

    /// The time since the body was complete.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

//! The admission endpoint: reviews in, patches out.
//!
//! [`server`] is HTTP and TLS around the synchronous [`Answer`]; [`review`] is the answer itself.

mod body;
mod clients;
mod connections;
mod deadline;
mod phase;
mod responder;
pub mod review;
pub mod server;

pub use body::{BODIES_LIMIT, BODY_LIMIT, ORDINARY_BODY};
pub(crate) use connections::{ADMISSION, HEALTH, serve};
pub use connections::{AGE_LIMIT, Connections, HEAD_LIMIT, IDLE_TIMEOUT};
pub use phase::Phase;
pub use responder::Responder;

use std::time::Duration;

use review::{NoOpinion, NotAReview};

/// What the server asks. [`Reviewer`](review::Reviewer) is the answer in production; tests bring slow and broken ones.
pub trait Answer: Send + Sync + 'static {
    /// Answers one AdmissionReview in JSON with the bytes of the AdmissionReview response. Synchronous,
    /// microseconds; one that takes long keeps a worker of the runtime and a turn. May panic: a bug in one review must not cost
    /// another.
    ///
    /// Claims the answer when it has decided, and reserves, counts and logs only then: otherwise the review is overdue,
    /// has been answered, and what is returned goes nowhere.
    ///
    /// # Errors
    /// The body is not an AdmissionReview.
    fn review(&self, body: &[u8], responder: &Responder) -> Result<Vec<u8>, NotAReview>;

    /// "Allowed, no patch" with a warning that says why, counted with this time since the body was complete.
    ///
    /// # Errors
    /// The body is not even a review to which "allowed" could be said.
    fn no_opinion(&self, body: &[u8], why: NoOpinion, elapsed: Duration) -> Result<Vec<u8>, NotAReview>;
}

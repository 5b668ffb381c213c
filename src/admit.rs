//! The admission endpoint: reviews in, patches out.
//!
//! [`server`] is HTTP and TLS around the synchronous [`Answer`]; [`review`] is the answer itself.

mod deadline;
pub mod review;
pub mod server;

use review::{NoOpinion, NotAReview, Reviewer};

/// What the server asks. [`Reviewer`] is the answer in production; tests bring slow and broken ones.
pub trait Answer: Send + Sync + 'static {
    /// Answers one AdmissionReview in JSON with the bytes of the AdmissionReview response. Synchronous,
    /// microseconds. May panic: a bug in one review must not cost another.
    ///
    /// # Errors
    /// The body is not an AdmissionReview.
    fn review(&self, body: &[u8]) -> Result<Vec<u8>, NotAReview>;

    /// "Allowed, no patch" with a warning that says why, counted.
    ///
    /// # Errors
    /// The body is not even a review to which "allowed" could be said.
    fn no_opinion(&self, body: &[u8], why: NoOpinion) -> Result<Vec<u8>, NotAReview>;
}

impl Answer for Reviewer {
    fn review(&self, body: &[u8]) -> Result<Vec<u8>, NotAReview> {
        Self::review(self, body)
    }

    fn no_opinion(&self, body: &[u8], why: NoOpinion) -> Result<Vec<u8>, NotAReview> {
        Self::no_opinion(self, body, why)
    }
}

/// What the admission endpoint does with a review; the runtime tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Something that decisions need is missing: every review is answered without an opinion.
    NotReady,
    /// Reviews are decided.
    Serving,
    /// Reviews are decided, and every answer asks the client to take its next request elsewhere.
    Draining,
}

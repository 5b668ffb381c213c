//! Whether reviews are decided.

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

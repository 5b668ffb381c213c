//! What becomes of pods after they were created.

pub mod backstop;

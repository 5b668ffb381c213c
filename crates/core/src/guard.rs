//! Checks on pods after they are created.

pub mod backstop;

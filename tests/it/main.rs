//! Integration tests.

// A test says what it expects by failing; clippy's own exception covers test functions, not their helpers.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod client;
mod server;
mod shutdown;
mod tls_reload;
mod volume;

//! Integration tests: the public API and the built program, over real sockets and real files.

// A test reports failed expectations by panicking. Clippy exempts test functions, but not their helpers.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
mod book;
mod certificates;
mod chart;
mod cli;
mod client;
mod configuration;
mod custom_resources;
mod deployment;
mod documentation;
mod golden;
mod import;
mod logs;
mod manifests;
mod memory;
mod monitoring;
mod oam;
mod process;
mod profiles;
mod program;
mod reference;
mod release;
mod rights;
mod scorer;
mod server;
mod settings;
mod shutdown;
mod slo;
mod tls_reload;
mod upstream;

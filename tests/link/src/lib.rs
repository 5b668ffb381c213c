//! A WAN for tests: two TUN devices, one in each of two network namespaces, and a process between them that delays and
//! drops packets as it is told while it runs.
//!
//! ```text
//! namespace "edge"                                                 namespace "cloud"
//!   wan 198.51.100.1 ──TUN──►  forth: loss, delay, cut  ──TUN──►  wan 198.51.100.2
//!                    ◄──TUN──  back:        delay, cut  ◄──TUN──
//! ```
//!
//! Everything is said in terms of a round trip, which is what a probe measures: half of the RTT lies on either way, and
//! loss on the way forth alone, so that 5 % loss is 5 % of requests. What is lost follows from a seed and the packet's
//! number, so a test can say beforehand which packets arrive. Only unicast IPv4 passes: what a kernel says by itself on
//! a new device (router solicitations, group memberships) is no traffic of a test and must not move the numbers.
//!
//! [`link`] and [`conditions`] are pure, time is an argument there; [`relay`] and [`namespace`] touch the kernel.

#![allow(missing_docs)]

pub mod conditions;
pub mod link;
pub mod namespace;
pub mod relay;

use anyhow::{Context as _, Result, bail};
use tokio::io::{BufReader, stdin, stdout};

use crate::namespace::Namespace;

/// The program: arguments are the names of the namespaces of edge and cloud, and perhaps a seed (0 if not).
///
/// Reads [commands](conditions::Command) from stdin, answers on stdout, and says on stderr at its end what has passed.
/// Fails on other arguments and as [`relay::join`] does.
pub fn run(args: &[String]) -> Result<()> {
    let (edge, cloud, seed) = match args {
        [edge, cloud] => (edge, cloud, 0),
        [edge, cloud, seed] => (edge, cloud, seed.parse().context("SEED is a whole number")?),
        _ => bail!("usage: edgeward-link EDGE CLOUD [SEED]; EDGE and CLOUD are network namespaces of `ip netns`"),
    };
    let (edge, cloud) = (Namespace::named(edge)?, Namespace::named(cloud)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let joined = runtime.block_on(relay::join(&edge, &cloud, seed, BufReader::new(stdin()), stdout()));
    // A thread may still wait for stdin.
    runtime.shutdown_background();
    let [forth, back] = joined?;
    eprintln!("edgeward-link: forth {forth:?}, back {back:?}");
    Ok(())
}

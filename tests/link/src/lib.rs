//! A WAN for tests. It has one TUN device in each of two network namespaces. A process between them delays and drops packets.
//! Commands change its behaviour while it runs.
//!
//! ```text
//! namespace "edge"                                                 namespace "cloud"
//!   wan 198.51.100.1 ──TUN──►  forth: loss, delay, cut  ──TUN──►  wan 198.51.100.2
//!                    ◄──TUN──  back:        delay, cut  ◄──TUN──
//! ```
//!
//! All values describe a round trip, because that is what a probe measures. Each direction has half of the RTT. Only the way
//! forth loses packets, so that 5 % loss means 5 % of the requests. A packet's loss depends only on the seed and the packet's
//! number, so a test can predict which packets arrive. Only unicast IPv4 passes. A kernel sends other packets by itself on a
//! new device (router solicitations, group memberships), and they must not change the counts.
//!
//! [`link`] and [`conditions`] are pure and take the time as an argument. [`relay`] and [`namespace`] use the kernel.

pub mod conditions;
pub mod link;
pub mod namespace;
pub mod relay;

use anyhow::{Context as _, Result, bail};
use tokio::io::{BufReader, stdin, stdout};

use crate::namespace::Namespace;

/// Runs the program. The arguments are the names of the edge's and the cloud's namespace, and optionally a seed (default 0).
///
/// Reads [commands](conditions::Command) from stdin and answers on stdout. At the end, prints the packet counts on stderr.
/// Fails on other arguments, and where [`relay::join`] fails.
pub fn run(args: &[String]) -> Result<()> {
    let (edge, cloud, seed) = match args {
        [edge, cloud] => (edge, cloud, 0),
        [edge, cloud, seed] => (edge, cloud, seed.parse().context("SEED is a whole number")?),
        _ => bail!("usage: edgeward-link EDGE CLOUD [SEED]; EDGE and CLOUD are network namespaces of `ip netns`"),
    };
    let (edge, cloud) = (Namespace::named(edge)?, Namespace::named(cloud)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let joined = runtime.block_on(relay::join(&edge, &cloud, seed, BufReader::new(stdin()), stdout()));
    // A thread may still block on stdin.
    runtime.shutdown_background();
    let [forth, back] = joined?;
    eprintln!("edgeward-link: forth {forth:?}, back {back:?}");
    Ok(())
}

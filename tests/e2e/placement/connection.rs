//! How the API server talks to edgeward.

use anyhow::{Result, ensure};
use edgeward_harness::fixture::Fixture;
use edgeward_harness::workloads;

use crate::placement::fleet;

/// The protocol that the API server negotiates is HTTP/1.1: `Connection: close` is how edgeward drains.
///
/// The choice is edgeward's. Towards a Service the API server offers nothing else, but towards a URL on loopback, as
/// here, it takes HTTP/2 from a server that offers both.
pub(crate) fn speaks_http_1_1(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward(&fleet::relaxed())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    fixture.kubectl.create(&workloads::pod("asked", workloads::latency()))?;

    let http_1_1 = edgeward.count("edgeward_connections_total", &[("protocol", "http/1.1")])?;
    let all = edgeward.count("edgeward_connections_total", &[])?;
    ensure!(
        http_1_1 > 0 && all == http_1_1,
        "{http_1_1} of {all} connections are HTTP/1.1"
    );
    Ok(())
}

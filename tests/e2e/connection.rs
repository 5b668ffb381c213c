//! How the API server talks to edgeward.

use anyhow::{Result, ensure};

use crate::scene::Scene;
use crate::{fleet, workloads};

/// The protocol that the API server negotiates is HTTP/1.1: `Connection: close` is how edgeward drains.
pub(crate) fn speaks_http_1_1(scene: &Scene<'_>) -> Result<()> {
    let edgeward = scene.edgeward(&fleet::relaxed())?;
    let _registered = scene.register(&edgeward.url, &edgeward.ca)?;
    scene.kubectl.create(&workloads::pod("asked", workloads::latency()))?;

    let http_1_1 = edgeward.metric("edgeward_connections_total", &[("protocol", "http/1.1")])?;
    let all = edgeward.metric("edgeward_connections_total", &[])?;
    ensure!(
        http_1_1 > 0.0 && all.total_cmp(&http_1_1).is_eq(),
        "{http_1_1} of {all} connections are HTTP/1.1"
    );
    Ok(())
}

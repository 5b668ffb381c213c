//! Failures of the connection to the API server: cut, silent and quiet.

use std::thread;

use edgeward_harness::fixture::Registration;
use edgeward_harness::live::{EDGE, pod};
use edgeward_harness::prelude::*;
use edgeward_harness::proxy::Proxy;

use super::{CLOUD, runs, would_be, would_be_within};

const STALE: &str = "edge: edge_telemetry_stale";

/// A watch is open for 30 s at most, so a quiet cluster is never stale with this limit.
const TTL: &str = "45s";

/// edgeward behind a proxy, and a cluster that changes back and forth.
struct Behind<'fixture, 'run> {
    fixture: &'fixture Fixture<'run>,
    nodes: Nodes<'run>,
    proxy: Proxy<'run>,
    _registered: Registration,
    _edgeward: Edgeward<'run>,
}

impl<'fixture, 'run> Behind<'fixture, 'run> {
    /// A node of 2 cores with 1.9 taken, and an empty node of 1 core.
    fn new(fixture: &'fixture Fixture<'run>) -> Result<Self> {
        Self::with(fixture, fixture.proxy()?)
    }

    fn with(fixture: &'fixture Fixture<'run>, proxy: Proxy<'run>) -> Result<Self> {
        let nodes = Nodes::new(fixture)?;
        let node = nodes.edge_node("edge-0", "2")?;
        nodes.edge_node("edge-1", "1")?;
        nodes.cloud_node("cloud-0")?;
        let mut config = nodes.config();
        config["telemetryCacheTTL"] = json!(TTL);
        let edgeward = fixture.live_edgeward_behind(&proxy, &config)?;
        let registered = fixture.register(&edgeward.url, &edgeward.ca)?;
        bound(fixture, "leaves", 1900, &node)?;
        let behind = Self {
            fixture,
            nodes,
            proxy,
            _registered: registered,
            _edgeward: edgeward,
        };
        // Decisions match the old state, so that every part of the change is visible later.
        would_be(fixture, 900, EDGE)?;
        would_be(fixture, 1100, CLOUD)?;
        Ok(behind)
    }

    /// Removes a node and a pod, and adds a pod of 1.5 cores.
    fn change(&self) -> Result<()> {
        self.nodes.remove(&self.node(1))?;
        self.fixture.kubectl.run(&["delete", "pod", "leaves"], "")?;
        bound(self.fixture, "comes", 1500, &self.node(0))
    }

    /// Decisions match the new state.
    fn sees_the_new(&self) -> Result<()> {
        let bound = 2 * BOUND;
        would_be_within(self.fixture, 900, CLOUD, bound)?;
        would_be_within(self.fixture, 400, EDGE, bound)
    }

    /// The cluster changes unseen. Decisions use the last known state until it is too old. When the API server is back,
    /// edgeward sees the changes without a restart.
    fn decides_on(&self) -> Result<()> {
        self.change()?;
        for (millicores, outcome) in [(900, EDGE), (1100, CLOUD)] {
            is_now(self.fixture, &pod(self.fixture, "asking", millicores), outcome).context("it was seen")?;
        }
        would_be_within(self.fixture, 1100, STALE, 2 * BOUND)?;
        self.proxy.heal()?;
        self.sees_the_new()
    }

    fn node(&self, number: u32) -> String {
        format!("{}-edge-{number}", self.fixture.namespace)
    }
}

/// Runs a pod without a decision on this node.
fn bound(fixture: &Fixture<'_>, name: &str, millicores: u32, node: &str) -> Result<()> {
    let mut pod = pod(fixture, name, millicores);
    pod["spec"]["nodeName"] = json!(node);
    fixture.kubectl.create(&pod)?;
    runs(fixture, name)
}

e2e! { "live::cut_connection_keeps_view_until_stale", Nodes, 92, cut_connection_keeps_view_until_stale }
/// Connections end, and new ones are refused.
fn cut_connection_keeps_view_until_stale(fixture: &Fixture<'_>) -> Result<()> {
    let behind = Behind::new(fixture)?;
    behind.proxy.cut()?;
    behind.decides_on()
}

e2e! { "live::silent_connection_keeps_view_until_stale", Nodes, 97, silent_connection_keeps_view_until_stale }
/// Connections stay open and let nothing through. The old connections stay silent even later.
fn silent_connection_keeps_view_until_stale(fixture: &Fixture<'_>) -> Result<()> {
    let behind = Behind::new(fixture)?;
    behind.proxy.fall_silent();
    behind.decides_on()
}

e2e! { "live::restored_api_server_updates_view", Nodes, 91, restored_api_server_updates_view }
/// The API server is restored from a backup, so all resource versions are older than those already seen.
fn restored_api_server_updates_view(fixture: &Fixture<'_>) -> Result<()> {
    let behind = Behind::new(fixture)?;
    fixture.back_up()?;
    behind.change()?;
    behind.sees_the_new()?;
    let restored = fixture.restore()?;
    behind.proxy.lead_to(&restored.url)?;
    let bound = 2 * BOUND;
    would_be_within(fixture, 900, EDGE, bound)?;
    would_be_within(fixture, 1100, CLOUD, bound)
}

e2e! { "live::paged_lists_give_same_view", Nodes, paged_lists_give_same_view }
/// An API server that cannot stream lists is read in pages, and the view is the same.
fn paged_lists_give_same_view(fixture: &Fixture<'_>) -> Result<()> {
    let proxy = fixture.proxy()?;
    proxy.refuse_streams();
    let behind = Behind::with(fixture, proxy)?;
    behind.change()?;
    behind.sees_the_new()
}

e2e! { "live::idle_cluster_keeps_view_fresh", Cluster, idle_cluster_keeps_view_fresh }
/// The cluster is idle for longer than the staleness limit, and the view is not stale.
fn idle_cluster_keeps_view_fresh(fixture: &Fixture<'_>) -> Result<()> {
    const PAUSE: Duration = Duration::from_secs(5);
    // Longer than two watches last.
    const IDLE: Duration = Duration::from_secs(75);
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let mut config = nodes.config();
    config["telemetryCacheTTL"] = json!(TTL);
    let (_edgeward, _registered) = fixture.registered_live(&config)?;

    let begun = Instant::now();
    while begun.elapsed() < IDLE {
        let asked = begun.elapsed();
        is_now(fixture, &pod(fixture, "asking", 900), EDGE).with_context(|| format!("after {asked:?}"))?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

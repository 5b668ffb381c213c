//! The connection to the API server: cut, silent, quiet; and a history that is gone.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::pod;
use super::{CLOUD, EDGE, is_now, runs, would_be, would_be_within};
use crate::edgeward::Edgeward;
use crate::patience::{BOUND, eventually};
use crate::proxy::{Gone, Proxy};
use crate::scene::{Registration, Scene};
use crate::stage::Stage;

const STALE: &str = "edge: edge_telemetry_stale";

/// A watch is open for 30 s at most, so a quiet cluster is never stale with this.
const TTL: &str = "45s";

/// edgeward behind a proxy, and a cluster that changes back and forth.
struct Behind<'scene, 'run> {
    scene: &'scene Scene<'run>,
    stage: Stage<'run>,
    proxy: Proxy<'run>,
    _registered: Registration,
    edgeward: Edgeward<'run>,
}

impl<'scene, 'run> Behind<'scene, 'run> {
    /// A node of 2 cores, of which 1.9 are taken, and an empty one of 1 core.
    fn new(scene: &'scene Scene<'run>) -> Result<Self> {
        Self::with(scene, scene.proxy()?)
    }

    fn with(scene: &'scene Scene<'run>, proxy: Proxy<'run>) -> Result<Self> {
        let stage = Stage::new(scene)?;
        let node = stage.edge_node("edge-0", "2")?;
        stage.edge_node("edge-1", "1")?;
        stage.cloud_node("cloud-0")?;
        let mut config = stage.config();
        config["telemetryCacheTTL"] = json!(TTL);
        let edgeward = scene.live_edgeward_behind(&proxy, &config)?;
        let registered = scene.register(&edgeward.url, &edgeward.ca)?;
        bound(scene, "leaves", 1900, &node)?;
        let behind = Self {
            scene,
            stage,
            proxy,
            _registered: registered,
            edgeward,
        };
        behind.sees_the_old()?;
        Ok(behind)
    }

    /// A node goes, a pod goes, and a pod of 1.5 cores comes.
    fn change(&self) -> Result<()> {
        self.stage.remove(&self.node(1))?;
        self.scene.kubectl.run(&["delete", "pod", "leaves"], "")?;
        bound(self.scene, "comes", 1500, &self.node(0))
    }

    /// The reverse.
    fn change_back(&self) -> Result<()> {
        self.stage.edge_node("edge-1", "1")?;
        self.scene.kubectl.run(&["delete", "pod", "comes"], "")?;
        bound(self.scene, "leaves", 1900, &self.node(0))
    }

    /// Decisions are right for what is there before the change; none of what it changes may be missed.
    fn sees_the_old(&self) -> Result<()> {
        would_be(self.scene, 900, EDGE)?;
        would_be(self.scene, 1100, CLOUD)
    }

    /// Decisions are right for what is there after it.
    fn sees_the_new(&self) -> Result<()> {
        let bound = 2 * BOUND;
        would_be_within(self.scene, 900, CLOUD, bound)?;
        would_be_within(self.scene, 400, EDGE, bound)
    }

    /// The cluster changes unseen: decisions go on from what was seen last, until it is too old. The API server is back:
    /// what changed is seen, without a restart.
    fn decides_on(&self) -> Result<()> {
        self.change()?;
        for (millicores, outcome) in [(900, EDGE), (1100, CLOUD)] {
            is_now(self.scene, &pod(self.scene, "asking", millicores), outcome).context("it was seen")?;
        }
        would_be_within(self.scene, 1100, STALE, 2 * BOUND)?;
        self.proxy.heal()?;
        self.sees_the_new()
    }

    fn lists(&self) -> Result<[u64; 3]> {
        let of = |kind| self.edgeward.count("edgeward_watch_lists_total", &[("kind", kind)]);
        Ok([of("nodes")?, of("pods")?, of("namespaces")?])
    }

    fn node(&self, number: u32) -> String {
        format!("{}-edge-{number}", self.scene.namespace)
    }
}

/// A pod that nobody decides runs on this node.
fn bound(scene: &Scene<'_>, name: &str, millicores: u32, node: &str) -> Result<()> {
    let mut pod = pod(scene, name, millicores);
    pod["spec"]["nodeName"] = json!(node);
    scene.kubectl.create(&pod)?;
    runs(scene, name)
}

/// Connections end, and new ones are refused.
pub(crate) fn cut_connection(scene: &Scene<'_>) -> Result<()> {
    let behind = Behind::new(scene)?;
    behind.proxy.cut()?;
    behind.decides_on()
}

/// Connections stay open and nothing comes through; not even later, through those that were there.
pub(crate) fn silent_connection(scene: &Scene<'_>) -> Result<()> {
    let behind = Behind::new(scene)?;
    behind.proxy.fall_silent();
    behind.decides_on()
}

/// Connections end, and what happened meanwhile is not told any more: everything is listed again, and nothing is lost
/// or counted twice.
pub(crate) fn history_is_gone(scene: &Scene<'_>) -> Result<()> {
    let behind = Behind::new(scene)?;
    let before = behind.lists()?;
    // A list that breaks off begins again.
    ensure!(
        before.iter().all(|lists| (1..=2).contains(lists)),
        "{before:?} lists at the start"
    );

    let missed = |gone, change: &dyn Fn() -> Result<()>| {
        behind.proxy.cut()?;
        change()?;
        behind.proxy.forget_history(gone);
        behind.proxy.heal()?;
        behind.proxy.all_were_told()
    };
    missed(Gone::Event, &|| behind.change())?;
    behind.sees_the_new()?;
    missed(Gone::Status, &|| behind.change_back())?;
    behind.sees_the_old()?;

    // Decisions do not wait for the namespaces, which may be the last.
    let more = || -> Result<Vec<u64>> {
        let now = behind.lists()?;
        Ok(now.iter().zip(before).map(|(now, before)| now - before).collect())
    };
    eventually("each of 3 kinds was listed twice more", BOUND, || {
        let more = more()?;
        ensure!(more.iter().all(|more| *more >= 2), "{more:?} more lists");
        Ok(())
    })?;
    // And not on and on.
    behind.change()?;
    behind.sees_the_new()?;
    let more = more()?;
    ensure!(more.iter().all(|more| *more <= 3), "{more:?} more lists");
    Ok(())
}

/// An API server that sends no list as a stream is asked for pages, and the view is the same.
pub(crate) fn lists_in_pages(scene: &Scene<'_>) -> Result<()> {
    let proxy = scene.proxy()?;
    proxy.refuse_streams();
    let behind = Behind::with(scene, proxy)?;
    behind.change()?;
    behind.sees_the_new()
}

/// Nothing happens for longer than the view may be old, and it is not stale.
pub(crate) fn quiet_cluster(scene: &Scene<'_>) -> Result<()> {
    // More than two watches.
    is_quiet(scene, Duration::from_secs(75), TTL)
}

/// Nothing happens for five minutes, with the default.
pub(crate) fn five_quiet_minutes(scene: &Scene<'_>) -> Result<()> {
    is_quiet(scene, Duration::from_secs(300), "60s")
}

fn is_quiet(scene: &Scene<'_>, duration: Duration, ttl: &str) -> Result<()> {
    const PAUSE: Duration = Duration::from_secs(5);
    let stage = Stage::new(scene)?;
    stage.edge_node("edge-0", "1")?;
    stage.cloud_node("cloud-0")?;
    let mut config = stage.config();
    config["telemetryCacheTTL"] = json!(ttl);
    let edgeward = scene.live_edgeward(&config)?;
    let _registered = scene.register(&edgeward.url, &edgeward.ca)?;

    let begun = Instant::now();
    while begun.elapsed() < duration {
        let asked = begun.elapsed();
        is_now(scene, &pod(scene, "asking", 900), EDGE).with_context(|| format!("after {asked:?}"))?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

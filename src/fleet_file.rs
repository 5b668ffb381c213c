//! Reads a fleet file and its changes into the snapshot for reviews.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use edgeward_cluster::engine::SharedState;
use edgeward_decision::config::Config;
use edgeward_decision::fleet_file;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_kube::units::{Micros, Moment};
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use crate::platform::clock::Clock;
use crate::platform::files::Watch;
use crate::platform::{files, yaml};

/// How often an unchanged fleet file is published again. Its data does not age as telemetry does: the ages that it
/// states hold at every reading.
const REFRESH: Duration = Duration::from_secs(1);

/// A fleet file, and the snapshot made from it.
#[derive(Debug)]
pub struct FleetFile {
    path: PathBuf,
    watch: Watch,
    config: Arc<ArcSwap<Config>>,
    clock: Clock,
    document: Value,
    revision: u64,
    /// The state that holds the newest snapshot.
    pub shared: Arc<SharedState>,
}

impl FleetFile {
    /// Reads the file and publishes its first snapshot.
    ///
    /// # Errors
    /// The file cannot be read, or is not a valid fleet file. The error names its faults.
    pub async fn open(path: PathBuf, config: Arc<ArcSwap<Config>>, clock: Clock) -> anyhow::Result<Self> {
        let (watch, contents) = Watch::open(vec![path.clone()]).await?;
        let document = parse(&path, &contents, &config.load(), clock.moment())?;
        let file = Self {
            path,
            watch,
            config,
            clock,
            document,
            revision: 1,
            // Reservations have no lifetime here, because a file cannot confirm them.
            shared: Arc::new(SharedState::new(Arc::default(), Micros(0))),
        };
        file.publish();
        Ok(file)
    }

    /// Publishes the file repeatedly. Never returns. This picks up changes of the file, and of the thresholds that
    /// judge its links. An unreadable or faulty file is logged and leaves the last valid fleet in place.
    pub async fn follow(mut self) {
        let mut refresh = tokio::time::interval(REFRESH);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = self.watch.changed() => {
                    let parse = |contents: files::Contents| parse(&self.path, &contents, &self.config.load(), self.clock.moment());
                    match changed.and_then(parse) {
                        Ok(document) => {
                            self.document = document;
                            self.revision += 1;
                            tracing::info!(revision = self.revision, "fleet file loaded");
                        }
                        Err(error) => {
                            let error = format!("{error:#}");
                            tracing::warn!(error, "fleet file refused; the last good one stays");
                        }
                    }
                }
                _ = refresh.tick() => {}
            }
            self.publish();
        }
    }

    fn publish(&self) {
        if let Ok(snapshot) = fleet_file::read(&self.document, &self.config.load(), self.clock.moment()) {
            let revision = self.revision;
            self.shared.set_snapshot(Arc::new(Snapshot { revision, ..snapshot }));
        }
    }
}

fn parse(path: &Path, contents: &files::Contents, config: &Config, now: Moment) -> anyhow::Result<Value> {
    let source = path.display().to_string();
    let bytes = contents.first().map(|file| &*file.bytes).unwrap_or_default();
    let text = std::str::from_utf8(bytes).with_context(|| source.clone())?;
    let document = yaml::parse_one(text, &source)?;
    fleet_file::read(&document, config, now).map_err(|faults| yaml::faulty(&source, &faults))?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use tracing::instrument::WithSubscriber as _;

    use super::*;
    use crate::testkit::Log;
    use edgeward_decision::model::link::LinkState;

    const FLEET: &str = "sites: [{name: edge, kind: edge}]\nnodes: []\n";

    async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(30), async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    #[tokio::test]
    async fn fleet_file_change_is_published_unless_invalid() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fleet.yaml");
        let write = |text: &str| {
            std::fs::write(directory.path().join("new"), text).unwrap();
            std::fs::rename(directory.path().join("new"), &path).unwrap();
        };
        write(FLEET);
        let log = Log::default();
        let to_log = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || to_log.clone()).finish();
        let clock = Clock::start();
        let file = FleetFile::open(path.clone(), Arc::default(), clock).await.unwrap();
        let shared = Arc::clone(&file.shared);
        let follow = tokio::spawn(file.follow().with_subscriber(subscriber));

        write("sites: [{name: here, kind: edge}]");
        eventually("the new site", || shared.snapshot().sites[0].name() == "here").await;
        assert_eq!(shared.snapshot().revision, 2);

        write("sites: [{name: a, kind: edge}, {name: b, kind: edge}]");
        eventually("the refusal", || log.text().contains("fleet file refused")).await;
        assert_eq!(shared.snapshot().sites[0].name(), "here");

        // The data of a file does not age. It is published again with the ages that the file states.
        let before = shared.snapshot().kubernetes_as_of;
        eventually("a younger picture", || shared.snapshot().kubernetes_as_of > before).await;
        follow.abort();
    }

    #[tokio::test]
    async fn changed_rtt_threshold_reclassifies_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fleet.yaml");
        let wan = "{name: cloud, kind: cloud, wan: {rttMs: 80, lossPct: 0}}";
        std::fs::write(&path, format!("sites: [{{name: edge, kind: edge}}, {wan}]")).unwrap();
        let config = Arc::<ArcSwap<Config>>::default();
        let opened = FleetFile::open(path, Arc::clone(&config), Clock::start()).await;
        let file = opened.unwrap();
        let shared = Arc::clone(&file.shared);
        let state = || shared.snapshot().sites[1].link.map(|link| link.state);
        let follow = tokio::spawn(file.follow());
        assert_eq!(state(), Some(LinkState::Healthy));
        config.store(Arc::new(Config {
            rtt_threshold: Micros::from_millis(50),
            ..Config::default()
        }));
        eventually("the link is too slow", || state() == Some(LinkState::Degraded)).await;
        follow.abort();
    }

    #[tokio::test]
    async fn invalid_fleet_file_at_start_lists_every_fault() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fleet.yaml");
        std::fs::write(
            &path,
            "sites: [{name: 1, kind: cloud}, {name: a}, {name: e, kind: edge}, {name: f, kind: edge}]",
        )
        .unwrap();
        let opened = FleetFile::open(path, Arc::default(), Clock::start()).await;
        let error = opened.unwrap_err().to_string();
        for fault in [
            "sites[0].name: 1 is not a site name: letters, digits",
            "sites[1].kind: is missing",
            "sites: has 2 sites of kind edge",
        ] {
            assert!(error.contains(fault), "{error}");
        }
    }
}

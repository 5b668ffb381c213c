//! Writes scores of the sites to a hub of Open Cluster Management, for its Placements. This runs on the replica that holds
//! the Lease. Decisions do not depend on it.
//!
//! OCM counts a missing or expired score as 0, so 0 is the bad end of every score.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use edgeward_decision::config::{Config, Ocm};
use edgeward_decision::model::link::{LinkState, Thresholds};
use edgeward_decision::model::liqo::ApiServerStatus;
use edgeward_decision::model::scores::{Better, Score};
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_decision::placement::patch::timestamp;
use edgeward_kube::excerpt::excerpt;
use edgeward_kube::units::{Micros, Moment};
use edgeward_kube::words;
use futures::StreamExt as _;
use futures::stream;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Limited};
use jiff::SignedDuration;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::{Status, request};
use kube::{Client, Error, Resource as _};
use serde_json::{Value, json};
use tokio::task::block_in_place;
use tokio::time::timeout;

use super::{Context, pod_patch};
use crate::config::Versions;
use crate::platform::blocking::blocking;
use crate::watch::kubeconfig;
use crate::watch::raw::{Gvr, Raw};

/// Name of every AddOnPlacementScore, which Placements state as `resourceName`.
const NAME: &str = "edgeward";

/// How many periods scores are valid.
const VALIDITY: u64 = 3;

/// Timeout of the requests for one cluster.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How many clusters are written at the same time.
const AT_ONCE: usize = 8;

/// The most bytes of an answer that are read, and of an error that is logged.
const MAX_ANSWER: usize = 64 << 10;
const MAX_ERROR: usize = 300;

words! {
    /// The result of a write: the label `result`.
    pub enum Outcome {
        /// The scores were written.
        Written = "written",
        /// The hub answered with an error.
        Refused = "refused",
        /// There was no answer in time.
        Unreachable = "unreachable",
        /// The kubeconfig cannot be used. No cluster was written.
        Kubeconfig = "kubeconfig",
    }
}

/// Scores by name, each from 0 to 100.
type Scores = Vec<(String, i32)>;

/// The scores that were written last, by cluster, and the time.
type Written = BTreeMap<String, (Scores, Moment)>;

/// Writes scores while this replica holds the Lease and the configuration names a hub. Never returns.
pub async fn run(context: Context, mut versions: Versions) {
    let mut config = versions.next().await;
    loop {
        let same = |one: &Config, other: &Config| one.ocm == other.ocm;
        let work = export(&context, config.ocm.as_ref());
        config = versions.until_other(&config, same, work).await;
    }
}

async fn export(context: &Context, settings: Option<&Ocm>) {
    let Some(settings) = settings else { return };
    for outcome in Outcome::WORDS {
        context.metrics.ocm_writes.at([outcome]);
    }
    loop {
        let mut exporter = Exporter {
            context,
            settings,
            hub: None,
            written: Written::new(),
            failed: BTreeMap::new(),
        };
        context.leadership.during(exporter.keep()).await;
    }
}

/// Writes the scores of sites to one hub. A new leader writes all of them.
struct Exporter<'c> {
    context: &'c Context,
    settings: &'c Ocm,
    /// The hub that `written` is about.
    hub: Option<Uri>,
    written: Written,
    /// Clusters that could not be written in the last pass; the path of a kubeconfig that cannot be used.
    failed: BTreeMap<String, Outcome>,
}

impl Exporter<'_> {
    /// Writes what is due in each period, for ever. A change of what fails is logged once.
    async fn keep(&mut self) {
        loop {
            let failures = self.write_due().await;
            let failed = failures.iter().map(|(what, failure)| (what.clone(), failure.outcome));
            let failed: BTreeMap<_, _> = failed.collect();
            if failed != self.failed {
                log(&failures);
                self.failed = failed;
            }
            tokio::time::sleep(Duration::from_micros(self.settings.period.0)).await;
        }
    }

    /// Writes the scores that changed, and those whose validity is half over. The files of the kubeconfig are read each time, so
    /// a new token counts without a restart. Returns what failed.
    async fn write_due(&mut self) -> Vec<(String, Failure)> {
        let (context, settings) = (self.context, self.settings);
        let file = settings.kubeconfig.clone();
        let (hub, client) = match blocking(move || connect(&file)).await {
            Ok(connected) => connected,
            Err(error) => {
                let failure = Failure::new(Outcome::Kubeconfig, format_args!("{error:#}"));
                context.metrics.ocm_writes.at([failure.outcome.as_str()]).inc();
                return vec![(settings.kubeconfig.display().to_string(), failure)];
            }
        };
        if self.hub.as_ref() != Some(&hub) {
            self.written.clear();
            self.hub = Some(hub);
        }
        let now = context.clock.now();
        // This passes over all nodes, so it must not hold up the runtime's workers.
        let due = block_in_place(|| {
            let (snapshot, config) = (context.shared.snapshot(), context.config.load());
            due(settings, &self.written, &snapshot, &config, now.moment)
        });
        let valid_until = timestamp(now.wall + SignedDuration::from_micros(validity(settings).signed()));
        let write = async |(cluster, scores): (String, Scores)| {
            let result = write(&client, &cluster, &status(&scores, &valid_until)).await;
            (cluster, scores, result)
        };
        let (mut failures, mut writes) = (vec![], stream::iter(due).map(write).buffer_unordered(AT_ONCE));
        while let Some((cluster, scores, result)) = writes.next().await {
            let outcome = result
                .as_ref()
                .map_or_else(|failure| failure.outcome, |()| Outcome::Written);
            context.metrics.ocm_writes.at([outcome.as_str()]).inc();
            match result {
                Ok(()) => drop(self.written.insert(cluster, (scores, now.moment))),
                Err(failure) => failures.push((cluster, failure)),
            }
        }
        failures
    }
}

/// The clusters to be written, with the scores of their sites. A cluster without a site is left alone, and its scores expire.
fn due(settings: &Ocm, written: &Written, snapshot: &Snapshot, config: &Config, now: Moment) -> Vec<(String, Scores)> {
    let half = Micros(validity(settings).0 / 2);
    let due = snapshot.sites.iter().filter_map(|site| {
        let cluster = settings.clusters.get(site.name())?;
        let scores = scores(snapshot, site, config, now);
        let is_due = |(known, at): &(Scores, Moment)| *known != scores || now.since(*at) >= half;
        let is_due = written.get(cluster).is_none_or(is_due);
        is_due.then(|| (cluster.clone(), scores))
    });
    due.collect()
}

/// Writes one line about what fails now.
fn log(failures: &[(String, Failure)]) {
    let Some((what, Failure { outcome, detail })) = failures.first() else {
        return tracing::info!("no write of scores to the OCM hub fails any more");
    };
    let (result, failed) = (outcome.as_str(), failures.len());
    tracing::warn!(
        what,
        result,
        error = detail,
        failed,
        "scores cannot be written to the OCM hub; retrying silently"
    );
}

fn validity(settings: &Ocm) -> Micros {
    Micros(settings.period.0.saturating_mul(VALIDITY))
}

/// The scores of a site. 0 is bad, and stands for what is unknown or stale. Cost: one pass over its nodes.
fn scores(snapshot: &Snapshot, site: &Site, config: &Config, now: Moment) -> Scores {
    let (free_cpu, health) = if snapshot.is_stale(config.telemetry_ttl, now) {
        (0, 0)
    } else {
        (free_cpu(site), health(site, config, now))
    };
    let built_in = [
        ("wan-rtt", wan_rtt(site, config, now)),
        ("free-cpu", free_cpu),
        ("health", health),
    ];
    let mut scores: Scores = built_in.map(|(name, value)| (name.to_owned(), value)).into();
    for (name, profile) in &*snapshot.profiles {
        let Some(Score(score)) = profile.score(site.name(), now) else {
            continue;
        };
        const ONE: i64 = 1_000_000;
        let goodness = match profile.better {
            Better::Higher => score,
            Better::Lower => ONE.saturating_sub(score),
        };
        scores.push((format!("profile-{name}"), percent(goodness, ONE)));
    }
    scores
}

/// How far the RTT is below the threshold of the site.
fn wan_rtt(site: &Site, config: &Config, now: Moment) -> i32 {
    if site.kind() == SiteKind::Edge {
        return 100;
    }
    let threshold = Thresholds::from(config).with(site.definition.thresholds).rtt.signed();
    let rtt = site
        .fresh_link(config.telemetry_ttl, now)
        .and_then(|link| link.live_rtt());
    rtt.map_or(0, |rtt| percent(threshold.saturating_sub(rtt.signed()), threshold))
}

/// The part of the usable nodes' CPU that is not charged to pods.
fn free_cpu(site: &Site) -> i32 {
    let allocatable = site.usable_nodes().map(|node| node.allocatable.cpu.0);
    percent(
        site.uncharged(|amounts| amounts.cpu.0),
        allocatable.fold(0, i64::saturating_add),
    )
}

/// 100 if the site is healthy, 50 if its WAN is degraded, 0 if no pod can use it.
fn health(site: &Site, config: &Config, now: Moment) -> i32 {
    let is_lost = site
        .api_server
        .is_some_and(|status| status != ApiServerStatus::Established);
    if is_lost || site.usable_nodes().next().is_none() {
        return 0;
    }
    if site.kind() == SiteKind::Edge {
        return 100;
    }
    match site.fresh_link(config.telemetry_ttl, now).map(|link| link.state) {
        Some(LinkState::Healthy) => 100,
        Some(LinkState::Degraded) => 50,
        Some(LinkState::Unreachable) | None => 0,
    }
}

/// How many percent of `whole` the part is, from 0 to 100, rounded down.
fn percent(part: i64, whole: i64) -> i32 {
    let part = i128::from(part).clamp(0, whole.max(0).into());
    i32::try_from(100 * part / i128::from(whole.max(1))).unwrap_or(100)
}

fn status(scores: &Scores, valid_until: &str) -> Value {
    let score = |(name, value): &(String, i32)| json!({"name": name, "value": value});
    let scores: Vec<_> = scores.iter().map(score).collect();
    json!({"status": {"scores": scores, "validUntil": valid_until}})
}

/// Reads the kubeconfig. Returns the hub's address and a client that shares nothing with another.
fn connect(file: &Path) -> anyhow::Result<(Uri, Client)> {
    let mut config = kubeconfig::of_file(file)?;
    // The next period tries again.
    config.default_retry = false;
    Ok((config.cluster_url.clone(), Client::try_from(config)?))
}

/// Why scores were not written. The text may come from the hub, so it is shortened.
#[derive(Debug)]
struct Failure {
    outcome: Outcome,
    detail: String,
}

impl Failure {
    fn new(outcome: Outcome, detail: impl Display) -> Self {
        let detail = excerpt(detail, MAX_ERROR);
        Self { outcome, detail }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let outcome = match &error {
            Error::Api(_) => Outcome::Refused,
            _ => Outcome::Unreachable,
        };
        Self::new(outcome, pod_patch::words(error))
    }
}

/// Replaces the scores in the status of the cluster's object, which is created if it is missing.
async fn write(client: &Client, cluster: &str, status: &Value) -> Result<(), Failure> {
    let requests = request::Request::new(Raw::url_path(&Gvr::SCORES, Some(cluster)));
    let patch = || requests.patch_subresource("status", NAME, &PatchParams::default(), &Patch::Merge(status));
    let written = async {
        match send(client, patch()).await {
            Err(Error::Api(status)) if status.code == 404 => {}
            written => return written,
        }
        let Gvr { group, version, .. } = Gvr::SCORES;
        let object = json!({
            "apiVersion": format!("{group}/{version}"),
            "kind": "AddOnPlacementScore",
            "metadata": {"name": NAME},
        });
        match send(
            client,
            requests.create(&PostParams::default(), object.to_string().into()),
        )
        .await
        {
            // It was created meanwhile.
            Err(Error::Api(status)) if status.code == 409 => {}
            created => created?,
        }
        send(client, patch()).await
    };
    let late = |_| Failure::new(Outcome::Unreachable, format_args!("no answer in {TIMEOUT:?}"));
    timeout(TIMEOUT, written).await.map_err(late)?.map_err(Failure::from)
}

/// Sends a request. The answer is read up to a limit, and only its error counts.
async fn send(client: &Client, request: Result<Request<Vec<u8>>, request::Error>) -> kube::Result<()> {
    let request = request.map_err(Error::BuildRequest)?;
    let response = client.send(request.map(Body::from)).await?;
    let status = response.status();
    // An answer that is read to its end leaves its connection to the next request.
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    if status.is_success() {
        return Ok(());
    }
    let said = body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
    let said: Status = said.unwrap_or_else(|| Status::failure(&status.to_string(), ""));
    Err(Error::Api(said.with_code(status.as_u16()).boxed()))
}

#[cfg(test)]
mod tests;

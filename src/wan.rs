//! Sends WAN probes on schedule and forwards their outcomes. `edgeward_cluster::wan` interprets them.

use std::sync::Arc;
use std::time::Duration;

use edgeward_cluster::engine::Change;
use edgeward_cluster::wan::{CONFIRMATION_STEP, Cause, LinkHealth, Links, RUN};
use edgeward_decision::config::{Config, Probing};
use edgeward_decision::model::endpoint::Endpoint;
use edgeward_decision::model::link::{Link, LinkState, OwnThresholds, Thresholds};
use edgeward_decision::model::site::{SiteDefinition, SiteKind};
use edgeward_kube::units::Micros;
use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::FuturesUnordered;
use tokio::sync::watch;

use crate::config::Versions;
use crate::instruments::metrics::Metrics;
use crate::observer::Changes;
use crate::platform::clock::Clock;
use crate::platform::random;

mod https;
mod icmp;
mod target;

use icmp::Icmp;
pub use target::Lost;
use target::Target;
pub(crate) use target::connect;

/// Time between the probes of the first round.
const FIRST_ROUND_STEP: Duration = Duration::from_millis(50);

/// Upper bound for the timeout of a first-round probe. The last probe starts 200 ms after the first, so the round
/// ends within 3 s.
const FIRST_ROUND_TIMEOUT: Micros = Micros::from_millis(2_500);

/// Probes every cloud site with endpoints according to the current configuration, and sends the results. Never
/// returns. Calls `first_round` after the first round of each version.
pub async fn follow(
    mut versions: Versions,
    clock: Clock,
    metrics: Arc<Metrics>,
    changes: Changes,
    first_round: impl Fn(),
) {
    let mut config = versions.next().await;
    let (thresholds, judged_by) = watch::channel(Thresholds::from(&*config));
    let probers = Probers::new(judged_by, clock, metrics);
    let mut links = probers.links();
    loop {
        // From now on, other links are probed, or the known ones with other settings.
        probers.links.send_replace(Links::new());
        let mut sites = probers_of(&config, &probers);
        // The results of the previous version stay in force until the first round of this one ends.
        futures::future::join_all(sites.iter_mut().map(Prober::first_round)).await;
        send_links(&mut links, &config, &changes).await;
        first_round();
        let probing = async {
            let send_all = async {
                while links.changed().await.is_ok() {
                    send_links(&mut links, &config, &changes).await;
                }
            };
            tokio::join!(send_all, futures::future::join_all(sites.into_iter().map(Prober::run)));
        };
        // Other thresholds alone do not restart the probers, which would lose their outcomes.
        let same = |next: &Config, config: &Config| {
            thresholds.send_replace(Thresholds::from(next));
            (&next.sites, next.probing) == (&config.sites, config.probing)
        };
        config = versions.until_other(&config, same, probing).await;
    }
}

/// Runs the first round of probes and returns the link of each cloud site. Takes at most 3 s.
pub async fn first_round(config: &Config, clock: Clock, metrics: &Arc<Metrics>) -> Links {
    let (_thresholds, judged_by) = watch::channel(Thresholds::from(config));
    let probers = Probers::new(judged_by, clock, Arc::clone(metrics));
    let links = probers.links();
    let mut sites = probers_of(config, &probers);
    futures::future::join_all(sites.iter_mut().map(Prober::first_round)).await;
    links.borrow().clone()
}

/// Creates a prober for every cloud site with endpoints.
fn probers_of(config: &Config, probers: &Probers) -> Vec<Prober> {
    let mut sites = Vec::new();
    for site in clouds(config) {
        if site.probes.is_empty() {
            tracing::warn!(
                site = site.name,
                "no probes: it counts as unreachable, and no pod is sent there"
            );
        } else {
            let mut prober = probers.prober(&site.name, site.probes.clone(), config.probing);
            prober.own = site.thresholds;
            sites.push(prober);
        }
    }
    sites
}

/// Sends the known links. Nothing is known of a link that is not probed any more.
async fn send_links(links: &mut watch::Receiver<Links>, config: &Config, changes: &Changes) {
    let known = links.borrow_and_update().clone();
    for site in clouds(config) {
        let known = known.get(&site.name).filter(|_| !site.probes.is_empty());
        let change = Change::Link(site.name.clone(), known.copied().flatten());
        changes.send(change).await;
    }
}

fn clouds(config: &Config) -> impl Iterator<Item = &SiteDefinition> {
    let sites = config.sites.iter().map(|site| &**site);
    sites.filter(|site| site.kind == SiteKind::Cloud)
}

/// Creates a [`Prober`] for each site. The probers share sockets and the channel for their links.
#[derive(Clone)]
pub struct Probers {
    icmp: Arc<Icmp>,
    thresholds: watch::Receiver<Thresholds>,
    links: watch::Sender<Links>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Probers {
    /// Starts without probers. Each outcome is judged by the thresholds in force at that moment.
    pub fn new(thresholds: watch::Receiver<Thresholds>, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self {
            icmp: Arc::default(),
            thresholds,
            links: watch::Sender::default(),
            clock,
            metrics,
        }
    }

    /// The links of all sites, marked as changed after each outcome.
    pub fn links(&self) -> watch::Receiver<Links> {
        self.links.subscribe()
    }

    /// Creates a prober of this site. It sends nothing until [`Prober::first_round`] or [`Prober::run`]. It replaces
    /// the link that an earlier prober of the site has published.
    pub fn prober(&self, site: &str, endpoints: Vec<Endpoint>, probing: Probing) -> Prober {
        for endpoint in &endpoints {
            let outcomes = Cause::ALL.map(Cause::as_str).into_iter().chain(["answered"]);
            outcomes.for_each(|outcome| drop(self.metrics.wan_probes.at([site, &endpoint.to_string(), outcome])));
        }
        let health = LinkHealth::new(endpoints.len());
        let targets = endpoints
            .into_iter()
            .map(|endpoint| Arc::new(Target::new(endpoint, Arc::clone(&self.icmp), self.clock)));
        let prober = Prober {
            site: site.to_owned(),
            targets: targets.collect(),
            probing,
            health,
            jobs: FuturesUnordered::new(),
            own: OwnThresholds::default(),
            shared: self.clone(),
        };
        prober.publish();
        prober
    }
}

/// Probes the endpoints of one site.
pub struct Prober {
    site: String,
    targets: Vec<Arc<Target>>,
    probing: Probing,
    health: LinkHealth,
    /// Pending probes and name lookups.
    jobs: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The thresholds of this site.
    own: OwnThresholds,
    shared: Probers,
}

/// The outcome of a probe; `None` for a name lookup.
type Done = Option<Probed>;

struct Probed {
    endpoint: usize,
    /// Whether the probe confirms the outcome of another one.
    confirms: bool,
    outcome: Result<Micros, Lost>,
}

impl Prober {
    /// Sends five probes to each endpoint, 50 ms apart. Takes at most 3 s, whatever the timeout. Afterwards the site
    /// has a link.
    pub async fn first_round(&mut self) {
        let timeout = self.probing.timeout.min(FIRST_ROUND_TIMEOUT);
        self.resolve();
        for step in 0..RUN as u32 {
            self.send_all(FIRST_ROUND_STEP * step, timeout);
        }
        let mut waiting = RUN * self.targets.len();
        while waiting > 0 {
            let Some(done) = self.jobs.next().await else {
                return;
            };
            waiting -= usize::from(done.is_some());
            self.fold(done);
        }
    }

    /// Probes for ever. Cancelling this abandons pending probes.
    pub async fn run(mut self) {
        let (clock, begun) = (self.shared.clock, self.shared.clock.moment());
        let (mut k, offset) = (0, random());
        loop {
            let start = self.probing.start(k, offset, random());
            let wait = tokio::time::sleep(Duration::from_micros((start - clock.moment().since(begun)).0));
            tokio::pin!(wait);
            loop {
                tokio::select! {
                    () = &mut wait => break,
                    Some(done) = self.jobs.next() => {
                        let probed = done.as_ref().filter(|done| !done.confirms).map(|done| done.endpoint);
                        self.fold(done);
                        probed.into_iter().for_each(|endpoint| self.confirm(endpoint));
                    }
                }
            }
            if self.probing.begins_period(k) {
                self.resolve();
            }
            self.send_all(Duration::ZERO, self.probing.timeout);
            k = self.probing.after(k, clock.moment().since(begun));
        }
    }

    /// Resolves the names of all endpoints.
    fn resolve(&mut self) {
        for target in &self.targets {
            let target = Arc::clone(target);
            let job = async move {
                target.resolve().await;
                None
            };
            self.jobs.push(job.boxed());
        }
    }

    /// Sends a probe to each endpoint after this delay.
    fn send_all(&mut self, delay: Duration, timeout: Micros) {
        (0..self.targets.len()).for_each(|endpoint| self.send(endpoint, false, delay, timeout));
    }

    /// Sends a probe to this endpoint after this delay.
    fn send(&mut self, endpoint: usize, confirms: bool, delay: Duration, timeout: Micros) {
        let target = Arc::clone(&self.targets[endpoint]);
        let job = async move {
            tokio::time::sleep(delay).await;
            let outcome = target.probe(Duration::from_micros(timeout.0)).await;
            Some(Probed {
                endpoint,
                confirms,
                outcome,
            })
        };
        self.jobs.push(job.boxed());
    }

    /// Sends more probes to an endpoint whose last outcome contradicts its state.
    fn confirm(&mut self, endpoint: usize) {
        let (now, timeout) = (self.shared.clock.moment(), self.probing.timeout);
        if self.health.begins_confirmation(endpoint, now, timeout) {
            for step in 1..RUN as u64 {
                let delay = CONFIRMATION_STEP.times(step);
                self.send(endpoint, true, Duration::from_micros(delay.0), timeout);
            }
        }
    }

    fn fold(&mut self, done: Done) {
        let Some(Probed {
            endpoint,
            confirms,
            outcome,
        }) = done
        else {
            return;
        };
        let (was_silent, before) = (self.health.is_silent(endpoint), self.health.link());
        let rtt = outcome.as_ref().ok().copied();
        let thresholds = self.shared.thresholds.borrow().with(self.own);
        let now = self.shared.clock.moment();
        self.health.record(endpoint, rtt, confirms, now, thresholds);
        self.log(endpoint, &outcome, was_silent, before);

        let name = self.targets[endpoint].endpoint.to_string();
        let outcome = outcome.err().map_or("answered", |lost| lost.cause.as_str());
        let labels = [&*self.site, &*name, outcome];
        self.shared.metrics.wan_probes.at(labels).inc();
        self.publish();
    }

    /// Logs when an endpoint stops or resumes answering, and when the link changes its state. Single losses are
    /// logged at debug level.
    fn log(&self, endpoint: usize, outcome: &Result<Micros, Lost>, was_silent: bool, before: Option<Link>) {
        let (site, name) = (&self.site, &self.targets[endpoint].endpoint);
        if let Err(lost) = outcome {
            tracing::debug!(site, endpoint = %name, cause = lost.cause.as_str(), reason = %lost, "WAN probe lost");
        }
        match (was_silent, self.health.is_silent(endpoint), outcome) {
            (false, true, Err(lost)) => {
                tracing::warn!(site, endpoint = %name, reason = %lost, "WAN endpoint does not answer");
            }
            (true, false, _) => tracing::info!(site, endpoint = %name, "WAN endpoint answers again"),
            _ => {}
        }
        let Some(link) = self.health.link() else { return };
        if before.is_some_and(|before| before.state == link.state) {
            return;
        }
        let (rtt_ms, loss_pct) = (
            link.rtt.map(Micros::as_millis_f64),
            link.loss.map(|loss| f64::from(loss.0) / 10.0),
        );
        match link.state {
            LinkState::Healthy => tracing::info!(site, rtt_ms, loss_pct, "WAN healthy"),
            LinkState::Degraded => tracing::warn!(site, rtt_ms, loss_pct, "WAN degraded"),
            LinkState::Unreachable => tracing::warn!(site, rtt_ms, loss_pct, "WAN unreachable"),
        }
    }

    fn publish(&self) {
        self.shared.links.send_modify(|links| {
            links.insert(self.site.clone(), self.health.link());
        });
    }
}

#[cfg(test)]
mod tests;

//! WAN probes: what is sent, when, and where the outcomes go. What they mean is `wan`'s business.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::FuturesUnordered;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::Probing;
use crate::metrics::Metrics;
use crate::model::endpoint::Endpoint;
use crate::model::link::{Link, LinkState};
use crate::model::link::{OwnThresholds, Thresholds};
use crate::units::Micros;
use crate::wan::{LinkHealth, RUN, Statistics};

mod https;
mod icmp;
mod target;
mod tcp;

use icmp::Icmp;
pub use target::Lost;
use target::Target;

/// Time between the probes of the first round.
const FIRST_ROUND_STEP: Duration = Duration::from_millis(50);

/// Timeout of a probe of the first round at most: the last one starts 200 ms after the first, and all are over in 3 s.
const FIRST_ROUND_TIMEOUT: Micros = Micros::from_millis(2_500);

/// What is known of the links, by site.
pub type Links = BTreeMap<String, SiteLink>;

/// What probes say of one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteLink {
    /// What a decision reads; `None` until the first round is over.
    pub link: Option<Link>,
    /// The numbers of each endpoint, in the order of the configuration.
    pub endpoints: Vec<(Endpoint, Statistics)>,
}

/// Makes a [`Prober`] for each site; they share sockets and the place where links are published.
#[derive(Debug)]
pub struct Probers {
    icmp: Arc<Icmp>,
    thresholds: watch::Receiver<Thresholds>,
    links: watch::Sender<Links>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Probers {
    /// No probers yet. Each outcome is judged by the thresholds of that moment.
    #[must_use]
    pub fn new(thresholds: watch::Receiver<Thresholds>, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self {
            icmp: Arc::default(),
            thresholds,
            links: watch::Sender::default(),
            clock,
            metrics,
        }
    }

    /// The links of all sites, marked changed after each outcome.
    #[must_use]
    pub fn links(&self) -> watch::Receiver<Links> {
        self.links.subscribe()
    }

    /// A prober of this site. It sends nothing until [`Prober::first_round`] or [`Prober::run`]. It replaces what an
    /// earlier prober of the site has published.
    #[must_use]
    pub fn prober(&self, site: &str, endpoints: Vec<Endpoint>, probing: Probing) -> Prober {
        for endpoint in &endpoints {
            self.metrics.wan().endpoint(site, &endpoint.to_string());
        }
        let (health, resolving) = (LinkHealth::new(endpoints.len()), vec![false; endpoints.len()]);
        let targets = endpoints
            .into_iter()
            .map(|endpoint| Arc::new(Target::new(endpoint, Arc::clone(&self.icmp), self.clock)));
        let prober = Prober {
            site: site.to_owned(),
            targets: targets.collect(),
            resolving,
            probing,
            health,
            jobs: FuturesUnordered::new(),
            thresholds: self.thresholds.clone(),
            own: OwnThresholds::default(),
            links: self.links.clone(),
            clock: self.clock,
            metrics: Arc::clone(&self.metrics),
        };
        prober.publish();
        prober
    }
}

/// Probes the endpoints of one site.
#[derive(Debug)]
pub struct Prober {
    site: String,
    targets: Vec<Arc<Target>>,
    /// Which of them wait for a name server.
    resolving: Vec<bool>,
    probing: Probing,
    health: LinkHealth,
    jobs: FuturesUnordered<BoxFuture<'static, Done>>,
    thresholds: watch::Receiver<Thresholds>,
    own: OwnThresholds,
    links: watch::Sender<Links>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// What has been waited for, and of which endpoint.
enum Done {
    Resolved(usize),
    Probed(usize, Result<Micros, Lost>),
}

impl Prober {
    /// The same, with thresholds of the site's own.
    #[must_use]
    pub fn judged_by(self, own: OwnThresholds) -> Self {
        Self { own, ..self }
    }

    /// Five probes of each endpoint, 50 ms apart. Takes 3 s at most, whatever the timeout; afterwards the site has a
    /// link.
    pub async fn first_round(&mut self) {
        let timeout = self.probing.timeout.min(FIRST_ROUND_TIMEOUT);
        self.resolve();
        for step in 0..RUN as u32 {
            self.send(FIRST_ROUND_STEP * step, timeout);
        }
        let mut waiting = RUN * self.targets.len();
        while waiting > 0 {
            let Some(done) = self.jobs.next().await else {
                return;
            };
            waiting -= usize::from(matches!(done, Done::Probed(..)));
            self.fold(done);
        }
    }

    /// Probes for ever. Cancelling it abandons the probes under way.
    pub async fn run(mut self) {
        let begun = self.clock.moment();
        let (mut k, offset) = (0, random());
        loop {
            let start = self.probing.start(k, offset, random());
            let wait = tokio::time::sleep(duration(start - self.clock.moment().since(begun)));
            tokio::pin!(wait);
            loop {
                tokio::select! {
                    () = &mut wait => break,
                    Some(done) = self.jobs.next() => self.fold(done),
                }
            }
            if self.probing.begins_period(k) {
                self.resolve();
            }
            self.send(Duration::ZERO, self.probing.timeout);
            k = self.probing.after(k, self.clock.moment().since(begun));
        }
    }

    /// Asks for the addresses of all endpoints, those aside whose last question is not answered yet.
    fn resolve(&mut self) {
        for (endpoint, target) in self.targets.iter().enumerate() {
            if std::mem::replace(&mut self.resolving[endpoint], true) {
                continue;
            }
            let target = Arc::clone(target);
            let job = async move {
                target.resolve().await;
                Done::Resolved(endpoint)
            };
            self.jobs.push(job.boxed());
        }
    }

    /// Sends a probe to each endpoint after this delay.
    fn send(&mut self, delay: Duration, timeout: Micros) {
        for (endpoint, target) in self.targets.iter().enumerate() {
            let target = Arc::clone(target);
            let job = async move {
                tokio::time::sleep(delay).await;
                Done::Probed(endpoint, target.probe(duration(timeout)).await)
            };
            self.jobs.push(job.boxed());
        }
    }

    fn fold(&mut self, done: Done) {
        let (endpoint, outcome) = match done {
            Done::Resolved(endpoint) => {
                self.resolving[endpoint] = false;
                return;
            }
            Done::Probed(endpoint, outcome) => (endpoint, outcome),
        };
        let (was_silent, before) = (self.health.is_silent(endpoint), self.health.link());
        let rtt = outcome.as_ref().ok().copied();
        let thresholds = self.thresholds.borrow().with(self.own);
        self.health.record(endpoint, rtt, self.clock.moment(), thresholds);
        self.log(endpoint, &outcome, was_silent, before);

        let name = self.targets[endpoint].endpoint().to_string();
        let wan = self.metrics.wan();
        match outcome {
            Ok(_) => wan.answered(&self.site, &name, self.clock.wall()),
            Err(lost) => wan.lost(&self.site, &name, lost.cause),
        }
        if let Some(statistics) = self.health.statistics(endpoint) {
            wan.statistics(&self.site, &name, statistics);
        }
        if let Some(link) = self.health.link() {
            wan.link(&self.site, &link);
        }
        self.publish();
    }

    /// A line when an endpoint falls silent or returns and when the link changes its state; single losses only for who
    /// debugs.
    fn log(&self, endpoint: usize, outcome: &Result<Micros, Lost>, was_silent: bool, before: Option<Link>) {
        let (site, name) = (&self.site, self.targets[endpoint].endpoint());
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
        let endpoints = self.targets.iter().enumerate();
        let endpoints = endpoints.map(|(endpoint, target)| {
            let statistics = self.health.statistics(endpoint).copied().unwrap_or_default();
            (target.endpoint().clone(), statistics)
        });
        let site_link = SiteLink {
            link: self.health.link(),
            endpoints: endpoints.collect(),
        };
        self.links.send_modify(|links| {
            links.insert(self.site.clone(), site_link);
        });
    }
}

fn duration(time: Micros) -> Duration {
    Duration::from_micros(time.0)
}

fn random() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}

#[cfg(test)]
mod tests;

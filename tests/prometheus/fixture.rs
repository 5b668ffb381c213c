//! One Prometheus server with its exporter, the proxy in front of it, and clients.

use anyhow::anyhow;
use edgeward::instruments::metrics::Metrics;
use edgeward::platform::clock::Clock;
use edgeward::sources::prometheus::{Outcome, Poller};
use edgeward_core::cluster::telemetry::Telemetry;
use edgeward_core::config::{Config, Input, Prometheus, Query};
use edgeward_core::units::{Micros, Moment};
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::proxy::Proxy;

pub(crate) const LONG: Micros = Micros::from_secs(3_600);

pub(crate) struct Fixture {
    pub(crate) exporter: Exporter,
    pub(crate) proxy: Proxy,
    pub(crate) server: Server,
    runtime: Handle,
}

impl Fixture {
    pub(crate) fn open(program: &Path, runtime: Handle) -> Result<Self> {
        let exporter = Exporter::start(&runtime)?;
        let server = Server::start(program, &exporter)?;
        Ok(Self {
            proxy: Proxy::start(&runtime, server.address)?,
            exporter,
            server,
            runtime,
        })
    }

    /// A client that queries often through the proxy and accepts values up to `staleness` old.
    pub(crate) fn asker(&self, questions: &[(Input, &str)], staleness: Micros) -> Result<Asker> {
        let query = |&(input, promql): &(Input, &str)| Query {
            input,
            promql: promql.to_owned(),
        };
        let settings = Prometheus {
            url: format!("http://{}", self.proxy.address),
            required: true,
            token_file: None,
            ca_file: None,
            period: Micros::from_millis(100),
            timeout: Micros::from_secs(2),
            staleness,
            queries: questions.iter().map(query).collect(),
        };
        let (clock, metrics) = (Clock::start(), Arc::new(Metrics::new()));
        let config = Arc::new(Config::default());
        let poller = Poller::open(&settings, config, clock, Arc::clone(&metrics));
        let poller = self.runtime.block_on(poller)?;
        Ok(Asker {
            telemetry: poller.telemetry(),
            clock,
            metrics,
            task: self.runtime.spawn(poller.follow()),
        })
    }
}

pub(crate) struct Asker {
    telemetry: watch::Receiver<Telemetry>,
    clock: Clock,
    metrics: Arc<Metrics>,
    task: JoinHandle<()>,
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Asker {
    pub(crate) fn knows<T>(&self, read: impl FnOnce(&Telemetry, Moment) -> T) -> T {
        read(&self.telemetry.borrow(), self.clock.moment())
    }

    pub(crate) fn learns(&self, what: &str, holds: impl Fn(&Telemetry, Moment) -> bool) -> Result<()> {
        eventually(what, BOUND, || {
            let telemetry = self.telemetry.borrow().clone();
            ensure!(
                holds(&telemetry, self.clock.moment()),
                "{telemetry:#?}\n{}",
                self.counts()
            );
            Ok(())
        })
    }

    pub(crate) fn sees(&self, input: Input, outcome: Outcome) -> Result<()> {
        let before = self.count(input, outcome);
        eventually(outcome.as_str(), BOUND, || {
            let count = self.count(input, outcome);
            (count > before).then_some(()).ok_or_else(|| anyhow!(self.counts()))
        })
    }

    fn count(&self, input: Input, outcome: Outcome) -> u64 {
        let (query, result) = (input.as_str(), outcome.as_str());
        let series = format!("edgeward_prometheus_queries_total{{query=\"{query}\",result=\"{result}\"}} ");
        let counts = self.counts();
        let count = counts.lines().find_map(|line| line.strip_prefix(&*series));
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    fn counts(&self) -> String {
        let page = self.metrics.encode();
        let lines = page
            .lines()
            .filter(|line| line.starts_with("edgeward_prometheus_queries_total"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

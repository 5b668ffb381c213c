//! One Prometheus server with its exporter, and clients.

use anyhow::anyhow;
use edgeward::testkit::{Changes, Clock, Metrics, Outcome, ask_by};
use edgeward_cluster::engine::Change;
use edgeward_cluster::telemetry::Telemetry;
use edgeward_decision::config::{Config, Input, Prometheus};
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server};
use edgeward_kube::units::{Micros, Moment};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub(crate) struct Fixture {
    pub(crate) exporter: Exporter,
    pub(crate) server: Server,
    runtime: Handle,
}

impl Fixture {
    pub(crate) fn open(program: &Path, runtime: Handle) -> Result<Self> {
        let exporter = Exporter::start(&runtime)?;
        let server = Server::start(program, &exporter)?;
        Ok(Self {
            exporter,
            server,
            runtime,
        })
    }

    /// A client that queries often, whose values do not become stale.
    pub(crate) fn asker(&self, questions: &[(Input, &str)]) -> Result<Asker> {
        let queries = questions.iter().map(|(input, promql)| (*input, (*promql).to_owned()));
        let settings = Prometheus {
            url: format!("http://{}", self.server.address),
            required: true,
            token_file: None,
            ca_file: None,
            period: Micros::from_millis(100),
            timeout: Micros::from_secs(2),
            staleness: Micros::from_secs(3_600),
            queries: queries.collect(),
            traits: vec![],
        };
        let (clock, metrics) = (Clock::start(), Arc::new(Metrics::new()));
        let config = Config {
            prometheus: Some(settings),
            ..Config::default()
        };
        let (sender, mut sent) = mpsc::channel(1);
        let (changes, counted) = (Changes::to(sender, clock), Arc::clone(&metrics));
        let (learned, telemetry) = watch::channel(Telemetry::default());
        let asking = async move {
            let received = async {
                while let Some((_, change)) = sent.recv().await {
                    if let Change::Telemetry(telemetry) = change {
                        learned.send_replace(*telemetry);
                    }
                }
            };
            tokio::join!(received, ask_by(&config, clock, &counted, &changes));
        };
        Ok(Asker {
            telemetry,
            clock,
            metrics,
            task: self.runtime.spawn(asking),
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

//! Creates pods at a steady rate, independent of earlier pods, while something happens to edgeward.

pub mod replicas;
pub mod restarts;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::Request;
use kube::Client;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::balancer::Connections;
use crate::clients;
use crate::decision::is_decided;
use crate::prelude::*;
use crate::scripts::TooBusy;
use crate::tables::Table;

const RATES: [u32; 9] = [20, 30, 40, 60, 80, 100, 125, 150, 200];

/// Number of pods created at the same time, as a ReplicaSet does. The API server then needs as many connections.
const GROUP: u32 = 5;

/// Share of CPU that stays idle at the chosen rate, measured with a constant webhook instead of edgeward.
const IDLE: f64 = 0.4;

/// With less idle CPU than this, the machine may be the cause of a late answer.
const BUSY: f64 = 0.2;

/// Cuts of all connections per second, if requested.
const CUTS: u32 = 2;

const TRIED: Duration = Duration::from_secs(4);

/// How fast pods are created, and how long the API server waits for an answer.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// At most this many pods a second, and no faster than the machine allows: a group starts when the previous one was
    /// answered. The timeout is the longest possible, so that only edgeward can cause an undecided pod.
    Adaptive(u32),
    /// This many pods a second, independent of earlier pods, with the manifest's timeout.
    Steady(u32),
}

pub struct Load {
    pace: Pace,
    begun: Instant,
    tally: Tally,
}

type Tally = Arc<Mutex<Tallied>>;

#[derive(Default)]
struct Tallied {
    /// Duration of each successful creation.
    created: Vec<Duration>,
    failed: Vec<String>,
    undecided: Vec<Duration>,
}

#[derive(Debug)]
pub struct Report {
    pace: Pace,
    pub lasted: Duration,
    pub created: usize,
    /// Errors of the failed creations.
    pub failed: Vec<String>,
    /// Pods that were created without a decision: start of each creation, measured from the start of the load.
    pub undecided: Vec<Duration>,
    pub failed_open: u64,
    /// Median and 99th percentile of the creation time.
    took: [Duration; 2],
    /// Share of CPU time that was idle.
    idle: f64,
}

/// Creates small pods with an SLO on these nodes at this pace, while `event` happens. Each pod is deleted once its decision is
/// seen. Pods without a decision stay.
pub fn under_load(
    fixture: &Fixture<'_>,
    nodes: &Nodes<'_>,
    pace: Pace,
    event: impl FnOnce(&Load) -> Result<()>,
) -> Result<Report> {
    under_load_reconnecting(fixture, nodes, pace, None, event)
}

/// Creates pods like [`under_load`], and cuts the API server's connections to a balancer twice a second. It cuts them when no
/// review is in flight, so that new connections test the served certificates. Creations wait meanwhile and catch up afterwards.
pub(crate) fn under_load_reconnecting(
    fixture: &Fixture<'_>,
    nodes: &Nodes<'_>,
    pace: Pace,
    cut: Option<Connections>,
    event: impl FnOnce(&Load) -> Result<()>,
) -> Result<Report> {
    let (failed_open, idle) = (failed_open(fixture)?, Processors::now()?);
    let client = fixture.runtime.block_on(clients::client(fixture))?;
    let load = Load {
        pace,
        begun: Instant::now(),
        tally: Tally::default(),
    };
    let path = format!("/api/v1/namespaces/{}/pods", fixture.namespace);
    let pods = Pods {
        client,
        path,
        pod: fixture.in_its_domain(pod(nodes)).to_string(),
        cut,
        begun: load.begun,
        tally: Arc::clone(&load.tally),
    };
    let (stop, stopped) = oneshot::channel();
    let creating = fixture.runtime.spawn(pods.create(pace, stopped));
    let happened = load.lasts(Duration::from_secs(1)).and_then(|()| event(&load));
    drop(stop);
    fixture.runtime.block_on(creating)??;
    happened?;

    let lasted = load.begun.elapsed();
    let tallied = std::mem::take(&mut *load.tally());
    let mut created = tallied.created;
    created.sort_unstable();
    let share = |percent: usize| created.get(created.len() * percent / 100).copied().unwrap_or_default();
    Ok(Report {
        pace,
        lasted,
        created: created.len(),
        failed: tallied.failed,
        undecided: tallied.undecided,
        failed_open: self::failed_open(fixture)? - failed_open,
        took: [share(50), share(99)],
        idle: Processors::now()?.idle_since(&idle),
    })
}

/// The highest rate at which 40 % of the CPU stays idle while a constant webhook is called. It is measured once in a run. Call
/// this before edgeward is registered. Returns [`TooBusy`] if there is no such rate.
pub fn highest_steady(fixture: &Fixture<'_>, nodes: &Nodes<'_>) -> Result<Pace> {
    static FOUND: Mutex<Option<Pace>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pace) = *found {
        return Ok(pace);
    }
    let constant = fixture.test_webhook(answers_constantly)?;
    let _registered = fixture.register_as("constant", &[&fixture.namespace], &constant.url, &constant.ca)?;
    let mut highest = Err(String::new());
    for rate in RATES {
        let pace = Pace::Steady(rate);
        let report = under_load(fixture, nodes, pace, |load| load.lasts(TRIED))?;
        println!("load: a constant handler: {report}");
        if report.idle < IDLE {
            highest = highest.or(Err(report.to_string()));
            break;
        }
        highest = Ok(pace);
    }
    let highest = highest.map_err(|report| TooBusy(format!("a constant handler: {report}")))?;
    println!("load: from here on {highest:?}");
    *found = Some(highest);
    Ok(highest)
}

impl Pace {
    /// Largest number of pods per second.
    fn rate(self) -> u32 {
        match self {
            Self::Adaptive(rate) | Self::Steady(rate) => rate,
        }
    }

    pub(crate) fn has_long_timeout(self) -> bool {
        matches!(self, Self::Adaptive(_))
    }
}

impl Load {
    /// Waits until as many more pods were created as the pace creates in `time`.
    pub fn lasts(&self, time: Duration) -> Result<()> {
        let wanted = self.created() + (time.as_secs_f64() * f64::from(self.pace.rate())) as usize;
        eventually("pods are created", BOUND + 2 * time, || {
            let created = self.created();
            ensure!(created >= wanted, "{created} of {wanted}");
            Ok(())
        })
    }

    pub fn time(&self) -> Duration {
        self.begun.elapsed()
    }

    fn created(&self) -> usize {
        self.tally().created.len()
    }

    fn tally(&self) -> MutexGuard<'_, Tallied> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Report {
    pub fn tabulate(&self, of: &str) {
        Table::Replicas.row(of, &[&self.created, &self.failed.len(), &self.undecided.len()]);
    }

    /// Fails unless every pod was created and decided. Returns [`TooBusy`] if lack of CPU may have delayed the decisions.
    pub fn is_clean(&self) -> Result<()> {
        self.has_no_failure()?;
        if self.undecided.is_empty() && self.failed_open == 0 {
            return Ok(());
        }
        self.blame(format!("{self}: {:?}", self.undecided))
    }

    /// Returns this failure, or [`TooBusy`] if the machine may be its cause.
    pub fn blame(&self, words: String) -> Result<()> {
        match self.pace {
            Pace::Steady(_) if self.idle < BUSY => Err(TooBusy(words).into()),
            _ => bail!(words),
        }
    }

    /// Fails unless every pod was created.
    pub fn has_no_failure(&self) -> Result<()> {
        ensure!(
            self.failed.is_empty(),
            "{self}: {:?}",
            &self.failed[..self.failed.len().min(5)]
        );
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} for {:.0} s: {} created, {} failed, {} undecided, {} failed open; {} ms for half, {} ms for 99 %; {:.0} % idle",
            self.pace,
            self.lasted.as_secs_f64(),
            self.created,
            self.failed.len(),
            self.undecided.len(),
            self.failed_open,
            self.took[0].as_millis(),
            self.took[1].as_millis(),
            100.0 * self.idle,
        )
    }
}

struct Pods {
    client: Client,
    path: String,
    pod: String,
    cut: Option<Connections>,
    begun: Instant,
    tally: Tally,
}

/// The affinity keeps the pod on these nodes even if it is not decided.
fn pod(nodes: &Nodes<'_>) -> Value {
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
    let mut pod = workloads::pod("", slo);
    pod["metadata"]["name"] = Value::Null;
    pod["metadata"]["generateName"] = json!("load-");
    pod["spec"]["affinity"] = nodes.affinity();
    pod["spec"]["tolerations"] = json!([nodes.toleration()]);
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "1m", "memory": "1Mi"});
    pod
}

impl Pods {
    /// Creates pods until `stopped`, then waits for all answers.
    async fn create(self, pace: Pace, mut stopped: oneshot::Receiver<()>) -> Result<()> {
        let pods = Arc::new(self);
        let mut ticks = tokio::time::interval(Duration::from_secs(GROUP.into()) / pace.rate());
        ticks.set_missed_tick_behavior(match pace {
            Pace::Adaptive(_) => MissedTickBehavior::Delay,
            Pace::Steady(_) => MissedTickBehavior::Burst,
        });
        let mut creations = JoinSet::new();
        let between_cuts = (pace.rate() / GROUP / CUTS).max(1);
        for group in 0_u32.. {
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                _ = ticks.tick() => {}
            }
            let cut = pods.cut.as_ref().filter(|_| group.is_multiple_of(between_cuts));
            if cut.is_some() || pace.has_long_timeout() {
                while let Some(created) = creations.join_next().await {
                    created??;
                }
            }
            if let Some(connections) = cut {
                connections.cut().await;
            }
            for _ in 0..GROUP {
                let pods = Arc::clone(&pods);
                creations.spawn(async move { pods.create_one().await });
            }
            while let Some(created) = creations.try_join_next() {
                created??;
            }
        }
        while let Some(created) = creations.join_next().await {
            created??;
        }
        Ok(())
    }

    async fn create_one(&self) -> Result<()> {
        let request = Request::post(&self.path).header("content-type", "application/json");
        let begun = self.begun.elapsed();
        let created = self
            .client
            .request::<Value>(request.body(self.pod.clone().into_bytes())?)
            .await;
        let took = self.begun.elapsed() - begun;
        let name = {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            let pod = match created {
                Ok(pod) => pod,
                Err(error) => {
                    tally.failed.push(error.to_string());
                    return Ok(());
                }
            };
            tally.created.push(took);
            let name = pod["metadata"]["name"].as_str().context("a name")?.to_owned();
            if !is_decided(&pod) {
                tally.undecided.push(begun);
                return Ok(());
            }
            name
        };
        let request = Request::delete(format!("{}/{name}?gracePeriodSeconds=0", self.path)).body(Vec::new())?;
        match self.client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => bail!("{name} cannot be deleted: {error}"),
        }
    }
}

/// Number of webhook calls that failed open for pods of the test's namespace.
fn failed_open(fixture: &Fixture<'_>) -> Result<u64> {
    let creations = fixture.creations(&fixture.namespace)?;
    Ok(creations.iter().map(|creation| creation.failed_open() as u64).sum())
}

pub struct Processors {
    idle: u64,
    all: u64,
}

impl Processors {
    pub fn now() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let times = stat.lines().next().context("a line of all processors")?;
        // The fields are user, nice, system, idle, I/O wait, interrupts (two kinds) and steal. Guest time follows, which is
        // part of user time.
        let times: Vec<u64> = times.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        ensure!(times.len() == 8, "{stat}");
        Ok(Self {
            idle: times[3] + times[4],
            all: times.iter().sum(),
        })
    }

    /// Returns [`TooBusy`] with `words` if so little CPU was idle since then that the machine may be the cause.
    pub fn excuse(&self, words: &str) -> Result<()> {
        let idle = Self::now()?.idle_since(self);
        ensure!(idle >= BUSY, TooBusy(format!("{:.0} % idle; {words}", 100.0 * idle)));
        Ok(())
    }

    /// The idle share of CPU since `before`.
    fn idle_since(&self, before: &Self) -> f64 {
        (self.idle - before.idle) as f64 / (self.all - before.all).max(1) as f64
    }
}

fn answers_constantly(_pod: &Value) -> Vec<Value> {
    let path = "/metadata/annotations/scheduling.example.io~1decision";
    vec![json!({"op": "add", "path": path, "value": "edge"})]
}

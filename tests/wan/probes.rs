//! edgeward's WAN probes over the link: ICMP and TCP, and the link state that they lead to.

use std::ops::Range;

use edgeward::testkit::{Clock, Metrics, Probers};
use edgeward_cluster::wan::Links;
use edgeward_decision::config::{Config, Probing};
use edgeward_decision::fleet_file;
use edgeward_decision::model::cost_map::Route;
use edgeward_decision::model::endpoint::Endpoint;
use edgeward_decision::model::link::{Link, LinkSource, LinkState, Thresholds};
use edgeward_harness::prelude::*;
use edgeward_harness::wan::{Conditions, Wan, icmp};
use edgeward_kube::units::{Micros, Moment, Permille};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::history::{DWELL, History};

const THRESHOLDS: Thresholds = Thresholds {
    rtt: Micros::from_millis(100),
    loss: Permille(20),
};

/// Twenty probes a second, which fill the window in five seconds. TCP sends its first packet again after 1 s. The timeout is
/// shorter, so that a lost packet is a lost probe.
const FAST: Probing = Probing {
    probes: 20,
    period: Micros::from_secs(1),
    timeout: Micros::from_millis(500),
};

struct Observed {
    /// Its threads were started in the edge's namespace.
    _runtime: Runtime,
    links: watch::Receiver<Links>,
    states: History,
}

impl Observed {
    fn start(wan: &Wan, endpoint: &str, probing: Probing) -> Result<Self> {
        let runtime = wan.edge_runtime()?;
        let thresholds = watch::Sender::new(THRESHOLDS).subscribe();
        let probers = Probers::new(thresholds, Clock::start(), Arc::new(Metrics::new()));
        let links = probers.links();
        let mut prober = probers.prober("cloud", vec![Endpoint::parse(endpoint)?], probing);
        runtime.spawn(async move {
            prober.first_round().await;
            prober.run().await;
        });
        let states = History::default();
        let (mut seen, told) = (links.clone(), states.clone());
        runtime.spawn(async move {
            while seen.changed().await.is_ok() {
                if let Some(link) = of_cloud(&seen.borrow_and_update()) {
                    told.record(link.state);
                }
            }
        });
        Ok(Self {
            _runtime: runtime,
            links,
            states,
        })
    }

    fn link(&self) -> Result<Link> {
        of_cloud(&self.links.borrow()).context("nothing is known of the link")
    }

    fn until(&self, state: LinkState, bound: Duration) -> Result<Link> {
        self.states.until(state, bound)?;
        self.link()
    }
}

fn of_cloud(links: &Links) -> Option<Link> {
    links.get("cloud").copied().flatten()
}

/// 20 ms is healthy and 150 ms is degraded. A link changes between them only after the dwell time.
pub(crate) fn slow(wan: &Wan, endpoint: &str) -> Result<()> {
    wan.set(Conditions::rtt(20));
    let observed = Observed::start(wan, endpoint, FAST)?;
    observed.until(LinkState::Healthy, BOUND)?;
    rtt_settles(&observed, 20..60)?;

    wan.set(Conditions::rtt(150));
    let slow = observed.until(LinkState::Degraded, DWELL + BOUND)?;
    ensure!(slow.rtt >= Some(Micros::from_millis(150)), "{slow:?}");
    rtt_settles(&observed, 150..190)?;

    wan.set(Conditions::rtt(20));
    observed.until(LinkState::Healthy, DWELL + BOUND)?;
    observed
        .states
        .expect(&[LinkState::Healthy, LinkState::Degraded, LinkState::Healthy])
}

/// Losing one packet in twenty is too much. The prober reports no more loss than that.
pub(crate) fn lossy(wan: &Wan, endpoint: &str) -> Result<()> {
    wan.set(Conditions {
        loss: 0.05,
        ..Conditions::rtt(20)
    });
    let observed = Observed::start(wan, endpoint, FAST)?;
    let lossy = observed.until(LinkState::Degraded, DWELL + BOUND)?;
    ensure!(lossy.loss >= Some(THRESHOLDS.loss), "{lossy:?}");
    ensure!(
        lossy.rtt < Some(THRESHOLDS.rtt),
        "lost packets are no late ones: {lossy:?}"
    );

    wan.set(Conditions::rtt(20));
    let whole = observed.until(LinkState::Healthy, DWELL + BOUND)?;
    ensure!(whole.loss < Some(Permille(THRESHOLDS.loss.0 / 2)), "{whole:?}");
    observed
        .states
        .expect(&[LinkState::Healthy, LinkState::Degraded, LinkState::Healthy])
}

/// A cut link is detected, and its end too, without the dwell time. The last RTT and loss stay visible.
pub(crate) fn cut(wan: &Wan, endpoint: &str) -> Result<()> {
    wan.set(Conditions::rtt(20));
    let observed = Observed::start(wan, endpoint, FAST)?;
    observed.until(LinkState::Healthy, BOUND)?;

    wan.set(Conditions {
        is_cut: true,
        ..Conditions::rtt(20)
    });
    let dead = observed.until(LinkState::Unreachable, BOUND)?;
    ensure!(dead.rtt >= Some(Micros::from_millis(20)), "{dead:?}");

    wan.set(Conditions::rtt(20));
    let whole = observed.until(LinkState::Healthy, BOUND)?;
    ensure!(whole.loss == Some(Permille(0)), "the losses are forgotten: {whole:?}");

    let healthy = LinkState::Healthy;
    observed
        .states
        .expect_at_once(&[healthy, LinkState::Unreachable, healthy])
}

/// Waits until the decision's RTT lies in this range, in ms.
fn rtt_settles(observed: &Observed, millis: Range<u64>) -> Result<()> {
    eventually(&format!("the RTT is {millis:?} ms"), BOUND, || {
        let link = observed.link()?;
        let rtt = link.rtt.context("no RTT")?;
        ensure!(millis.contains(&(rtt.0 / 1000)), "{link:?}");
        Ok(())
    })
}

/// The cost map of three clouds has the RTTs of their links. A link that is cut has a loss of 100 % and no RTT.
pub(crate) fn cost_map() -> Result<()> {
    const NAMES: [&str; 3] = ["near", "far", "away"];
    const RTTS: [u64; 3] = [12, 60, 150];
    let mut fleet = json!({"sites": [{"name": "edge", "kind": "edge"}]});
    let mut links = vec![];
    for (name, rtt) in NAMES.into_iter().zip(RTTS) {
        let wan = Wan::open()?;
        wan.set(Conditions::rtt(rtt));
        let observed = Observed::start(&wan, &icmp(&wan)?, FAST)?;
        links.push((name, wan, observed));
        let site = json!({"name": name, "kind": "cloud", "nodeSelector": {"site": name}});
        fleet["sites"].as_array_mut().context("a list")?.push(site);
    }
    let config = Config::default();
    // All probers started about now. The table is read long before a link is stale.
    let map = |read: &dyn Fn(&[Route<'_>]) -> Result<()>| -> Result<()> {
        let mut snapshot = fleet_file::read(&fleet, &config, Moment(0))?;
        for site in &mut snapshot.sites[1..] {
            let observed = links.iter().find(|(name, ..)| *name == site.name());
            let link = observed.context("a link")?.2.link()?;
            site.link = Some(Link {
                as_of: Moment(0),
                ..link
            });
        }
        read(&snapshot.cost_map(config.telemetry_ttl, Moment(0)))
    };
    let of = |routes: &[Route<'_>], name: &str| -> Result<Option<Micros>> {
        let route = routes
            .iter()
            .find(|route| (route.source, route.target) == ("edge", name));
        Ok(route.context("no route")?.rtt.map(|(rtt, _)| rtt))
    };
    eventually("the table has the RTTs of the links", BOUND, || {
        map(&|routes| {
            for (name, rtt) in NAMES.into_iter().zip(RTTS) {
                let found = of(routes, name)?.context("no RTT")?;
                ensure!(
                    (rtt * 1_000..(rtt + 5) * 1_000).contains(&found.0),
                    "{name}: {found} ms"
                );
                println!("{name}: {rtt} ms are seen as {found} ms");
            }
            Ok(())
        })
    })?;
    links[1].1.set(Conditions {
        is_cut: true,
        ..Conditions::rtt(60)
    });
    eventually("the cut link is lost", BOUND, || {
        map(&|routes| {
            let cut = routes
                .iter()
                .find(|route| (route.source, route.target) == ("edge", "far"));
            let cut = cut.context("no route")?;
            let loss = cut.loss.map(|(loss, origin)| (loss, origin.source));
            ensure!(
                cut.rtt.is_none() && loss == Some((Permille::ONE, LinkSource::Probe)),
                "{cut:?}"
            );
            ensure!(of(routes, "near")?.is_some(), "{routes:?}");
            Ok(())
        })
    })
}

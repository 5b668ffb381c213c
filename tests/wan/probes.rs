//! edgeward's WAN probes over the link: ICMP and TCP, and what they make of its weather.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use edgeward::clock::Clock;
use edgeward::fleet::{Link, LinkState};
use edgeward::metrics::Metrics;
use edgeward::observe::probe::Probers;
use edgeward::units::{Micros, Permille};
use edgeward::wan::{Endpoint, Probing, Thresholds};
use edgeward_link::relay::CLOUD;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::patience::{BOUND, eventually};
use crate::wan::Wan;

/// Those of the default configuration.
const THRESHOLDS: Thresholds = Thresholds {
    rtt: Micros::from_millis(100),
    loss: Permille(20),
};

/// Twenty a second: a full window in five. The timeout is less than the second after which TCP sends its first packet
/// anew, so that a lost packet is a lost probe.
const FAST: Probing = Probing {
    probes: 20,
    period: Micros::from_secs(1),
    timeout: Micros::from_millis(500),
};

/// How long healthy and degraded last at least.
const DWELL: Duration = Duration::from_secs(30);

/// A prober at the edge.
struct Observed {
    /// Its threads were born in the edge's namespace.
    _runtime: Runtime,
    story: watch::Receiver<Story>,
}

/// What the prober has said.
#[derive(Default)]
struct Story {
    link: Option<Link>,
    /// Every state, and when it began.
    states: Vec<(LinkState, Instant)>,
}

impl Story {
    fn note(&mut self, link: Link) {
        if self.states.last().is_none_or(|(state, _)| *state != link.state) {
            self.states.push((link.state, Instant::now()));
        }
        self.link = Some(link);
    }
}

impl Observed {
    fn start(wan: &Wan, endpoint: &str, probing: Probing) -> Result<Self> {
        let runtime = wan
            .edge
            .enter(|| Ok(Builder::new_multi_thread().worker_threads(1).enable_all().build()?))?;
        let thresholds = watch::Sender::new(THRESHOLDS).subscribe();
        let probers = Probers::new(thresholds, Clock::start(), Arc::new(Metrics::new()));
        let mut links = probers.links();
        let mut prober = probers.prober("cloud", vec![Endpoint::parse(endpoint)?], probing);
        runtime.spawn(async move {
            prober.first_round().await;
            prober.run().await;
        });
        let (telling, story) = watch::channel(Story::default());
        runtime.spawn(async move {
            while links.changed().await.is_ok() {
                let link = links.borrow_and_update().get("cloud").and_then(|site| site.link);
                if let Some(link) = link {
                    telling.send_modify(|story| story.note(link));
                }
            }
        });
        Ok(Self {
            _runtime: runtime,
            story,
        })
    }

    fn link(&self) -> Result<Link> {
        self.story.borrow().link.context("nothing is known of the link")
    }

    /// The link once it is in this state.
    fn until(&self, state: LinkState, bound: Duration) -> Result<Link> {
        eventually(&format!("the link is {state:?}"), bound, || {
            let link = self.link()?;
            ensure!(link.state == state, "{link:?}");
            Ok(link)
        })
    }

    /// Every state so far, with the time that each lasted; the last one lasts.
    fn states(&self) -> Vec<(LinkState, Option<Duration>)> {
        let states = &self.story.borrow().states;
        let ends = states.iter().skip(1).map(|(_, at)| Some(*at)).chain([None]);
        let ended =
            |((state, begun), end): (&(LinkState, Instant), Option<Instant>)| (*state, end.map(|end| end - *begun));
        states.iter().zip(ends).map(ended).collect()
    }

    /// Fails unless these were the states, and each but the last lasted as long as a state has to.
    fn expect(&self, expected: &[LinkState]) -> Result<()> {
        // The recorder is another task than the prober.
        const LATENESS: Duration = Duration::from_secs(2);
        let states = self.states();
        ensure!(states.iter().map(|(state, _)| state).eq(expected), "{states:?}");
        let least = DWELL - LATENESS;
        let lasted = states.iter().all(|(_, lasted)| lasted.is_none_or(|time| time >= least));
        ensure!(lasted, "{states:?}");
        Ok(())
    }
}

fn icmp(_: &Wan) -> Result<String> {
    Ok(format!("icmp://{CLOUD}"))
}

fn tcp(wan: &Wan) -> Result<String> {
    Ok(format!("tcp://{}", wan.cloud_listener()?))
}

pub(crate) fn icmp_slow(wan: &mut Wan) -> Result<()> {
    slow(wan, &icmp(wan)?)
}

pub(crate) fn tcp_slow(wan: &mut Wan) -> Result<()> {
    slow(wan, &tcp(wan)?)
}

pub(crate) fn icmp_lossy(wan: &mut Wan) -> Result<()> {
    lossy(wan, &icmp(wan)?)
}

pub(crate) fn tcp_lossy(wan: &mut Wan) -> Result<()> {
    lossy(wan, &tcp(wan)?)
}

pub(crate) fn icmp_cut(wan: &mut Wan) -> Result<()> {
    cut(wan, &icmp(wan)?)
}

pub(crate) fn tcp_cut(wan: &mut Wan) -> Result<()> {
    cut(wan, &tcp(wan)?)
}

pub(crate) fn icmp_flapping(wan: &mut Wan) -> Result<()> {
    flapping(wan, &icmp(wan)?)
}

pub(crate) fn tcp_flapping(wan: &mut Wan) -> Result<()> {
    flapping(wan, &tcp(wan)?)
}

/// 20 ms is healthy, 150 ms is not, and neither is believed for less than the dwell time.
fn slow(wan: &mut Wan, endpoint: &str) -> Result<()> {
    wan.tell("rtt 20ms")?;
    let observed = Observed::start(wan, endpoint, FAST)?;
    observed.until(LinkState::Healthy, BOUND)?;
    rtt_settles(&observed, 20..60)?;

    wan.tell("rtt 150ms")?;
    let slow = observed.until(LinkState::Degraded, DWELL + BOUND)?;
    ensure!(slow.rtt >= Some(Micros::from_millis(150)), "{slow:?}");
    rtt_settles(&observed, 150..190)?;

    wan.tell("rtt 20ms")?;
    observed.until(LinkState::Healthy, DWELL + BOUND)?;
    observed.expect(&[LinkState::Healthy, LinkState::Degraded, LinkState::Healthy])
}

/// One packet of twenty is too much, and no more than that is lost.
fn lossy(wan: &mut Wan, endpoint: &str) -> Result<()> {
    wan.tell("rtt 20ms loss 5%")?;
    let observed = Observed::start(wan, endpoint, FAST)?;
    let lossy = observed.until(LinkState::Degraded, DWELL + BOUND)?;
    ensure!(lossy.loss >= Some(THRESHOLDS.loss), "{lossy:?}");
    ensure!(
        lossy.rtt < Some(THRESHOLDS.rtt),
        "lost packets are no late ones: {lossy:?}"
    );

    wan.tell("loss 0%")?;
    let whole = observed.until(LinkState::Healthy, DWELL + BOUND)?;
    ensure!(whole.loss < Some(Permille(THRESHOLDS.loss.0 / 2)), "{whole:?}");
    observed.expect(&[LinkState::Healthy, LinkState::Degraded, LinkState::Healthy])
}

/// A cut is noticed, and forgotten, without the dwell time; the last numbers stay to be shown.
fn cut(wan: &mut Wan, endpoint: &str) -> Result<()> {
    wan.tell("rtt 20ms")?;
    let observed = Observed::start(wan, endpoint, FAST)?;
    observed.until(LinkState::Healthy, BOUND)?;

    wan.tell("cut")?;
    let dead = observed.until(LinkState::Unreachable, BOUND)?;
    ensure!(dead.rtt >= Some(Micros::from_millis(20)), "{dead:?}");

    wan.tell("heal")?;
    let whole = observed.until(LinkState::Healthy, BOUND)?;
    ensure!(whole.loss == Some(Permille(0)), "the losses are forgotten: {whole:?}");

    let states = observed.states();
    let [(_, healthy), (_, unreachable), _] = states[..] else {
        anyhow::bail!("{states:?}");
    };
    let quick = [healthy, unreachable]
        .iter()
        .all(|lasted| lasted.is_some_and(|time| time < DWELL));
    ensure!(quick, "{states:?}");
    Ok(())
}

/// Cut for three seconds, whole for three, and so on, with a probe each second: half of them are lost, but never five
/// in a row. Once there are enough outcomes the link is degraded, and stays that.
fn flapping(wan: &mut Wan, endpoint: &str) -> Result<()> {
    const EVERY_SECOND: Probing = Probing {
        probes: 10,
        period: Micros::from_secs(10),
        timeout: Micros::from_millis(900),
    };
    const ALL_OUTAGES: Duration = Duration::from_secs(100);
    wan.tell("rtt 20ms")?;
    let observed = Observed::start(wan, endpoint, EVERY_SECOND)?;
    observed.until(LinkState::Healthy, BOUND)?;
    let begun = Instant::now();
    wan.tell("flap 3s")?;
    observed.until(LinkState::Degraded, ALL_OUTAGES)?;
    eventually("the link has flapped for long", ALL_OUTAGES, || {
        ensure!(begun.elapsed() >= ALL_OUTAGES, "{:?}", begun.elapsed());
        Ok(())
    })?;
    let loss = observed.link()?.loss;
    ensure!(loss.is_some_and(|loss| (300..=700).contains(&loss.0)), "{loss:?}");
    observed.expect(&[LinkState::Healthy, LinkState::Degraded])
}

/// The RTT of a decision comes to lie in this range, in ms.
fn rtt_settles(observed: &Observed, millis: Range<u64>) -> Result<()> {
    eventually(&format!("the RTT is {millis:?} ms"), BOUND, || {
        let link = observed.link()?;
        let rtt = link.rtt.context("no RTT")?;
        ensure!(millis.contains(&(rtt.0 / 1000)), "{link:?}");
        Ok(())
    })
}

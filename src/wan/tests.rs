use edgeward_cluster::wan::Cause;
use edgeward_kube::units::{Moment, Permille};
use tokio::net::TcpListener;

use super::*;

/// Fast enough for a test, and slow enough that a loopback probe ends before the next one starts.
const FAST: Probing = Probing {
    probes: 10,
    period: Micros::from_millis(500),
    timeout: Micros::from_secs(10),
};

struct Bench {
    probers: Probers,
    thresholds: watch::Sender<Thresholds>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl Bench {
    fn new() -> Self {
        let (metrics, clock) = (Arc::new(Metrics::new()), Clock::start());
        let thresholds = watch::Sender::new(Thresholds {
            rtt: Micros::from_secs(60),
            loss: Permille(1_000),
        });
        Self {
            probers: Probers::new(thresholds.subscribe(), clock, Arc::clone(&metrics)),
            thresholds,
            metrics,
            clock,
        }
    }

    fn prober(&self, endpoints: &[&str], probing: Probing) -> Prober {
        let endpoints = endpoints.iter().map(|text| Endpoint::parse(text).unwrap());
        self.probers.prober("cloud", endpoints.collect(), probing)
    }

    fn link(&self) -> Option<Link> {
        self.probers.links().borrow()["cloud"]
    }

    async fn until(&self, state: LinkState) -> Link {
        let mut links = self.probers.links();
        let is_there = |links: &Links| links["cloud"].is_some_and(|link| link.state == state);
        let waited = tokio::time::timeout(Duration::from_secs(30), links.wait_for(is_there)).await;
        waited.unwrap_or_else(|_| panic!("never {state:?}")).unwrap()["cloud"].unwrap()
    }
}

/// A listener on an address that no local client is assigned. While its port is closed, a client cannot connect to
/// itself there.
async fn listener(host: &str, port: u16) -> (TcpListener, String) {
    let listener = TcpListener::bind((host, port)).await.unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    (listener, endpoint)
}

#[tokio::test]
async fn first_probe_round_yields_a_link() {
    let bench = Bench::new();
    let (_listener, answering) = listener("127.0.9.2", 0).await;
    let (closed, refusing) = listener("127.0.9.3", 0).await;
    drop(closed);
    let mut prober = bench.prober(&[&refusing, &answering], Probing::default());
    assert_eq!(bench.link(), None);
    prober.first_round().await;

    let link = bench.link().unwrap();
    assert_eq!((link.state, link.loss), (LinkState::Healthy, Some(Permille(0))));
    assert!(link.rtt.unwrap() > Micros(0) && link.as_of <= bench.clock.moment() && link.as_of > Moment(0));
    let page = bench.metrics.encode();
    for line in [
        format!("edgeward_wan_probes_total{{site=\"cloud\",endpoint=\"{answering}\",outcome=\"answered\"}} 5"),
        format!("edgeward_wan_probes_total{{site=\"cloud\",endpoint=\"{refusing}\",outcome=\"refused\"}} 5"),
    ] {
        assert!(page.contains(&line), "{line}\n{page}");
    }
}

#[tokio::test]
async fn first_probe_round_ends_before_a_long_probe_timeout() {
    let bench = Bench::new();
    // The TCP handshake succeeds, but the TLS handshake never starts.
    let (_listener, silent) = listener("127.0.9.4", 0).await;
    let an_hour = Probing {
        timeout: Micros::from_secs(3_600),
        ..Probing::default()
    };
    let mut prober = bench.prober(&[&silent.replace("tcp", "https")], an_hour);
    let begun = bench.clock.moment();
    tokio::time::timeout(Duration::from_secs(60), prober.first_round())
        .await
        .unwrap();
    assert!(bench.clock.moment().since(begun) >= FIRST_ROUND_TIMEOUT);
    assert_eq!(bench.link().unwrap().state, LinkState::Unreachable);
    assert!(bench.metrics.encode().contains("outcome=\"timeout\"} 5"));
}

#[tokio::test]
async fn cut_link_becomes_unreachable_and_then_healthy_again() {
    let bench = Bench::new();
    let (open, endpoint) = listener("127.0.9.5", 0).await;
    let port = open.local_addr().unwrap().port();
    let running = tokio::spawn(bench.prober(&[&endpoint], FAST).run());
    let rtt = bench.until(LinkState::Healthy).await.rtt;
    drop(open);
    let cut = bench.until(LinkState::Unreachable).await;
    assert!(rtt.is_some() && cut.rtt.is_some());
    let (_open, _) = listener("127.0.9.5", port).await;
    let healed = bench.until(LinkState::Healthy).await;
    assert_eq!(healed.loss, Some(Permille(0)));
    running.abort();
}

#[tokio::test]
async fn link_is_judged_by_the_thresholds_of_the_moment() {
    let (_listener, endpoint) = listener("127.0.9.6", 0).await;
    let bench = Bench::new();
    let mut prober = bench.prober(&[&endpoint], FAST);
    bench.thresholds.send_modify(|thresholds| thresholds.rtt = Micros(0));
    prober.first_round().await;
    assert_eq!(bench.link().unwrap().state, LinkState::Degraded);
}

#[tokio::test]
async fn link_to_unresolvable_name_is_unreachable() {
    let bench = Bench::new();
    let mut prober = bench.prober(&["icmp://nowhere.invalid"], Probing::default());
    prober.first_round().await;
    assert_eq!(bench.link().unwrap().state, LinkState::Unreachable);
    let lost = format!("outcome=\"{}\"}} 5", Cause::Resolve.as_str());
    assert!(bench.metrics.encode().contains(&lost));
}

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edgeward_core::cluster::cache;
use edgeward_core::cluster::wan::{LinkHealth, Links, SiteLink};
use edgeward_core::config::{Config, Input};
use edgeward_core::model::endpoint::Endpoint;
use edgeward_core::model::link::Thresholds;
use edgeward_core::model::site::SiteDefinition;
use edgeward_core::model::snapshot::{Site, Snapshot};
use edgeward_core::units::{Micros, Moment};
use tokio::sync::watch;

use super::*;
use crate::platform::clock::Clock;

fn published(sites: Vec<Site>) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        sites,
        silent_schedulers: Arc::new([("other".into(), 2)].into()),
        ..Snapshot::default()
    })
}

#[test]
fn what_is_shown_of_sites_is_what_was_published_last() {
    let metrics = Metrics::new();
    let shared = Arc::<SharedState>::default();
    metrics.follow(Arc::clone(&shared));
    assert!(!metrics.encode().contains("edgeward_site_nodes{"));
    let mut edge = Site::new(Arc::new(SiteDefinition::edge()));
    edge.nodes = [Arc::default()].into_iter().collect();
    shared.set_snapshot(published(vec![edge]));
    let page = metrics.encode();
    assert!(
        page.contains("edgeward_site_nodes{site=\"edge\",usable=\"false\"} 1"),
        "{page}"
    );
}

fn every_metric_touched() -> String {
    let metrics = Metrics::new();
    metrics.review(
        "edge",
        "edge_feasible_slo_met",
        "latency",
        "edge",
        Duration::from_micros(70),
    );
    metrics.controllers.leader(true);
    metrics.controllers.event("PlacedCloud", EventResult::Written);
    metrics.connection("http/1.1");
    metrics.connection_refused("admission");
    metrics.handshake_failure(HandshakeFailure::Rejected);
    metrics.http_error(413);
    metrics.tls.certificate_not_after(1_800_000_000);
    metrics.tls.ca_not_after(TlsCa::Serving, Some(1_800_000_000));
    let mut health = LinkHealth::new(1);
    let thresholds = Thresholds::from(&Config::default());
    (0..5).for_each(|us| health.record(0, Some(Micros(us)), Moment(0), thresholds));
    let mut cloud = Site::new(Arc::new(SiteDefinition::cloud()));
    cloud.link = health.link();
    metrics.follow(Arc::new(SharedState::new(published(vec![cloud]), Micros(0))));
    metrics.view.last_event(cache::Kind::Nodes, 1_800_000_000);
    metrics.view.list("nodes");
    metrics.view.failure("nodes");
    metrics.wan.probed("cloud", "icmp://gw", None);
    let known = SiteLink {
        link: health.link(),
        endpoints: vec![(Endpoint::parse("icmp://gw").unwrap(), *health.statistics(0).unwrap())],
    };
    let links = watch::Sender::new(Links::from([("cloud".to_owned(), known)]));
    metrics.wan.follow(links.subscribe(), Clock::start());
    metrics.waitlist.change("released_edge", ReleaseOutcome::Changed);
    metrics.configuration.version(7);
    metrics.configuration.faults(["explain"].into_iter());
    metrics.prometheus.asked("wanRttSeconds", "ok");
    metrics.prometheus.sample(Input::WanRtt, 1.8e9);
    metrics.encode()
}

#[test]
fn the_exposition_is_the_list() {
    let page = every_metric_touched();
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, set) = series.split_once('{').map_or((series, ""), |(name, set)| (name, set));
        let name = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        let names = set
            .trim_end_matches('}')
            .split(',')
            .filter_map(|pair| pair.split_once('='));
        labels
            .entry(name.to_owned())
            .or_default()
            .extend(names.map(|(label, _)| label.to_owned()).filter(|label| label != "le"));
    }
    let expected: BTreeMap<String, BTreeSet<String>> = list()
        .map(|metric| {
            (
                metric.name.to_owned(),
                metric.labels.iter().map(|&label| label.to_owned()).collect(),
            )
        })
        .collect();
    assert_eq!(labels, expected);
    for metric in list() {
        let base = metric.registered_name();
        assert!(
            page.contains(&format!("# TYPE {base} {}\n", metric.kind.as_str())),
            "{base}: type\n{page}"
        );
        assert!(
            page.contains(&format!("# HELP {base} {}.\n", metric.help)),
            "{base}: help\n{page}"
        );
    }
    assert!(page.ends_with("# EOF\n"));
}

#[test]
fn the_documentation_is_the_list() {
    let table: Vec<String> = list()
        .map(|metric| {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = if labels.is_empty() {
                "–".to_owned()
            } else {
                labels.join(", ")
            };
            format!(
                "| `{}` | {} | {labels} | {} |",
                metric.name,
                metric.kind.as_str(),
                metric.help
            )
        })
        .collect();
    let documented: Vec<&str> = include_str!("../../../docs/metrics.md")
        .lines()
        .filter(|line| line.starts_with("| `edgeward_"))
        .collect();
    assert_eq!(
        documented,
        table,
        "docs/metrics.md should hold these rows:\n{}",
        table.join("\n")
    );
}

#[test]
fn the_review_histogram_reaches_from_50_us_to_1_s() {
    let page = every_metric_touched();
    assert!(
        page.contains("edgeward_review_duration_seconds_bucket{le=\"0.00005\"} 0"),
        "{page}"
    );
    assert!(
        page.contains("edgeward_review_duration_seconds_bucket{le=\"0.0001\"} 1"),
        "{page}"
    );
    assert!(
        page.contains("edgeward_review_duration_seconds_bucket{le=\"1.0\"} 1"),
        "{page}"
    );
}

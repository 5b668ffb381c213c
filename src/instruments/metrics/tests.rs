use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edgeward_decision::model::link::{Bandwidth, Link, LinkState};
use edgeward_decision::model::scores::{Better, ProfileScores, Score, SiteScore};
use edgeward_decision::model::site::SiteDefinition;
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_kube::units::{Micros, Moment, Permille};
use serde_json::json;

use super::*;

fn published(sites: Vec<Site>) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        sites,
        ..Snapshot::default()
    })
}

#[test]
fn site_metrics_follow_the_last_published_snapshot() {
    let metrics = Metrics::new();
    let shared = Arc::<SharedState>::default();
    metrics.follow(Arc::clone(&shared), Clock::start());
    assert!(!metrics.encode().contains("edgeward_site_nodes{"));
    let mut edge = Site::new(Arc::new(SiteDefinition::edge()));
    edge.nodes = Arc::new(vec![Arc::default()]);
    shared.set_snapshot(published(vec![edge]));
    let page = metrics.encode();
    let nodes = "edgeward_site_nodes{site=\"edge\",usable=\"false\"} 1";
    assert!(page.contains(nodes), "{page}");
    shared.set_snapshot(published(vec![]));
    assert!(!metrics.encode().contains("edgeward_site_nodes{"));
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
    metrics.extender_calls.at(["filter", "edge", "edge_feasible_slo_met"]);
    metrics.leader.set(1);
    metrics.events.at(["PlacedCloud", EventResult::Written.as_str()]);
    metrics.connections_refused.at(["admission"]);
    metrics.http_errors.at(["413"]);
    let mut cloud = Site::new(Arc::new(SiteDefinition::cloud()));
    cloud.link = Some(Link {
        state: LinkState::Healthy,
        rtt: Some(Micros(1)),
        loss: Some(Permille(0)),
        rtt_p95: Some(Micros(1)),
        jitter: Some(Micros(1)),
        ..Link::default()
    });
    cloud.uplink = Some(Bandwidth(1_000));
    cloud.report = Some(Arc::default());
    let energy = json!({"joulesPerGigabyte": 1});
    Arc::make_mut(&mut cloud.definition).energy = serde_json::from_value(energy).unwrap();
    let edge = Site::new(Arc::new(SiteDefinition::edge()));
    let mut snapshot = Arc::unwrap_or_clone(published(vec![edge, cloud]));
    let clock = Clock::start();
    let score = |as_of| SiteScore {
        by_missing: [Score(500_000)].into(),
        as_of,
    };
    let staleness = Micros::from_secs(3_600);
    let stale = clock.moment().before(staleness).before(Micros(1));
    let scores = ProfileScores {
        better: Better::Higher,
        margin: Score(0),
        staleness,
        preferred: Some("edge".into()),
        sites: [("edge".into(), score(clock.moment())), ("cloud".into(), score(stale))].into(),
    };
    snapshot.profiles = Arc::new([("room".into(), Arc::new(scores))].into());
    let links = Arc::make_mut(&mut snapshot.links);
    links.entry("cloud", "edge").or_default().bytes = Some(1);
    metrics.follow(Arc::new(SharedState::new(Arc::new(snapshot), Micros(0))), clock);
    metrics.watch_heard.at(["nodes"]);
    metrics.watch_lists.at(["nodes"]);
    metrics.watch_failures.at(["nodes"]);
    metrics.wan_probes.at(["cloud", "icmp://gw", "answered"]);
    metrics.config_version(7);
    metrics.config_faults(["explain"].into_iter());
    metrics.groups.at(["waiting"]);
    metrics.prometheus_queries.at(["wanRttSeconds", "ok"]);
    metrics.ocm_writes.at(["written"]).inc();
    metrics.scorer_out_of_range.at(["class"]);
    metrics.encode()
}

/// The type and labels of each metric.
type Known = BTreeMap<String, (String, BTreeSet<String>)>;

#[test]
fn stale_score_is_not_exposed() {
    let page = every_metric_touched();
    let score = |site: &str| {
        page.contains(&format!(
            "edgeward_profile_score{{profile=\"room\",site=\"{site}\"}} 0.5"
        ))
    };
    assert_eq!([score("edge"), score("cloud")], [true, false], "{page}");
}

fn exposed(page: &str) -> Known {
    let mut known = Known::new();
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            known.insert(format!("{name}{suffix}"), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((name, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let name = name.strip_suffix("_bucket").unwrap_or(name);
            let (labels, _) = labels.rsplit_once('}').expect("labels end");
            let names = labels.split(',').filter_map(|label| label.split_once('='));
            let names = names.map(|(label, _)| label.to_owned());
            let (_, known) = known.get_mut(name).expect("its type comes first");
            known.extend(names.filter(|label| label != "le"));
        }
    }
    known
}

#[test]
fn documented_metrics_match_exposed_metrics() {
    let page = every_metric_touched();
    let rows = include_str!("../../../docs/reference/metrics.md").lines();
    let rows = rows.filter_map(|line| line.strip_prefix("| `edgeward_"));
    let documented: Known = rows
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            let labels = cells[2].split(", ").filter(|label| *label != "–");
            let labels = labels.map(|label| label.trim_matches('`').to_owned()).collect();
            let name = format!("edgeward_{}", cells[0].trim_end_matches('`'));
            (name, (cells[1].to_owned(), labels))
        })
        .collect();
    assert_eq!(documented, exposed(&page));
    assert!(page.ends_with("# EOF\n"));
}

#[test]
fn review_histogram_buckets_span_50_us_to_1_s() {
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

#[test]
fn config_fault_metrics_are_bounded_and_cleared_on_repair() {
    let metrics = Metrics::new();
    let faults = || -> Vec<String> {
        let page = metrics.encode();
        let lines = page
            .lines()
            .filter_map(|line| line.strip_prefix("edgeward_config_faults{path="));
        lines.map(str::to_owned).collect()
    };
    metrics.config_faults(["sites", "explain", "sites"].into_iter());
    let mut found = faults();
    found.sort();
    assert_eq!(found, ["\"explain\"} 1", "\"sites\"} 2"]);
    let paths: Vec<String> = (0..100).map(|i| format!("key{i}")).collect();
    metrics.config_faults(paths.iter().map(String::as_str));
    assert_eq!(faults().len(), FAULTS);
    metrics.config_version(7);
    assert!(faults().is_empty());
}

#[test]
fn wan_metrics_show_one_state_in_base_units() {
    let metrics = Metrics::new();
    let shared = Arc::<SharedState>::default();
    metrics.follow(Arc::clone(&shared), Clock::start());
    let publish = |link: Option<Link>| {
        let mut cloud = Site::new(Arc::new(SiteDefinition::cloud()));
        cloud.link = link;
        shared.set_snapshot(Arc::new(Snapshot {
            sites: vec![cloud],
            ..Snapshot::default()
        }));
        metrics.encode()
    };
    let mut link = Link {
        state: LinkState::Unreachable,
        rtt: None,
        loss: None,
        as_of: Moment(0),
        ..Link::default()
    };
    assert!(!publish(Some(link)).contains("edgeward_wan_rtt_seconds{"));
    link = Link {
        state: LinkState::Degraded,
        rtt: Some(Micros(12_500)),
        loss: Some(Permille(25)),
        ..link
    };
    let page = publish(Some(link));
    for line in [
        "edgeward_wan_state{site=\"cloud\",state=\"healthy\"} 0",
        "edgeward_wan_state{site=\"cloud\",state=\"degraded\"} 1",
        "edgeward_wan_state{site=\"cloud\",state=\"unreachable\"} 0",
        "edgeward_wan_rtt_seconds{site=\"cloud\"} 0.0125",
        "edgeward_wan_loss_ratio{site=\"cloud\"} 0.025",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    assert!(!publish(None).contains("edgeward_wan_state{"));
}

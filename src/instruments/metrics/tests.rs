use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edgeward_core::cluster::cache;
use edgeward_core::model::link::{Link, LinkState};
use edgeward_core::model::site::SiteDefinition;
use edgeward_core::model::snapshot::{Site, Snapshot};
use edgeward_core::units::{Micros, Moment, Permille};

use super::*;

fn published(sites: Vec<Site>) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        sites,
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
    metrics.controllers.leader(true);
    metrics.controllers.event("PlacedCloud", EventResult::Written);
    metrics.connection_refused("admission");
    metrics.http_error(413);
    let mut cloud = Site::new(Arc::new(SiteDefinition::cloud()));
    cloud.link = Some(Link {
        state: LinkState::Healthy,
        rtt: Some(Micros(1)),
        loss: Some(Permille(0)),
        as_of: Moment(0),
    });
    metrics.follow(Arc::new(SharedState::new(published(vec![cloud]), Micros(0))));
    metrics.view.last_event(cache::Kind::Nodes, 1_800_000_000);
    metrics.view.list("nodes");
    metrics.view.failure("nodes");
    metrics.probes.probed("cloud", "icmp://gw", None);
    metrics.configuration.version(7);
    metrics.configuration.faults(["explain"].into_iter());
    metrics.prometheus_query("wanRttSeconds", "ok");
    metrics.encode()
}

/// Of each metric its type and labels.
type Known = BTreeMap<String, (String, BTreeSet<String>)>;

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
fn documentation_lists_what_is_exposed() {
    let page = every_metric_touched();
    let rows = include_str!("../../../docs/metrics.md").lines();
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

//! The cost map as ALTO (RFC 7285, metrics of RFC 9439), printed or served.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use edgeward_cluster::engine::SharedState;
use edgeward_decision::config::Config;
use edgeward_decision::model::cost_map::{Route, watts};
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_kube::words;
use serde_json::{Value, json};

use crate::platform::clock::Clock;
use crate::platform::hash;

const NETWORK_MAP: &str = "networkmap";

words! {
    /// A cost metric. RFC 9439 has the units, except for energy.
    enum Metric {
        /// Round-trip time in microseconds.
        Rtt = "delay-rt",
        /// Jitter in microseconds.
        Jitter = "delay-variation",
        /// Loss in percent.
        Loss = "lossrate",
        /// Bandwidth in bytes per second.
        Bandwidth = "bw-available",
        /// Power in watts.
        Power = "priv:edgeward-watts",
    }
}

impl Metric {
    fn of(self, route: &Route<'_>) -> Option<Value> {
        match self {
            Self::Rtt => Some(route.rtt?.0.0.into()),
            Self::Jitter => Some(route.jitter?.0.0.into()),
            Self::Loss => Some(route.loss?.0.into()),
            Self::Bandwidth => Some((route.bandwidth?.0.0 / 8).into()),
            Self::Power => Some(watts(route.microwatts?).into()),
        }
    }

    fn cost_type(self) -> Value {
        json!({"cost-mode": "numerical", "cost-metric": self.as_str(), "cost-context": {"cost-source": "estimation"}})
    }
}

/// All documents.
pub(super) fn documents(snapshot: &Snapshot, routes: &[Route<'_>]) -> Value {
    let network_map = network_map(snapshot);
    let maps = Metric::ALL.map(|metric| (metric.as_str(), cost_map(metric, &network_map, routes)));
    json!({"directory": directory(), NETWORK_MAP: network_map, "costmaps": BTreeMap::from(maps)})
}

/// The resources, with addresses relative to the directory.
fn directory() -> Value {
    let types = Metric::ALL.map(|metric| (metric.as_str(), metric.cost_type()));
    let maps = Metric::ALL.map(|metric| {
        let metric = metric.as_str();
        let map = json!({
            "uri": format!("costmap/{metric}"),
            "media-type": "application/alto-costmap+json",
            "uses": [NETWORK_MAP],
            "capabilities": {"cost-type-names": [metric]},
        });
        (format!("costmap-{}", metric.replace(':', "-")), map)
    });
    let mut resources = BTreeMap::from(maps);
    let map = json!({"uri": NETWORK_MAP, "media-type": "application/alto-networkmap+json"});
    resources.insert(NETWORK_MAP.to_owned(), map);
    json!({
        "meta": {"cost-types": BTreeMap::from(types), "default-alto-network-map": NETWORK_MAP},
        "resources": resources,
    })
}

/// The sites with the addresses of their nodes. An address belongs to one site at most: one that several have, such as that of a
/// virtual node's host, is left out. The tag is a hash of the contents.
fn network_map(snapshot: &Snapshot) -> Value {
    let mut owners = BTreeMap::<_, BTreeSet<_>>::new();
    for site in &snapshot.sites {
        for address in addresses(site) {
            owners.entry(address).or_default().insert(site.name());
        }
    }
    let is_own = |address: &IpAddr| owners.get(address).is_some_and(|sites| sites.len() == 1);
    let endpoints = |site: &Site| {
        let mut groups = BTreeMap::<_, BTreeSet<_>>::new();
        for address in addresses(site).filter(is_own) {
            let (family, bits) = if address.is_ipv4() { ("ipv4", 32) } else { ("ipv6", 128) };
            groups.entry(family).or_default().insert(format!("{address}/{bits}"));
        }
        json!(groups)
    };
    let sites = snapshot.sites.iter();
    let map: BTreeMap<_, _> = sites.map(|site| (pid(site.name()), endpoints(site))).collect();
    let map = json!(map);
    let tag = format!("{:016x}", hash(map.to_string()));
    json!({"meta": {"vtag": {"resource-id": NETWORK_MAP, "tag": tag}}, "network-map": map})
}

fn addresses(site: &Site) -> impl Iterator<Item = IpAddr> {
    let addresses = site.nodes().flat_map(|node| &node.profiled.addresses);
    addresses.filter_map(|text| text.parse().ok())
}

/// The cost map of a metric, with the version of this network map. A pair of which the metric is unknown is left out.
fn cost_map(metric: Metric, network_map: &Value, routes: &[Route<'_>]) -> Value {
    let mut map = BTreeMap::<_, BTreeMap<_, _>>::new();
    for route in routes {
        if let Some(value) = metric.of(route) {
            map.entry(pid(route.source))
                .or_default()
                .insert(pid(route.target), value);
        }
    }
    json!({
        "meta": {"dependent-vtags": [network_map["meta"]["vtag"]], "cost-type": metric.cost_type()},
        "cost-map": map,
    })
}

/// Identifier of a site. `.` is reserved there, and no site name has a `:`.
fn pid(site: &str) -> String {
    site.replace('.', ":")
}

/// What the pages are made of.
#[derive(Clone)]
struct Source {
    shared: Arc<SharedState>,
    config: Arc<ArcSwap<Config>>,
    clock: Clock,
}

/// The pages `/alto/directory`, `/alto/networkmap` and `/alto/costmap/<metric>`.
pub fn routes(shared: Arc<SharedState>, config: Arc<ArcSwap<Config>>, clock: Clock) -> Router {
    let network_map = async |State(source): State<Source>| page("networkmap", &network_map(&source.shared.snapshot()));
    let cost_map = async |State(source): State<Source>, Path(name): Path<String>| {
        let Some(metric) = Metric::of_word(&name) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let (snapshot, now) = (source.shared.snapshot(), source.clock.moment());
        let routes = snapshot.cost_map(source.config.load().telemetry_ttl, now);
        page("costmap", &cost_map(metric, &self::network_map(&snapshot), &routes))
    };
    Router::new()
        .route("/alto/directory", get(async || page("directory", &directory())))
        .route("/alto/networkmap", get(network_map))
        .route("/alto/costmap/{metric}", get(cost_map))
        .with_state(Source { shared, config, clock })
}

fn page(kind: &str, document: &Value) -> Response {
    let body = document.to_string();
    let tag = format!("\"{:016x}\"", hash(&body));
    let headers = [(CONTENT_TYPE, format!("application/alto-{kind}+json")), (ETAG, tag)];
    (headers, body).into_response()
}

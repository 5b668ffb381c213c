//! All objects of Liqo: the state of namespaces and clusters, and the sites discovered from them.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edgeward_decision::config::LiqoSettings;
use edgeward_decision::model::endpoint::Endpoint;
use edgeward_decision::model::liqo::{Liqo, Offloading, Offloadings, RemoteCluster};
use edgeward_decision::model::site::SiteDefinition;
use edgeward_kube::units::{Micros, Now};

pub use read::{
    ForeignCluster, Latency, NamespaceMap, VirtualNode, connection, foreign_cluster, namespace_map,
    namespace_offloading, virtual_node,
};

/// Maximum number of discovered sites. Each site has probes, and an entry in every decision.
pub const MAX_DISCOVERED: usize = 256;

/// The objects of Liqo as they were last read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiqoObjects {
    /// Whether NamespaceOffloadings and NamespaceMaps have been listed.
    pub are_namespaces_known: bool,
    /// ForeignClusters.
    pub foreign_clusters: Vec<ForeignCluster>,
    /// VirtualNodes.
    pub virtual_nodes: Vec<VirtualNode>,
    /// NamespaceOffloadings, each with its namespace.
    pub offloadings: Vec<(Box<str>, Offloading)>,
    /// NamespaceMaps.
    pub maps: Vec<Arc<NamespaceMap>>,
    /// Latencies from Connections, by the id of the cluster.
    pub latencies: Vec<(Box<str>, Latency)>,
}

impl LiqoObjects {
    /// Returns the state that the objects describe as of now.
    pub fn facts(&self, now: Now) -> Liqo {
        let mut namespaces: BTreeMap<_, _> = self.offloadings.iter().cloned().collect();
        for map in &self.maps {
            for (namespace, phase) in &map.namespaces {
                let clusters = &mut namespaces.entry(namespace.clone()).or_default().clusters;
                clusters.insert(map.cluster.clone(), *phase);
            }
        }
        let mut clusters = BTreeMap::<Box<str>, RemoteCluster>::new();
        for cluster in &self.foreign_clusters {
            clusters.entry(cluster.cluster.clone()).or_default().api_server = cluster.api_server;
        }
        for (cluster, latency) in &self.latencies {
            let age = now.wall.duration_since(latency.at).as_micros();
            let at = now.moment.before(Micros(u64::try_from(age).unwrap_or(0)));
            let known = &mut clusters.entry(cluster.clone()).or_default().latency;
            if known.is_none_or(|(_, newest)| newest < at) {
                *known = Some((latency.rtt, at));
            }
        }
        Liqo {
            offloadings: Arc::new(Offloadings {
                is_known: self.are_namespaces_known,
                namespaces,
            }),
            clusters,
        }
    }

    /// Returns a site for each cluster that has a VirtualNode, the first [`MAX_DISCOVERED`] by id. A ForeignCluster
    /// alone gives no site: it may only take from this cluster, and pods would wait for it. The default probe is the
    /// API server, if its address is known. A label of `settings` becomes a label of the site if all VirtualNodes of the
    /// cluster have it with the same value.
    pub fn sites(&self, settings: &LiqoSettings) -> Vec<Arc<SiteDefinition>> {
        let site = |id: &str| {
            let mut known = self.foreign_clusters.iter().filter(|cluster| *cluster.cluster == *id);
            let url = known.find_map(|cluster| cluster.api_server_url.as_deref());
            let probe = url.and_then(|url| Endpoint::parse(&format!("{}/livez", url.trim_end_matches('/'))).ok());
            Arc::new(SiteDefinition {
                probes: probe.into_iter().collect(),
                labels: self.labels(id, &settings.site_labels),
                runtime_class: settings.runtime_class.clone(),
                ..SiteDefinition::of_cluster(id)
            })
        };
        self.clusters().into_iter().take(MAX_DISCOVERED).map(site).collect()
    }

    fn labels(&self, cluster: &str, keys: &[Box<str>]) -> BTreeMap<Box<str>, Box<str>> {
        let agreed = |key: &str| {
            let nodes = self.virtual_nodes.iter().filter(|node| &*node.cluster == cluster);
            let mut values = nodes.map(|node| node.labels.get(key));
            let first = values.next()??;
            let do_agree = values.all(|value| value == Some(first));
            do_agree.then(|| (key.into(), first.clone()))
        };
        keys.iter().filter_map(|key| agreed(key)).collect()
    }

    /// The clusters that have a VirtualNode.
    pub fn clusters(&self) -> BTreeSet<&str> {
        self.virtual_nodes.iter().map(|node| &*node.cluster).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgeward_decision::model::liqo::{ApiServerStatus, OffloadingPhase, Strategy};
    use edgeward_decision::model::site::SiteSource;
    use edgeward_decision::testkit::NOW;
    use edgeward_kube::units::Moment;

    fn foreign_cluster(cluster: &str, url: &str) -> ForeignCluster {
        ForeignCluster {
            cluster: cluster.into(),
            api_server_url: Some(url.into()),
            api_server: Some(ApiServerStatus::Error),
        }
    }

    fn node(cluster: &str, labels: &[(&str, &str)]) -> VirtualNode {
        let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        VirtualNode {
            cluster: cluster.into(),
            labels: labels.collect(),
        }
    }

    #[test]
    fn each_cluster_that_gives_virtual_nodes_is_a_site() {
        let objects = LiqoObjects {
            foreign_clusters: vec![
                foreign_cluster("far", "https://far.example.com:6443/"),
                foreign_cluster("odd", "http://odd"),
                foreign_cluster("takes", "https://takes"),
            ],
            virtual_nodes: vec![
                node("odd", &[]),
                node("far", &[("region", "eu"), ("tier", "gold"), ("zone", "a")]),
                node("new", &[("region", "us")]),
                node("far", &[("region", "eu"), ("tier", "silver")]),
            ],
            ..LiqoObjects::default()
        };
        let settings = LiqoSettings {
            runtime_class: Some("liqo".to_owned()),
            site_labels: ["region", "tier", "zone"].map(Box::from).into(),
            ..LiqoSettings::default()
        };
        let sites = objects.sites(&settings);
        let probes = |site: &SiteDefinition| site.probes.iter().map(ToString::to_string).collect::<Vec<_>>();
        let seen: Vec<_> = sites.iter().map(|site| (&*site.name, probes(site))).collect();
        let livez = "https://far.example.com:6443/livez".to_owned();
        assert_eq!(seen, [("far", vec![livez]), ("new", vec![]), ("odd", vec![])]);
        let far = &sites[0];
        assert_eq!(far.remote_cluster(), Some("far"));
        assert_eq!(
            (far.source, far.runtime_class.as_deref()),
            (SiteSource::Liqo, Some("liqo"))
        );
        let selector: Vec<_> = far.selector().collect();
        assert_eq!(
            selector,
            [("liqo.io/remote-cluster-id", "far"), ("liqo.io/type", "virtual-node")]
        );
        assert_eq!(far.tolerations[0].key, "virtual-node.liqo.io/not-allowed");
        // Its virtual nodes differ in the other labels.
        assert_eq!(far.labels, [("region".into(), "eu".into())].into());

        let many = (0..MAX_DISCOVERED + 5).map(|number| node(&format!("c{number}"), &[]));
        let many = LiqoObjects {
            virtual_nodes: many.collect(),
            ..LiqoObjects::default()
        };
        assert_eq!(
            (many.sites(&settings).len(), many.clusters().len()),
            (MAX_DISCOVERED, MAX_DISCOVERED + 5)
        );
    }

    #[test]
    fn liqo_objects_are_joined_by_namespace_and_cluster() {
        let latency = |seconds: i64, rtt: u64| {
            let at = NOW.wall.checked_sub(jiff::SignedDuration::from_secs(seconds)).unwrap();
            let rtt = Micros(rtt);
            ("far".into(), Latency { rtt, at })
        };
        let map = |cluster: &str, phase| {
            Arc::new(NamespaceMap {
                cluster: cluster.into(),
                namespaces: [("shop".into(), phase)].into(),
            })
        };
        let objects = LiqoObjects {
            are_namespaces_known: true,
            foreign_clusters: vec![foreign_cluster("far", "https://far")],
            virtual_nodes: vec![],
            offloadings: vec![(
                "shop".into(),
                Offloading {
                    strategy: Some(Strategy::Remote),
                    phase: OffloadingPhase::SomeFailed,
                    ..Offloading::default()
                },
            )],
            maps: vec![
                map("far", OffloadingPhase::Accepted),
                map("near", OffloadingPhase::CreationLoopBackOff),
            ],
            latencies: vec![latency(9, 900), latency(4, 400), latency(7, 700)],
        };
        let liqo = objects.facts(NOW);
        let of = |cluster: &str| liqo.offloadings.phase("shop", cluster);
        assert_eq!(of("far"), OffloadingPhase::Accepted);
        assert_eq!(of("near"), OffloadingPhase::CreationLoopBackOff);
        assert_eq!(of("other"), OffloadingPhase::SomeFailed);
        assert!(liqo.offloadings.is_remote("shop") && !liqo.offloadings.is_remote("other"));
        let far = liqo.clusters["far"];
        assert_eq!(far.api_server, Some(ApiServerStatus::Error));
        assert_eq!(far.latency, Some((Micros(400), Moment(NOW.moment.0 - 4_000_000))));
    }
}

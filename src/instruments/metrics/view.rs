//! What the live view holds: capacity, charges, queues, and how old they are. Sites are named as in the configuration.

use std::sync::atomic::AtomicU64;

use edgeward_core::cluster::cache;
use edgeward_core::model::node::Node;
use edgeward_core::model::slo::Class;
use edgeward_core::model::snapshot::{Site, Snapshot};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Description, Kind, register};

pub(super) const NODES: Description = Description {
    name: "edgeward_site_nodes",
    kind: Kind::Gauge,
    labels: &["site", "usable"],
    help: "Nodes of the site, by whether they are Ready and not cordoned",
};
pub(super) const FREE_CPU: Description = Description {
    name: "edgeward_site_free_cpu_cores",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "CPU that charges leave free, summed over the site's usable nodes",
};
pub(super) const FREE_MEMORY: Description = Description {
    name: "edgeward_site_free_memory_bytes",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "Memory that charges leave free, summed over the site's usable nodes",
};
pub(super) const CHARGED_CPU: Description = Description {
    name: "edgeward_site_charged_cpu_cores",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "CPU charged by pods bound, nominated or on their way to the site's nodes",
};
pub(super) const CHARGED_MEMORY: Description = Description {
    name: "edgeward_site_charged_memory_bytes",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "Memory charged by pods bound, nominated or on their way to the site's nodes",
};
pub(super) const CHARGED_PODS: Description = Description {
    name: "edgeward_site_charged_pods",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "Pods bound, nominated or on their way to the site's nodes",
};
pub(super) const QUEUE: Description = Description {
    name: "edgeward_queue_pods",
    kind: Kind::Gauge,
    labels: &["site", "class", "state"],
    help: "Managed pods that are not running yet at the site: all that are pending, and those of them that wait for room",
};
pub(super) const CLOSED: Description = Description {
    name: "edgeward_closed_controllers",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "Controllers whose pods kube-scheduler does not place at the site for a reason that edgeward does not evaluate",
};
pub(super) const CACHED_PODS: Description = Description {
    name: "edgeward_cached_pods",
    kind: Kind::Gauge,
    labels: &[],
    help: "Pods of the whole cluster that are cached, finished ones included",
};
pub(super) const NODE_FAULTS: Description = Description {
    name: "edgeward_node_faults",
    kind: Kind::Gauge,
    labels: &[],
    help: "Nodes that carry the selectors of several sites",
};
pub(super) const HEARD: Description = Description {
    name: "edgeward_watch_heard_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["kind"],
    help: "When the API server was last heard about this kind, in seconds since the Unix epoch",
};
pub(super) const LISTS: Description = Description {
    name: "edgeward_watch_lists_total",
    kind: Kind::Counter,
    labels: &["kind"],
    help: "Lists of everything of a kind that were begun: the first, and one after each loss of a watch's place",
};
pub(super) const FAILURES: Description = Description {
    name: "edgeward_watch_failures_total",
    kind: Kind::Counter,
    labels: &["kind"],
    help: "Failures of a watch or list, each tried again after a pause",
};
pub(super) const REPLICAS: Description = Description {
    name: "edgeward_replicas",
    kind: Kind::Gauge,
    labels: &[],
    help: "Replicas of us that decide, as counted last or configured (0: none was found, and one is assumed)",
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SiteLabel {
    site: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    site: String,
    usable: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    site: String,
    class: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

type Decimal = Gauge<f64, AtomicU64>;

/// The live view's part of the process's metrics.
#[derive(Debug)]
pub struct ViewMetrics {
    nodes: Family<NodeLabels, Gauge>,
    free_cpu: Family<SiteLabel, Decimal>,
    free_memory: Family<SiteLabel, Gauge>,
    charged_cpu: Family<SiteLabel, Decimal>,
    charged_memory: Family<SiteLabel, Gauge>,
    charged_pods: Family<SiteLabel, Gauge>,
    queue: Family<QueueLabels, Gauge>,
    closed: Family<SiteLabel, Gauge>,
    cached_pods: Gauge,
    node_faults: Gauge,
    heard: Family<KindLabel, Gauge>,
    lists: Family<KindLabel, Counter>,
    failures: Family<KindLabel, Counter>,
    replicas: Gauge,
}

impl ViewMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            nodes: register(registry, &NODES, Family::default()),
            free_cpu: register(registry, &FREE_CPU, Family::default()),
            free_memory: register(registry, &FREE_MEMORY, Family::default()),
            charged_cpu: register(registry, &CHARGED_CPU, Family::default()),
            charged_memory: register(registry, &CHARGED_MEMORY, Family::default()),
            charged_pods: register(registry, &CHARGED_PODS, Family::default()),
            queue: register(registry, &QUEUE, Family::default()),
            closed: register(registry, &CLOSED, Family::default()),
            cached_pods: register(registry, &CACHED_PODS, Gauge::default()),
            node_faults: register(registry, &NODE_FAULTS, Gauge::default()),
            heard: register(registry, &HEARD, Family::default()),
            lists: register(registry, &LISTS, Family::default()),
            failures: register(registry, &FAILURES, Family::default()),
            replicas: register(registry, &REPLICAS, Gauge::default()),
        }
    }

    /// Sites come and go.
    fn forget_sites(&self) {
        self.nodes.clear();
        self.queue.clear();
        self.free_memory.clear();
        for family in [&self.free_cpu, &self.charged_cpu] {
            family.clear();
        }
        for family in [&self.charged_memory, &self.charged_pods, &self.closed] {
            family.clear();
        }
    }

    /// What is shown of sites, as of this snapshot. Cost: a pass over all nodes, which is why it is not done at each
    /// publication.
    pub(super) fn sites(&self, snapshot: &Snapshot) {
        self.forget_sites();
        snapshot.sites.iter().for_each(|site| self.site(site));
    }

    fn site(&self, site: &Site) {
        let label = SiteLabel {
            site: site.name().to_owned(),
        };
        let usable = || site.nodes().filter(|node| is_usable(node));
        let free = |amount: fn(&Node) -> i64| usable().map(|node| amount(node).max(0)).fold(0, i64::saturating_add);
        let charged = |amount: fn(&Node) -> i64| site.nodes().map(amount).fold(0, i64::saturating_add);
        let cores = |millicores: i64| millicores as f64 / 1_000.0;
        let free_cpu = free(|node| node.allocatable.cpu.0.saturating_sub(node.used.cpu.0));
        let free_memory = free(|node| node.allocatable.memory.0.saturating_sub(node.used.memory.0));
        self.free_cpu.get_or_create(&label).set(cores(free_cpu));
        self.free_memory.get_or_create(&label).set(free_memory);
        self.charged_cpu
            .get_or_create(&label)
            .set(cores(charged(|node| node.used.cpu.0)));
        self.charged_memory
            .get_or_create(&label)
            .set(charged(|node| node.used.memory.0));
        self.charged_pods.get_or_create(&label).set(charged(|node| node.pods));
        self.closed.get_or_create(&label).set(count(site.closed.iter().count()));
        let usable = usable().count();
        for (is_usable, nodes) in [("true", usable), ("false", site.nodes.len() - usable)] {
            let label = NodeLabels {
                site: site.name().to_owned(),
                usable: is_usable,
            };
            self.nodes.get_or_create(&label).set(count(nodes));
        }
        for class in Class::ALL {
            let groups = || site.queues.iter().filter(|group| group.class == class);
            let waiting: u64 = groups().map(|group| group.waiting).sum();
            let pending: u64 = groups().map(|group| group.pending).sum();
            for (state, pods) in [("waiting", waiting), ("pending", pending)] {
                let label = QueueLabels {
                    site: site.name().to_owned(),
                    class: class.as_str(),
                    state,
                };
                self.queue
                    .get_or_create(&label)
                    .set(i64::try_from(pods).unwrap_or(i64::MAX));
            }
        }
    }

    /// The cache holds so many pods, and knows of so many nodes with the selectors of several sites.
    pub fn cache(&self, pods: usize, node_faults: usize) {
        self.cached_pods.set(count(pods));
        self.node_faults.set(count(node_faults));
    }

    /// The API server was last heard about this kind at this moment.
    pub fn heard(&self, kind: cache::Kind, unix_seconds: i64) {
        let label = KindLabel { kind: kind.as_str() };
        self.heard.get_or_create(&label).set(unix_seconds);
    }

    /// A list of everything of this kind began.
    pub fn list(&self, kind: cache::Kind) {
        self.lists.get_or_create(&KindLabel { kind: kind.as_str() }).inc();
    }

    /// A watch or list of this kind failed.
    pub fn failure(&self, kind: &'static str) {
        self.failures.get_or_create(&KindLabel { kind }).inc();
    }

    /// So many replicas of us decide.
    pub fn replicas(&self, ready: u32) {
        self.replicas.set(ready.into());
    }
}

fn is_usable(node: &Node) -> bool {
    node.ready && !node.cordoned
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

//! Metrics of sites, as of one snapshot. Sites are named as in the configuration.

use edgeward_core::model::slo::Class;
use edgeward_core::model::snapshot::{Site, Snapshot};
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Decimals, Gauges, count, register};

#[derive(Debug)]
pub(super) struct SiteMetrics {
    nodes: Gauges<2>,
    free_cpu: Decimals<1>,
    free_memory: Gauges<1>,
    queue: Gauges<2>,
    closed: Gauges<1>,
    refused: Gauges<1>,
}

impl SiteMetrics {
    pub(super) fn new(to: &mut Registry) -> Self {
        Self {
            nodes: register(to, "edgeward_site_nodes", "Nodes of the site"),
            free_cpu: register(to, "edgeward_site_free_cpu_cores", "CPU that charges leave free"),
            free_memory: register(to, "edgeward_site_free_memory_bytes", "Memory that charges leave free"),
            queue: register(to, "edgeward_queue_pods", "Managed pods that wait for room at the site"),
            closed: register(
                to,
                "edgeward_closed_controllers",
                "Controllers whose pods the site does not take",
            ),
            refused: register(
                to,
                "edgeward_site_refused_pods",
                "Pods that the cluster behind a cloud refuses",
            ),
        }
    }

    /// Shows the sites of this snapshot, and no others. Cost: a pass over all nodes.
    pub(super) fn show(&self, snapshot: &Snapshot) {
        self.nodes.clear();
        self.free_cpu.clear();
        self.free_memory.clear();
        self.queue.clear();
        self.closed.clear();
        self.refused.clear();
        snapshot.sites.iter().for_each(|site| self.show_site(site));
    }

    fn show_site(&self, site: &Site) {
        let of_site = [("site", site.name().to_owned().into())];
        let free_cpu = site.uncharged(|amounts| amounts.cpu.0) as f64 / 1_000.0;
        let free_memory = site.uncharged(|amounts| amounts.memory.0);
        let closed = site.closed.iter().count();
        let refused: u64 = site.full.iter().map(|full| full.pods).sum();
        self.free_cpu.get_or_create(&of_site).set(free_cpu);
        self.free_memory.get_or_create(&of_site).set(free_memory);
        self.closed.get_or_create(&of_site).set(count(closed));
        self.refused.get_or_create(&of_site).set(count(refused));
        let [of_site] = of_site;
        let usable = site.usable_nodes().count();
        for (is_usable, nodes) in [("true", usable), ("false", site.nodes.len() - usable)] {
            let labels = [of_site.clone(), ("usable", is_usable.into())];
            self.nodes.get_or_create(&labels).set(count(nodes));
        }
        for class in Class::ALL {
            let of_class = site.queues.iter().filter(|group| group.class == class);
            let waiting: u64 = of_class.map(|group| group.waiting).sum();
            let labels = [of_site.clone(), ("class", class.as_str().into())];
            self.queue.get_or_create(&labels).set(count(waiting));
        }
    }
}

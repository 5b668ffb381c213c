//! Metrics of sites and of the links to them, as of one snapshot. Sites are named as in the configuration.

use edgeward_core::model::link::{Link, LinkState};
use edgeward_core::model::slo::Class;
use edgeward_core::model::snapshot::{Site, Snapshot};
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Decimals, Gauges, count, labelled};

#[derive(Debug)]
pub(super) struct SiteMetrics {
    nodes: Gauges<2>,
    free_cpu: Decimals<1>,
    free_memory: Gauges<1>,
    queue: Gauges<2>,
    closed: Gauges<1>,
    refused: Gauges<1>,
    wan_state: Gauges<2>,
    wan_rtt: Decimals<1>,
    wan_loss: Decimals<1>,
}

impl SiteMetrics {
    pub(super) fn new(to: &mut Registry) -> Self {
        let site = ["site"];
        let (queue, state) = (["site", "class"], ["site", "state"]);
        Self {
            nodes: labelled(to, "site_nodes", ["site", "usable"], "Nodes of the site"),
            free_cpu: labelled(to, "site_free_cpu_cores", site, "CPU that charges leave free"),
            free_memory: labelled(to, "site_free_memory_bytes", site, "Memory that charges leave free"),
            queue: labelled(to, "queue_pods", queue, "Managed pods that wait for room at the site"),
            closed: labelled(
                to,
                "closed_controllers",
                site,
                "Controllers whose pods the site does not take",
            ),
            refused: labelled(
                to,
                "site_refused_pods",
                site,
                "Pods that the cluster behind a cloud refuses",
            ),
            wan_state: labelled(
                to,
                "wan_state",
                state,
                "1 for the state of the link to the site, else 0",
            ),
            wan_rtt: labelled(to, "wan_rtt_seconds", site, "Round-trip time to the site"),
            wan_loss: labelled(to, "wan_loss_ratio", site, "Loss towards the site"),
        }
    }

    /// Shows the sites of this snapshot, and no others. Cost: a pass over all nodes.
    pub(super) fn show(&self, snapshot: &Snapshot) {
        for gauges in [&self.nodes, &self.queue, &self.wan_state] {
            gauges.clear();
        }
        for gauges in [&self.free_memory, &self.closed, &self.refused] {
            gauges.clear();
        }
        for gauges in [&self.free_cpu, &self.wan_rtt, &self.wan_loss] {
            gauges.clear();
        }
        for site in &snapshot.sites {
            self.show_site(site);
            if let Some(link) = site.link {
                self.show_link(site.name(), link);
            }
        }
    }

    fn show_site(&self, site: &Site) {
        let name = site.name();
        let free_cpu = site.uncharged(|amounts| amounts.cpu.0) as f64 / 1_000.0;
        let free_memory = site.uncharged(|amounts| amounts.memory.0);
        let refused: u64 = site.full.iter().map(|full| full.pods).sum();
        self.free_cpu.at([name]).set(free_cpu);
        self.free_memory.at([name]).set(free_memory);
        self.closed.at([name]).set(count(site.closed.iter().count()));
        self.refused.at([name]).set(count(refused));
        let usable = site.usable_nodes().count();
        self.nodes.at([name, "true"]).set(count(usable));
        self.nodes.at([name, "false"]).set(count(site.nodes.len() - usable));
        if !site.foreign.is_empty() {
            self.nodes.at([name, "foreign"]).set(count(site.foreign.len()));
        }
        for class in Class::ALL {
            let of_class = site.queues.iter().filter(|group| group.class == class);
            let waiting: u64 = of_class.map(|group| group.waiting).sum();
            self.queue.at([name, class.as_str()]).set(count(waiting));
        }
    }

    fn show_link(&self, site: &str, link: Link) {
        for state in LinkState::ALL {
            self.wan_state
                .at([site, state.as_str()])
                .set((state == link.state).into());
        }
        if let Some(rtt) = link.rtt {
            self.wan_rtt.at([site]).set(rtt.as_millis_f64() / 1_000.0);
        }
        if let Some(loss) = link.loss {
            self.wan_loss.at([site]).set(f64::from(loss.0) / 1_000.0);
        }
    }
}

//! Capacity, charges and queues of sites, as of one snapshot. Sites are named as in the configuration.

use edgeward_core::model::node::Node;
use edgeward_core::model::slo::Class;
use edgeward_core::model::snapshot::{Site, Snapshot};

use crate::instruments::metrics::count;
use crate::instruments::metrics::declaration::{Decimals, Gauges, metrics};

metrics! {
    pub(super) struct SiteMetrics {
        nodes: Gauges<2> = "edgeward_site_nodes" ["site", "usable"]
            "Nodes of the site, by whether they are Ready and not cordoned";
        free_cpu: Decimals<1> = "edgeward_site_free_cpu_cores" ["site"]
            "CPU that charges leave free, summed over the site's usable nodes";
        free_memory: Gauges<1> = "edgeward_site_free_memory_bytes" ["site"]
            "Memory that charges leave free, summed over the site's usable nodes";
        charged_cpu: Decimals<1> = "edgeward_site_charged_cpu_cores" ["site"]
            "CPU charged by pods bound, nominated or assumed on the site's nodes";
        charged_memory: Gauges<1> = "edgeward_site_charged_memory_bytes" ["site"]
            "Memory charged by pods bound, nominated or assumed on the site's nodes";
        charged_pods: Gauges<1> = "edgeward_site_charged_pods" ["site"]
            "Pods bound, nominated or assumed on the site's nodes";
        queue: Gauges<3> = "edgeward_queue_pods" ["site", "class", "state"]
            "Managed pods that are not running yet at the site: all that are pending, and those of them that wait for room";
        closed: Gauges<1> = "edgeward_closed_controllers" ["site"]
            "Controllers whose pods kube-scheduler does not place at the site, or that do not start there, for a reason that edgeward does not evaluate";
        refused: Gauges<1> = "edgeward_site_refused_pods" ["site"]
            "Pods bound to nodes of the cloud for which the cluster behind it has no room, so that the site is full from what they ask for on";
        silent: Gauges<1> = "edgeward_silent_scheduler_pods" ["scheduler"]
            "Pods that fit a node and take no room, because their scheduler says nothing while another binds pods; without a name: of schedulers that have never bound or refused a pod";
    }
}

impl SiteMetrics {
    /// What is shown of sites, as of this snapshot. Cost: a pass over all nodes.
    pub(super) fn show(&self, snapshot: &Snapshot) {
        snapshot.sites.iter().for_each(|site| self.show_site(site));
        for (name, pods) in &*snapshot.silent_schedulers {
            self.silent.of([String::from(&**name).into()]).set(count(*pods));
        }
    }

    fn show_site(&self, site: &Site) {
        let name = || site.name().to_owned().into();
        let charged = |amount: fn(&Node) -> i64| site.nodes().map(amount).fold(0, i64::saturating_add);
        let cores = |millicores: i64| millicores as f64 / 1_000.0;
        let free_cpu = site.uncharged(|amounts| amounts.cpu.0);
        let free_memory = site.uncharged(|amounts| amounts.memory.0);
        self.free_cpu.of([name()]).set(cores(free_cpu));
        self.free_memory.of([name()]).set(free_memory);
        self.charged_cpu
            .of([name()])
            .set(cores(charged(|node| node.used.cpu.0)));
        self.charged_memory.of([name()]).set(charged(|node| node.used.memory.0));
        self.charged_pods.of([name()]).set(charged(|node| node.pods));
        self.closed.of([name()]).set(count(site.closed.iter().count()));
        let refused: u64 = site.full.iter().map(|full| full.pods).sum();
        self.refused.of([name()]).set(count(refused));
        let usable = site.usable_nodes().count();
        self.nodes.of([name(), "true".into()]).set(count(usable));
        self.nodes
            .of([name(), "false".into()])
            .set(count(site.nodes.len() - usable));
        for class in Class::ALL {
            let groups = || site.queues.iter().filter(|group| group.class == class);
            let waiting: u64 = groups().map(|group| group.waiting).sum();
            let pending: u64 = groups().map(|group| group.pending).sum();
            for (state, pods) in [("waiting", waiting), ("pending", pending)] {
                let labels = [name(), class.as_str().into(), state.into()];
                self.queue.of(labels).set(count(pods));
            }
        }
    }
}

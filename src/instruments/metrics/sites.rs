//! Metrics of sites, of the WAN links to them, and of their scores, from one snapshot. Labels use the configured site names.

use edgeward_decision::model::cost_map::watts;
use edgeward_decision::model::link::{Link, LinkState};
use edgeward_decision::model::slo::Class;
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_kube::units::Moment;

use crate::instruments::metrics::{Metrics, count};

impl Metrics {
    /// Replaces the metrics of all sites by those of this snapshot as of `now`. Cost: one pass over all nodes.
    pub(super) fn show_sites(&self, snapshot: &Snapshot, now: Moment) {
        for gauges in [&self.site_nodes, &self.queue, &self.wan_state] {
            gauges.clear();
        }
        for gauges in [&self.site_free_memory, &self.closed, &self.refused] {
            gauges.clear();
        }
        for gauges in [
            &self.site_free_cpu,
            &self.wan_rtt,
            &self.wan_loss,
            &self.wan_rtt_p95,
            &self.wan_jitter,
            &self.network_watts,
            &self.report_age,
        ] {
            gauges.clear();
        }
        for gauges in [&self.wan_bandwidth, &self.profile_score] {
            gauges.clear();
        }
        self.profile_preferred.clear();
        for site in &snapshot.sites {
            self.show_site(site);
            if let Some(link) = site.link {
                self.show_link(site.name(), link);
            }
            if let Some(report) = &site.report {
                let age = now.since(report.as_of).as_millis_f64() / 1_000.0;
                self.report_age.at([site.name()]).set(age);
            }
            if let Some(power) = snapshot.network_microwatts(site) {
                self.network_watts.at([site.name()]).set(watts(power));
            }
        }
        for (name, profile) in &*snapshot.profiles {
            for site in profile.sites.keys() {
                // The score of pods that miss no optional trait.
                if let Some(score) = profile.score(site, now) {
                    self.profile_score.at([&**name, &**site]).set(score.as_f64());
                }
            }
            if let Some(site) = &profile.preferred {
                self.profile_preferred.at([&**name, &**site]).set(1);
            }
        }
    }

    fn show_site(&self, site: &Site) {
        let name = site.name();
        let free_cpu = site.uncharged(|amounts| amounts.cpu.0) as f64 / 1_000.0;
        let free_memory = site.uncharged(|amounts| amounts.memory.0);
        let refused: u64 = site.full.iter().map(|full| full.pods).sum();
        self.site_free_cpu.at([name]).set(free_cpu);
        self.site_free_memory.at([name]).set(free_memory);
        self.closed.at([name]).set(count(site.closed.iter().count()));
        self.refused.at([name]).set(count(refused));
        let usable = site.usable_nodes().count();
        let unusable = site.nodes.len() - usable;
        for (direction, bandwidth) in [("up", site.uplink), ("down", site.downlink)] {
            if let Some(bandwidth) = bandwidth {
                self.wan_bandwidth.at([name, direction]).set(bandwidth.0 as f64);
            }
        }
        self.site_nodes.at([name, "true"]).set(count(usable));
        self.site_nodes.at([name, "false"]).set(count(unusable));
        if !site.foreign.is_empty() {
            self.site_nodes.at([name, "foreign"]).set(count(site.foreign.len()));
        }
        for class in Class::ALL {
            let of_class = site.queues.iter().filter(|group| group.class == class);
            let waiting: u64 = of_class.map(|group| group.waiting).sum();
            self.queue.at([name, class.as_str()]).set(count(waiting));
        }
    }

    fn show_link(&self, site: &str, link: Link) {
        for state in LinkState::ALL {
            let labels = [site, state.as_str()];
            self.wan_state.at(labels).set((state == link.state).into());
        }
        if let Some(rtt) = link.rtt {
            self.wan_rtt.at([site]).set(rtt.as_millis_f64() / 1_000.0);
        }
        if let Some(loss) = link.loss {
            self.wan_loss.at([site]).set(f64::from(loss.0) / 1_000.0);
        }
        if let Some(rtt) = link.rtt_p95 {
            self.wan_rtt_p95.at([site]).set(rtt.as_millis_f64() / 1_000.0);
        }
        if let Some(jitter) = link.jitter {
            self.wan_jitter.at([site]).set(jitter.as_millis_f64() / 1_000.0);
        }
    }
}

//! What becomes of the configuration. Its faults are named as in the log.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Description, Kind, Reload, ResultLabel, register};

/// How many places a faulty configuration adds to the series, whatever it holds.
const FAULT_PATHS: usize = 32;

pub(super) const INFO: Description = Description {
    name: "edgeward_config_info",
    kind: Kind::Gauge,
    labels: &["version"],
    help: "Always 1; the version, a hash of its content, of the configuration in use (absent while it is the default)",
};
pub(super) const RELOADS: Description = Description {
    name: "edgeward_config_reloads_total",
    kind: Kind::Counter,
    labels: &["result"],
    help: "Versions of the configuration seen, by what became of them (anything but loaded keeps the old one)",
};
pub(super) const FAULTS: Description = Description {
    name: "edgeward_config_faults",
    kind: Kind::Gauge,
    labels: &["path"],
    help: "Faults of the newest version of the configuration, by place; none while it is in use, but `domain` while pods carry the gate of another domain",
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabel {
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabel {
    path: String,
}

/// The place of the fault that only pods show.
const DOMAIN: &str = "domain";

/// The metrics of the configuration.
#[derive(Debug)]
pub struct ConfigurationMetrics {
    info: Family<VersionLabel, Gauge>,
    reloads: Family<ResultLabel, Counter>,
    faults: Family<PathLabel, Gauge>,
    /// Whether pods carry the gate of another domain, whatever becomes of versions.
    other_domains: AtomicBool,
}

impl ConfigurationMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            info: register(registry, &INFO, Family::default()),
            reloads: register(registry, &RELOADS, Family::default()),
            faults: register(registry, &FAULTS, Family::default()),
            other_domains: AtomicBool::default(),
        };
        for result in Reload::ALL.map(Reload::as_str) {
            drop(metrics.reloads.get_or_create(&ResultLabel { result }));
        }
        metrics
    }

    /// A version was seen.
    pub fn reload(&self, result: Reload) {
        let result = result.as_str();
        self.reloads.get_or_create(&ResultLabel { result }).inc();
    }

    /// This version is in use.
    pub fn version(&self, version: u64) {
        self.info.clear();
        let version = format!("{version:016x}");
        self.info.get_or_create(&VersionLabel { version }).set(1);
    }

    /// Where the faults of the newest version are; empty when it is in use. The first 32 places are told apart, those of
    /// the rest are `...`.
    pub fn faults<'p>(&self, paths: impl Iterator<Item = &'p str>) {
        self.faults.clear();
        let mut told = HashSet::new();
        let of_pods = self.other_domains.load(Ordering::Relaxed).then_some(DOMAIN);
        for path in paths.chain(of_pods) {
            let is_told = told.len() < FAULT_PATHS || told.contains(path);
            let path = if is_told { path } else { "..." };
            told.insert(path);
            let path = path.to_owned();
            self.faults.get_or_create(&PathLabel { path }).inc();
        }
    }

    /// Whether pods carry the gate of another domain than that in use.
    pub fn other_domains(&self, some: bool) {
        if self.other_domains.swap(some, Ordering::Relaxed) != some {
            let path = DOMAIN.to_owned();
            let faults = self.faults.get_or_create(&PathLabel { path: path.clone() });
            let left = if some { faults.inc() + 1 } else { faults.dec() - 1 };
            drop(faults);
            if left == 0 {
                self.faults.remove(&PathLabel { path });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::instruments::metrics::Metrics;

    use super::*;

    #[test]
    fn faults_are_named_until_they_are_repaired_and_never_without_bound() {
        let metrics = Metrics::new();
        let faults = || -> Vec<String> {
            let page = metrics.encode();
            let lines = page
                .lines()
                .filter_map(|line| line.strip_prefix("edgeward_config_faults{path="));
            lines.map(str::to_owned).collect()
        };
        metrics
            .configuration()
            .faults(["sites", "explain", "sites"].into_iter());
        let mut found = faults();
        found.sort();
        assert_eq!(found, ["\"explain\"} 1", "\"sites\"} 2"]);
        let paths: Vec<String> = (0..100).map(|i| format!("key{i}")).collect();
        metrics.configuration().faults(paths.iter().map(String::as_str));
        assert_eq!(faults().len(), FAULT_PATHS + 1);
        assert!(faults().contains(&"\"...\"} 68".to_owned()));
        metrics.configuration().faults(std::iter::empty());
        assert!(faults().is_empty());

        // What only pods show stays, whatever becomes of versions.
        metrics.configuration().other_domains(true);
        metrics.configuration().other_domains(true);
        assert_eq!(faults(), ["\"domain\"} 1"]);
        metrics.configuration().faults(["domain"].into_iter());
        assert_eq!(faults(), ["\"domain\"} 2"]);
        metrics.configuration().faults(std::iter::empty());
        assert_eq!(faults(), ["\"domain\"} 1"]);
        metrics.configuration().other_domains(false);
        assert!(faults().is_empty());
    }
}

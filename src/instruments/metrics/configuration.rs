//! What becomes of the configuration. Its faults are named as in the log.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::Reload;
use crate::instruments::metrics::declaration::{Counters, Gauges, metrics};

/// How many places a faulty configuration adds to the series, whatever it holds.
const FAULT_PATHS: usize = 32;

metrics! {
    pub(super) struct VersionMetrics {
        info: Gauges<1> = "edgeward_config_info" ["version"]
            "Always 1; the version, a hash of its content, of the configuration in use (absent while it is the default)";
    }
}

metrics! {
    pub(super) struct ReloadMetrics {
        reloads: Counters<1> = "edgeward_config_reloads_total" ["result"]
            "Versions of the configuration seen, by what became of them (anything but loaded keeps the old one)";
    }
}

metrics! {
    pub(super) struct FaultMetrics {
        faults: Gauges<1> = "edgeward_config_faults" ["path"]
            "Faults of the newest version of the configuration, by place; none while it is in use";
    }
}

metrics! {
    pub(super) struct GateMetrics {
        others: Gauge = "edgeward_gates_of_another_domain" []
            "Whether pods carry a gate like ours of another domain (1): nobody releases them, unless another edgeward has that domain";
    }
}

/// The metrics of the configuration.
#[derive(Debug)]
pub struct ConfigurationMetrics {
    reloads: ReloadMetrics,
    gates: GateMetrics,
    known: Mutex<Known>,
}

/// What is shown when it is asked for.
#[derive(Debug, Default)]
struct Known {
    /// The version in use.
    version: Option<u64>,
    /// Where the faults of the newest version are.
    faults: Vec<String>,
}

impl ConfigurationMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let reloads = ReloadMetrics::new(registry);
        for result in Reload::ALL {
            reloads.reloads.of([result.as_str().into()]);
        }
        let gates = GateMetrics::new(registry);
        let known = Mutex::default();
        Self { reloads, gates, known }
    }

    /// A version was seen.
    pub fn reload(&self, result: Reload) {
        self.reloads.reloads.of([result.as_str().into()]).inc();
    }

    /// This version is in use.
    pub fn version(&self, version: u64) {
        self.known().version = Some(version);
    }

    /// Where the faults of the newest version are; empty when it is in use. The first 32 places are told apart, those of
    /// the rest are `...`.
    pub fn faults<'p>(&self, paths: impl Iterator<Item = &'p str>) {
        self.known().faults = paths.map(str::to_owned).collect();
    }

    /// Whether pods carry the gate of another domain than that in use.
    pub fn other_domains(&self, some: bool) {
        self.gates.others.set(some.into());
    }

    /// Registers what is known now.
    pub(super) fn show(&self, registry: &mut Registry) {
        let (versions, of_paths) = (VersionMetrics::new(registry), FaultMetrics::new(registry));
        let known = self.known();
        if let Some(version) = known.version {
            versions.info.of([format!("{version:016x}").into()]).set(1);
        }
        let mut told = HashSet::new();
        for path in known.faults.iter().map(String::as_str) {
            let is_told = told.len() < FAULT_PATHS || told.contains(path);
            let path = if is_told { path } else { "..." };
            told.insert(path);
            of_paths.faults.of([path.to_owned().into()]).inc();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
        metrics.configuration.faults(["sites", "explain", "sites"].into_iter());
        let mut found = faults();
        found.sort();
        assert_eq!(found, ["\"explain\"} 1", "\"sites\"} 2"]);
        let paths: Vec<String> = (0..100).map(|i| format!("key{i}")).collect();
        metrics.configuration.faults(paths.iter().map(String::as_str));
        assert_eq!(faults().len(), FAULT_PATHS + 1);
        assert!(faults().contains(&"\"...\"} 68".to_owned()));
        metrics.configuration.faults(std::iter::empty());
        assert!(faults().is_empty());
    }
}

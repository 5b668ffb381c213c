//! Metrics of the configuration.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Counters, Gauges, Reload, register};

/// How many series the faults of a configuration make at most.
const FAULTS: usize = 32;

/// The metrics of the configuration.
#[derive(Debug)]
pub struct ConfigurationMetrics {
    info: Gauges<1>,
    reloads: Counters<1>,
    faults: Gauges<1>,
}

impl ConfigurationMetrics {
    pub(super) fn new(to: &mut Registry) -> Self {
        let metrics = Self {
            info: register(
                to,
                "edgeward_config_info",
                "Always 1; the version of the configuration in use",
            ),
            reloads: register(to, "edgeward_config_reloads", "Versions of the configuration seen"),
            faults: register(
                to,
                "edgeward_config_faults",
                "Faults of the newest version of the configuration",
            ),
        };
        for result in Reload::ALL {
            metrics.reloads(result);
        }
        metrics
    }

    /// Counts a version that was seen.
    pub fn reload(&self, result: Reload) {
        self.reloads(result).inc();
    }

    fn reloads(&self, result: Reload) -> Counter {
        self.reloads.get_or_create_owned(&[("result", result.as_str().into())])
    }

    /// Names the version in use, a hash of its content.
    pub fn version(&self, version: u64) {
        self.info.clear();
        let version = format!("{version:016x}").into();
        self.info.get_or_create(&[("version", version)]).set(1);
    }

    /// Shows where the first faults of the newest version are; none while it is in use.
    pub fn faults<'p>(&self, paths: impl Iterator<Item = &'p str>) {
        self.faults.clear();
        for path in paths.take(FAULTS) {
            self.faults.get_or_create(&[("path", path.to_owned().into())]).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::instruments::metrics::Metrics;

    use super::*;

    #[test]
    fn faults_are_shown_until_repaired_and_bounded() {
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
        assert_eq!(faults().len(), FAULTS);
        metrics.configuration.faults(std::iter::empty());
        assert!(faults().is_empty());
    }
}

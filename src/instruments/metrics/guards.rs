//! Metrics of what becomes of pods after their creation.

use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Gauges, count, register};

/// The metrics of the backstop.
#[derive(Debug)]
pub struct GuardMetrics {
    found: Gauges<1>,
}

/// How many pods the backstop finds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Decided and Unschedulable, while another site would take them.
    pub misplaced: usize,
    /// Undecided and Unschedulable, while another site would take them.
    pub undecided: usize,
    /// Bound without a decision.
    pub bound: usize,
}

impl GuardMetrics {
    pub(super) fn new(to: &mut Registry) -> Self {
        let metrics = Self {
            found: register(to, "edgeward_backstop_pods", "Pods that the backstop finds"),
        };
        metrics.found(Found::default());
        metrics
    }

    /// Shows how many pods are found now.
    pub fn found(&self, found: Found) {
        let values = [
            ("misplaced", found.misplaced),
            ("undecided", found.undecided),
            ("bound", found.bound),
        ];
        for (finding, pods) in values {
            self.found
                .get_or_create(&[("finding", finding.into())])
                .set(count(pods));
        }
    }
}

//! Exact sums of the requests of pods.

use std::collections::BTreeMap;

use edgeward_kube::node::Share;
use edgeward_kube::resources::{Amounts, Apart};
use edgeward_kube::units::{Bytes, Millicores};

/// A sum of requests, to which pods are added and from which they are removed. It is wider than an amount, so no order of
/// additions and removals loses a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RequestSum {
    cpu: i128,
    memory: i128,
    ephemeral_storage: i128,
    scalars: BTreeMap<Box<str>, i128>,
    apart: BTreeMap<Apart, i64>,
    pods: i64,
}

impl RequestSum {
    /// The sum and the number of pods.
    pub(super) fn share(&self) -> Share {
        Share {
            amounts: self.amounts(),
            pods: self.pods(),
        }
    }

    /// Adds a pod, or removes it if `by` is -1.
    pub(super) fn change(&mut self, request: &Amounts, by: i64) {
        let sign = i128::from(by);
        self.cpu += sign * i128::from(request.cpu.0);
        self.memory += sign * i128::from(request.memory.0);
        self.ephemeral_storage += sign * i128::from(request.ephemeral_storage.0);
        for (name, amount) in request.scalars.iter().filter(|(_, amount)| *amount != 0) {
            let sum = self.scalars.entry(name.clone()).or_default();
            *sum += sign * i128::from(*amount);
            if *sum == 0 {
                self.scalars.remove(name);
            }
        }
        for (apart, more) in &request.apart {
            let pods = self.apart.entry(apart.clone()).or_default();
            *pods += by * more;
            if *pods == 0 {
                self.apart.remove(apart);
            }
        }
        self.pods += by;
    }

    pub(super) fn pods(&self) -> i64 {
        self.pods
    }

    /// The sum as amounts, each limited to the largest possible one.
    pub(super) fn amounts(&self) -> Amounts {
        let clamp = |sum: i128| i64::try_from(sum).unwrap_or(i64::MAX);
        Amounts {
            cpu: Millicores(clamp(self.cpu)),
            memory: Bytes(clamp(self.memory)),
            ephemeral_storage: Bytes(clamp(self.ephemeral_storage)),
            scalars: self
                .scalars
                .iter()
                .map(|(name, sum)| (name.clone(), clamp(*sum)))
                .collect(),
            apart: self.apart.iter().map(|(apart, pods)| (apart.clone(), *pods)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturated_request_sum_returns_to_zero_after_removals() {
        let huge = Amounts {
            memory: Bytes(i64::MAX),
            scalars: vec![("example.com/gpu".into(), i64::MAX)],
            ..Amounts::default()
        };
        let mut sum = RequestSum::default();
        sum.change(&huge, 1);
        sum.change(&huge, 1);
        assert_eq!((sum.amounts(), sum.pods()), (huge.clone(), 2));
        sum.change(&huge, -1);
        sum.change(&huge, -1);
        assert_eq!(sum, RequestSum::default());
    }
}

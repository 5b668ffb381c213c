//! Webhook configurations, and policies, that go with the test that created them.

use std::ops::Range;

use crate::prelude::*;

/// The places of the entries of `webhook/base/mutatingwebhookconfiguration.yaml`.
pub const ENTRIES: Range<usize> = 0..3;

pub const ENTRY_OF_PODS: usize = 1;

/// A registered webhook, or another object of the cluster; dropped with the test.
pub struct Registration {
    pub name: String,
    kind: String,
    kubectl: Kubectl,
}

impl Registration {
    /// Creates it. `name` is that of `configuration`.
    pub fn create(name: String, kubectl: &Kubectl, configuration: &Value) -> Result<Self> {
        let kind = configuration["kind"].as_str().context("a configuration has a kind")?;
        let registration = Self {
            name,
            kind: kind.to_lowercase(),
            kubectl: kubectl.clone(),
        };
        registration.kubectl.create(configuration)?;
        Ok(registration)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Err(error) = self.kubectl.run(&["delete", &self.kind, &self.name], "") {
            eprintln!("{error:#}");
        }
    }
}

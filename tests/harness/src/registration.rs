//! Webhook configurations and policies that are removed with their test.

use std::ops::Range;

use crate::prelude::*;

/// Indexes of the entries of `webhook/base/mutatingwebhookconfiguration.yaml`.
pub const ENTRIES: Range<usize> = 0..3;

pub const ENTRY_OF_PODS: usize = 1;

/// A registered webhook, or another cluster object. Dropping it removes the object.
pub struct Registration {
    pub name: String,
    kind: String,
    kubectl: Kubectl,
}

impl Registration {
    /// Creates the object. `name` is the name in `configuration`.
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

/// Restricts the namespaces that a webhook or a policy's binding selects to these.
pub fn only_in(selecting: &mut Value, namespaces: &[&str]) -> Result<()> {
    let expressions = selecting["namespaceSelector"]["matchExpressions"].as_array_mut();
    let only = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces});
    expressions
        .context("it selects no namespaces by expressions")?
        .push(only);
    Ok(())
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Err(error) = self.kubectl.run(&["delete", &self.kind, &self.name], "") {
            eprintln!("{error:#}");
        }
    }
}

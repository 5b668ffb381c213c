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
    pub fn create(kubectl: &Kubectl, object: &Value) -> Result<Self> {
        let text = |field: &Value| field.as_str().map(str::to_owned).context("a kind and a name");
        let registration = Self {
            name: text(&object["metadata"]["name"])?,
            kind: text(&object["kind"])?.to_lowercase(),
            kubectl: kubectl.clone(),
        };
        registration.kubectl.create(object)?;
        Ok(registration)
    }

    /// Creates the policies among these objects with their bindings, under names of the test and for its namespace alone.
    pub fn of_policies(fixture: &Fixture<'_>, objects: Vec<Value>) -> Result<Vec<Self>> {
        let named = |name: &Value| json!(format!("{}-{}", name.as_str().unwrap_or_default(), fixture.namespace));
        let mut registrations = Vec::new();
        for mut object in objects {
            match object["kind"].as_str() {
                Some("ValidatingAdmissionPolicy") => {}
                Some("ValidatingAdmissionPolicyBinding") => {
                    object["spec"]["policyName"] = named(&object["spec"]["policyName"]);
                    only_in(&mut object["spec"]["matchResources"], &[&fixture.namespace])?;
                }
                _ => continue,
            }
            object["metadata"]["name"] = named(&object["metadata"]["name"]);
            registrations.push(Self::create(&fixture.kubectl, &object)?);
        }
        Ok(registrations)
    }
}

/// Restricts the namespaces that a webhook or a policy's binding selects to these.
pub(crate) fn only_in(selecting: &mut Value, namespaces: &[&str]) -> Result<()> {
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

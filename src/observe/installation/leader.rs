//! Who leads, and how many replicas there are to be.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::ListParams;

use crate::observe::connection::Connection;

/// What a Lease says of who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lead {
    /// Who holds it; `None` where it was handed over to nobody.
    pub holder: Option<String>,
    /// When it was renewed last, by the holder's clock.
    pub renewed: Timestamp,
    /// How long it lasts after that.
    pub duration: SignedDuration,
}

impl Lead {
    /// Whether it is held at this time, if the clocks agree.
    pub fn is_held(&self, now: Timestamp) -> bool {
        let age = now.duration_since(self.renewed);
        self.holder.is_some() && !age.is_negative() && age <= self.duration
    }
}

impl Connection {
    /// What the Lease of this name says; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn lead(&self, namespace: &str, name: &str) -> anyhow::Result<Option<Lead>> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), namespace);
        let found = leases.get_opt(name).await;
        let found = found.map_err(|error| self.failure(&format!("cannot get the Lease {namespace}/{name}"), error))?;
        Ok(found.and_then(|found| found.spec).map(|spec| Lead {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            renewed: spec.renew_time.map_or(Timestamp::UNIX_EPOCH, |at| at.0),
            duration: SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into()),
        }))
    }

    /// How many replicas a Deployment is to have; `None` if there is none of this name.
    ///
    /// # Errors
    /// Deployments cannot be listed.
    pub async fn wanted_replicas(&self, namespace: &str, deployment: &str) -> anyhow::Result<Option<i32>> {
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), namespace);
        let of_name = ListParams::default().fields(&format!("metadata.name={deployment}"));
        let list = deployments.list(&of_name).await;
        let list = list.map_err(|error| self.failure(&format!("cannot list deployments of {namespace}"), error))?;
        let spec = list.items.into_iter().find_map(|found| found.spec);
        Ok(spec.map(|spec| spec.replicas.unwrap_or(1)))
    }

    /// Whether there is such a ServiceAccount.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn has_account(&self, namespace: &str, name: &str) -> anyhow::Result<bool> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
        let found = accounts.get_metadata_opt(name).await;
        let found =
            found.map_err(|error| self.failure(&format!("cannot get the ServiceAccount {namespace}/{name}"), error))?;
        Ok(found.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_for_as_long_as_it_says() {
        let renewed: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let lead = Lead {
            holder: Some("edgeward-0".into()),
            renewed,
            duration: SignedDuration::from_secs(15),
        };
        let held = |lead: &Lead, seconds| lead.is_held(renewed + SignedDuration::from_secs(seconds));
        assert!(held(&lead, 0) && held(&lead, 15));
        assert!(!held(&lead, 16) && !held(&lead, -1));
        let nobodys = Lead { holder: None, ..lead };
        assert!(!held(&nobodys, 0));
    }
}

//! Watches DeviceClasses where the API server serves them. They name the extended resources that kube-scheduler
//! converts to claims.

use std::sync::Arc;

use edgeward_cluster::engine::Change;
use serde_json::Value;

use crate::instruments::metrics::Metrics;
use crate::watch::Cluster;
use crate::watch::objects::Seen;
use crate::watch::raw::{Gvr, Raw};

impl Cluster {
    /// Sends the extended resources that DeviceClasses serve. Never returns. If they may not be read, the known ones
    /// stay. Calls `known` after each answer.
    pub async fn follow_device_classes(self, metrics: Arc<Metrics>, known: impl Fn()) {
        let read = |object: &Raw| Some(served(object));
        let change = |seen: &Seen<_>| Some(Change::ByClaim(seen.all()?.values().flatten().cloned().collect()));
        self.follow_optional(Gvr::DEVICE_CLASSES, &metrics, read, change, known)
            .await;
    }
}

/// The extended resource that a class serves, if it names one.
pub(crate) fn served(object: &Raw) -> Option<Box<str>> {
    let class: Value = serde_json::from_str(object.json()).ok()?;
    Some(class["spec"]["extendedResourceName"].as_str()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_class_serves_its_extended_resource_name() {
        let read = |spec: &str| {
            let json = format!(r#"{{"metadata": {{"name": "gpu"}}, "spec": {spec}}}"#);
            served(&Raw::from_json(json.into()).unwrap())
        };
        let named = read(r#"{"extendedResourceName": "example.com/gpu", "selectors": []}"#);
        assert_eq!(named.as_deref(), Some("example.com/gpu"));
        assert_eq!(read("{}"), None);
    }
}

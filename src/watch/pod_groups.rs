//! Watches PodGroups where the API server serves them and edgeward may read them. They say how many pods of a gang start
//! together.

use std::sync::Arc;

use edgeward_cluster::engine::Change;
use edgeward_decision::model::group::{COSCHEDULING_API, KUBERNETES_API};
use edgeward_decision::model::snapshot::ByNamespace;
use serde_json::Value;

use crate::instruments::metrics::Metrics;
use crate::watch::Cluster;
use crate::watch::objects::{Seen, Standing};
use crate::watch::raw::{Gvr, Raw};

impl Cluster {
    /// Sends the sizes of PodGroups of one API. Never returns. Calls `known` once it is known whether there are any, and after
    /// each change.
    pub async fn follow_pod_groups(self, api: PodGroupApi, metrics: Arc<Metrics>, known: impl Fn()) {
        let (name, kind) = match api {
            PodGroupApi::Kubernetes => (KUBERNETES_API, Gvr::POD_GROUPS),
            PodGroupApi::Coscheduling => (COSCHEDULING_API, Gvr::COSCHEDULING_POD_GROUPS),
        };
        let change = |seen: &Seen<_>| Some(Change::PodGroups(name, sizes(seen)));
        self.follow_optional(kind, &metrics, size, change, known).await;
    }
}

/// An API with a kind PodGroup.
#[derive(Debug, Clone, Copy)]
pub enum PodGroupApi {
    /// `scheduling.k8s.io`, alpha in Kubernetes 1.36.
    Kubernetes,
    /// `scheduling.x-k8s.io`, of the scheduler-plugins.
    Coscheduling,
}

/// The sizes by namespace and name; `None` if they are not known.
fn sizes(seen: &Seen<u32>) -> Option<Arc<ByNamespace<u32>>> {
    let mut sizes = ByNamespace::default();
    for ((namespace, name), size) in &seen.objects {
        sizes.entry(namespace, name).insert_entry(*size);
    }
    (seen.standing == Standing::Listed).then(|| Arc::new(sizes))
}

/// The number of pods of a gang that start together: `schedulingPolicy.gang.minCount` of Kubernetes, or `minMember` of
/// coscheduling. 1 if the group states none.
fn size(object: &Raw) -> Option<u32> {
    let group: Value = serde_json::from_str(object.json()).ok()?;
    let spec = &group["spec"];
    let stated = [&spec["schedulingPolicy"]["gang"]["minCount"], &spec["minMember"]];
    let size = stated.into_iter().find_map(Value::as_u64).unwrap_or(1);
    u32::try_from(size).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_of_each_kind_is_read() {
        let size = |spec: &str| {
            let json = format!(r#"{{"metadata": {{"name": "g"}}, "spec": {spec}}}"#);
            size(&Raw::from_json(json.into()).unwrap())
        };
        assert_eq!(size(r#"{"schedulingPolicy": {"gang": {"minCount": 4}}}"#), Some(4));
        assert_eq!(size(r#"{"schedulingPolicy": {"basic": {}}}"#), Some(1));
        assert_eq!(size(r#"{"minMember": 3}"#), Some(3));
    }
}

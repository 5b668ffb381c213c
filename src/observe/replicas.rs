//! How many replicas of us are ready, by the EndpointSlices of our own Service.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};

use super::watch::{Cluster, begin_anew, is_gone, open_seconds, pauses};
use super::{Change, Changes};

impl Cluster {
    /// Watches the EndpointSlices of a Service and tells how many of its endpoints are ready, for ever. Without such a
    /// Service, or the right to see it, nothing is told.
    pub async fn watch_replicas(&self, namespace: &str, service: &str, changes: &Changes) {
        let config = Config::default()
            .timeout(open_seconds())
            .labels(&format!("kubernetes.io/service-name={service}"));
        let slices = Api::<EndpointSlice>::namespaced(self.client(), namespace);
        let watch = || watcher(slices.clone(), config.clone()).backoff(pauses()).boxed();
        let mut events = watch();
        let (mut known, mut listed) = (HashMap::new(), HashMap::new());
        let mut told = None;
        let mut has_failed = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed = HashMap::new(),
                Ok(Event::InitApply(slice)) => drop(listed.insert(name(&slice), slice)),
                Ok(Event::InitDone) => known = std::mem::take(&mut listed),
                Ok(Event::Apply(slice)) => drop(known.insert(name(&slice), slice)),
                Ok(Event::Delete(slice)) => drop(known.remove(&name(&slice))),
                Err(error) => {
                    if is_gone(&error) {
                        begin_anew().await;
                        events = watch();
                    }
                    // Once: outside of a cluster there may be no such right, and it is tried again all the time.
                    if !std::mem::replace(&mut has_failed, true) {
                        let error = format!("{:#}", anyhow::Error::from(error));
                        tracing::warn!(
                            namespace,
                            service,
                            error,
                            "replicas cannot be counted; the last number stays"
                        );
                    }
                    continue;
                }
            }
            has_failed = false;
            let ready = count(known.values());
            if told.replace(ready) != Some(ready) {
                tracing::info!(ready, "replicas");
                changes.send(Change::Replicas(ready)).await;
            }
        }
    }
}

/// How many endpoints are ready. An endpoint may be in two slices while it moves, and is in one of each address family.
fn count<'s>(slices: impl Iterator<Item = &'s EndpointSlice>) -> u32 {
    let mut families = BTreeMap::<&str, BTreeSet<String>>::new();
    for slice in slices {
        let family = families.entry(&slice.address_type).or_default();
        family.extend(ready_endpoints(slice));
    }
    let most = families.values().map(BTreeSet::len).max().unwrap_or(0);
    u32::try_from(most).unwrap_or(u32::MAX)
}

fn name(slice: &EndpointSlice) -> String {
    slice.metadata.name.clone().unwrap_or_default()
}

/// The first addresses of the endpoints that take requests; one whose condition is not known does.
fn ready_endpoints(slice: &EndpointSlice) -> Vec<String> {
    let ready = slice.endpoints.iter().filter(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready).unwrap_or(true)
    });
    ready
        .filter_map(|endpoint| endpoint.addresses.first().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_count_when_they_take_requests() {
        let slice = json!({
            "addressType": "IPv4",
            "metadata": {"name": "a"},
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true, "terminating": true}},
                {"addresses": ["10.0.0.3"]},
                {"addresses": ["10.0.0.4"], "conditions": {}},
            ],
        });
        let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
        assert_eq!(ready_endpoints(&slice), ["10.0.0.1", "10.0.0.3", "10.0.0.4"]);
        // The same pods once more, by their other addresses.
        let mut other = slice.clone();
        other.address_type = "IPv6".into();
        for (i, endpoint) in other.endpoints.iter_mut().enumerate() {
            endpoint.addresses = vec![format!("fd00::{i}")];
        }
        assert_eq!(count([&slice, &other, &slice].into_iter()), 3);
    }
}

//! An object as the API server sent it: what the watch itself needs, and the JSON text for the readers of the core.

use std::borrow::Cow;
use std::fmt::Debug;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object of kind `K`, unread. Its metadata is name, namespace, uid, resource version and time of creation only: the rest would be most
/// of the work and memory of a watch, for nothing.
#[derive(Clone)]
pub(crate) struct Raw<K> {
    metadata: ObjectMeta,
    json: Box<str>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Raw<K> {
    /// The object's JSON text.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }

    /// The object of this JSON text.
    ///
    /// # Errors
    /// It has no metadata.
    pub(crate) fn from_json(json: Box<str>) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            name: Option<String>,
            namespace: Option<String>,
            uid: Option<String>,
            resource_version: Option<String>,
            creation_timestamp: Option<String>,
        }
        let Object { metadata } = serde_json::from_str(&json)?;
        let created = metadata.creation_timestamp.and_then(|at| at.parse().ok());
        Ok(Self {
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                creation_timestamp: created.map(Time),
                ..ObjectMeta::default()
            },
            json,
            kind: PhantomData,
        })
    }
}

/// Lists these objects in pages, each of which is in memory as a whole.
///
/// # Errors
/// The API server cannot be reached or does not allow it.
pub(crate) async fn list<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    mut params: ListParams,
    mut each: impl FnMut(K),
) -> kube::Result<()> {
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut each);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

impl<K> Debug for Raw<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raw")
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

impl<'de, K> Deserialize<'de> for Raw<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(json.into()).map_err(de::Error::custom)
    }
}

impl<K: Resource> Resource for Raw<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::WatchEvent;

    use super::*;

    #[test]
    fn an_event_keeps_the_text_of_its_object() {
        let line = r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"7","managedFields":[{}]},"spec":{"x":1}}}"#;
        let WatchEvent::Added(object) = serde_json::from_str::<WatchEvent<Raw<Pod>>>(line).unwrap() else {
            panic!("another event");
        };
        assert_eq!(object.meta().name.as_deref(), Some("a"));
        assert_eq!(object.meta().resource_version.as_deref(), Some("7"));
        assert!(object.json().contains(r#""spec":{"x":1}"#), "{}", object.json());
    }
}

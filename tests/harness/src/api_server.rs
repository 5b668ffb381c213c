//! A client of the API server that keeps its connections open. Tests use it for objects that they read or create often. A
//! kubectl process for each would take more CPU than everything under test.

use std::sync::{Mutex, PoisonError};

use http::Request;
use kube::api::{DynamicObject, GetParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, Resource as _};
use kube::discovery::{Discovery, Scope};
use kube::{Client, Config};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use crate::prelude::*;

/// A client with cluster administrator rights. It connects on first use.
pub(crate) struct ApiServer {
    runtime: Handle,
    kubeconfig: Kubeconfig,
    client: OnceCell<Client>,
    /// The served kinds, as of the last time an unknown kind was requested.
    kinds: Mutex<Arc<Vec<(ApiResource, Scope)>>>,
}

impl ApiServer {
    pub(crate) fn new(runtime: Handle, kubeconfig: &Path) -> Result<Self> {
        Ok(Self {
            runtime,
            kubeconfig: Kubeconfig::read_from(kubeconfig)?,
            client: OnceCell::new(),
            kinds: Mutex::default(),
        })
    }

    /// `kind` is singular or plural, optionally with its group, as in kubectl: `pod`, `events.events.k8s.io`.
    pub(crate) fn get(&self, namespace: &str, kind: &str, name: &str) -> Result<Value> {
        let resource = self.kind(|resource| is_called(resource, kind), kind)?;
        self.send(resource.at(namespace).get(name, &GetParams::default())?)
    }

    pub(crate) fn list(&self, namespace: &str, kind: &str, selector: &str) -> Result<Vec<Value>> {
        let resource = self.kind(|resource| is_called(resource, kind), kind)?;
        let params = ListParams::default().labels(selector);
        match self.send(resource.at(namespace).list(&params)?)?["items"].take() {
            Value::Array(items) => Ok(items),
            other => anyhow::bail!("{kind}: no items in {other}"),
        }
    }

    /// Returns the stored object. On a dry run, returns the object that would be stored.
    pub(crate) fn create(&self, namespace: &str, object: &Value, dry_run: bool) -> Result<Value> {
        let text = |field: &str| {
            object[field]
                .as_str()
                .with_context(|| format!("no {field} in {object}"))
        };
        let (version, kind) = (text("apiVersion")?, text("kind")?);
        let resource = self.kind(|known| known.api_version == version && known.kind == kind, kind)?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
        let params = PostParams {
            dry_run,
            field_manager: Some("e2e".to_owned()),
        };
        let mut request = resource
            .at(namespace)
            .create(&params, object.to_string().into_bytes())?;
        // As in kubectl, an unknown field is an error.
        let uri = format!("{}&fieldValidation=Strict", request.uri());
        *request.uri_mut() = uri.parse()?;
        self.send(request)
    }

    fn send(&self, request: Request<Vec<u8>>) -> Result<Value> {
        self.runtime
            .block_on(async { Ok(self.client().await?.request(request).await?) })
    }

    async fn client(&self) -> Result<&Client> {
        let connect = async || {
            let config = Config::from_custom_kubeconfig(self.kubeconfig.clone(), &KubeConfigOptions::default()).await?;
            anyhow::Ok(Client::try_from(config)?)
        };
        self.client.get_or_try_init(connect).await
    }

    /// The first kind that matches. Custom resources come and go, so discovery is repeated if none matches.
    fn kind(&self, is_it: impl Fn(&ApiResource) -> bool, name: &str) -> Result<Kind> {
        let find = |kinds: &[(ApiResource, Scope)]| {
            let found = kinds.iter().find(|(resource, _)| is_it(resource));
            found.map(|(resource, scope)| Kind(resource.clone(), scope.clone()))
        };
        let known = Arc::clone(&self.kinds.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(kind) = find(&known) {
            return Ok(kind);
        }
        let served = Arc::new(self.runtime.block_on(self.served())?);
        let found = find(&served).with_context(|| format!("the API server does not serve {name}"));
        *self.kinds.lock().unwrap_or_else(PoisonError::into_inner) = served;
        found
    }

    async fn served(&self) -> Result<Vec<(ApiResource, Scope)>> {
        let discovery = Discovery::new(self.client().await?.clone()).run_aggregated().await?;
        let groups = discovery.groups_alphabetical().into_iter();
        let resources = groups.flat_map(|group| group.recommended_resources());
        Ok(resources
            .map(|(resource, capabilities)| (resource, capabilities.scope))
            .collect())
    }
}

struct Kind(ApiResource, Scope);

impl Kind {
    fn at(&self, namespace: &str) -> kube::core::Request {
        let namespace = (self.1 == Scope::Namespaced).then_some(namespace);
        kube::core::Request::new(DynamicObject::url_path(&self.0, namespace))
    }
}

fn is_called(resource: &ApiResource, name: &str) -> bool {
    let (name, group) = name
        .split_once('.')
        .map_or((name, None), |(name, group)| (name, Some(group)));
    let is_named = resource.plural == name || resource.kind.to_lowercase() == name;
    is_named && group.is_none_or(|group| resource.group == group)
}

//! A connection to an API server for single requests, not for watches.

use std::fmt::Debug;

use anyhow::Context as _;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::platform::clock::Clock;
use crate::watch::kubeconfig::client_config;
use crate::watch::objects::is_installed;
use crate::watch::raw::{Gvr, Raw};

/// Page size of lists. A page is held in memory.
const PAGE: u32 = 100;

/// A client, the clock of the command, and the name of the cluster in errors.
#[derive(Clone)]
pub struct Connection {
    /// Client of the cluster.
    pub client: Client,
    /// Clock that was started with the command.
    pub clock: Clock,
    /// URL and context, for error messages.
    pub name: String,
}

impl Connection {
    /// Creates a connection to the cluster of a kubeconfig context. Without a context it uses the current one, or
    /// else the cluster of the pod that runs this. Does not connect yet.
    ///
    /// # Errors
    /// There is no such configuration, or it cannot be used.
    pub async fn open(context: Option<&str>) -> anyhow::Result<Self> {
        let (config, context) = client_config(context)?;
        let url = config.cluster_url.to_string();
        let name = match context {
            Some(context) => format!("{url} (context {context})"),
            None => url,
        };
        let client = Client::try_from(config).with_context(|| name.clone())?;
        Ok(Self::to(client, name))
    }

    /// Wraps a client under this name.
    pub(crate) fn to(client: Client, name: String) -> Self {
        let clock = Clock::start();
        Self { client, clock, name }
    }

    /// Reads an object; `None` if it does not exist.
    ///
    /// # Errors
    /// The object cannot be read.
    pub async fn get<K>(&self, namespace: &str, name: &str) -> anyhow::Result<Option<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.get_from(Api::namespaced(self.client.clone(), namespace), name)
            .await
    }

    /// Reads an object of this API; `None` if it does not exist.
    ///
    /// # Errors
    /// The object cannot be read.
    pub async fn get_from<K: Resource + Clone + Debug + DeserializeOwned>(
        &self,
        api: Api<K>,
        name: &str,
    ) -> anyhow::Result<Option<K>> {
        let found = api.get_opt(name).await;
        found.map_err(|error| self.failure(&format!("cannot get {}/{name}", api.resource_url()), error))
    }

    /// Whether the API server serves a kind.
    ///
    /// # Errors
    /// The API server cannot be reached.
    pub(crate) async fn serves(&self, kind: Gvr) -> anyhow::Result<bool> {
        let is_installed = is_installed(kind, &self.client).await;
        is_installed.map_err(|error| self.failure(&format!("cannot list {}", kind.plural), error))
    }

    /// Lists all objects of a kind and converts each with `read`.
    ///
    /// # Errors
    /// The API server cannot be reached or refuses the list.
    pub(super) async fn all<T>(&self, kind: Gvr, read: impl Fn(&Raw) -> Option<T>) -> anyhow::Result<Vec<T>> {
        let all = kind.all(&self.client);
        self.list(&all, ListParams::default(), |object| read(&object)).await
    }

    /// Lists all objects of a kind and converts each with `read`; `None` if the CRD is not installed.
    ///
    /// # Errors
    /// The API server cannot be reached or refuses the list.
    pub(super) async fn installed<T, C: FromIterator<T>>(
        &self,
        kind: Gvr,
        read: impl Fn(&Raw) -> Option<T>,
    ) -> anyhow::Result<Option<C>> {
        if !self.serves(kind).await? {
            return Ok(None);
        }
        Ok(Some(self.all(kind, read).await?.into_iter().collect()))
    }

    /// Lists the selected objects in pages and converts each with `read`. A whole page is held in memory.
    ///
    /// # Errors
    /// The objects cannot be listed.
    pub async fn list<K: Resource + Clone + Debug + DeserializeOwned, T>(
        &self,
        api: &Api<K>,
        mut which: ListParams,
        mut read: impl FnMut(K) -> Option<T>,
    ) -> anyhow::Result<Vec<T>> {
        which.limit.get_or_insert(PAGE);
        let (_, kind) = api.resource_url().rsplit_once('/').unwrap_or_default();
        let mut found = Vec::new();
        loop {
            let page = api.list(&which).await;
            let page = page.map_err(|error| self.failure(&format!("cannot list {kind}"), error))?;
            found.extend(page.items.into_iter().filter_map(&mut read));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => which = which.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Converts a client error. Adds the cluster's name and the attempted action to the API server's message or the
    /// connection error.
    pub(crate) fn failure(&self, doing: &str, error: kube::Error) -> anyhow::Error {
        match error {
            kube::Error::Api(status) => anyhow::anyhow!("{}: {doing}: {}", self.name, status.message),
            error => anyhow::Error::from(error).context(format!("{}: {doing}", self.name)),
        }
    }
}

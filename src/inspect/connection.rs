//! A connection to an API server for one question and its answer, not for watches.

use std::fmt::Debug;

use anyhow::Context as _;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::platform::clock::Clock;
use crate::sources::kubeconfig::client_config;

/// A client, the clock of the command, and the words by which errors name the cluster.
#[derive(Clone)]
pub struct Connection {
    pub(super) client: Client,
    /// Started with the command.
    pub clock: Clock,
    name: String,
}

impl Connection {
    /// To the cluster of a context of the kubeconfig; without one of the current context, else of the pod that we run in.
    /// Does not connect yet.
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

    /// To the cluster of a client, under this name.
    pub(super) fn to(client: Client, name: String) -> Self {
        let clock = Clock::start();
        Self { client, clock, name }
    }

    /// URL and context, as errors name them.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client of this cluster.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The namespace of the context.
    pub fn default_namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// An object; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn get<K>(&self, namespace: &str, name: &str) -> anyhow::Result<Option<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let found = Api::namespaced(self.client(), namespace).get_opt(name).await;
        found.map_err(|error| self.failure(&format!("cannot get {} {namespace}/{name}", K::kind(&())), error))
    }

    /// Objects of a namespace.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(super) async fn list<K>(&self, namespace: &str, which: &ListParams) -> anyhow::Result<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let found = Api::namespaced(self.client(), namespace).list(which).await;
        let found =
            found.map_err(|error| self.failure(&format!("cannot list {} in {namespace}", K::plural(&())), error));
        Ok(found?.items)
    }

    /// What the API server, or the way to it, had against a request.
    pub(super) fn failure(&self, doing: &str, error: kube::Error) -> anyhow::Error {
        match error {
            kube::Error::Api(status) => anyhow::anyhow!("{}: {doing}: {}", self.name, status.message),
            error => anyhow::Error::from(error).context(format!("{}: {doing}", self.name)),
        }
    }
}

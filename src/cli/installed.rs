//! The configuration that a cluster's own edgeward has.

use std::path::PathBuf;

use clap::Args;
use edgeward_core::config::Config;
use edgeward_core::config::map::Notice;
use edgeward_core::document::Faults;

use super::documents;
use crate::inspect;
use crate::inspect::Connection;
use crate::sources::namespaced_name::NamespacedName;

/// Where edgeward runs, unless told otherwise.
pub(super) const NAMESPACE: &str = "edgeward-system";

/// The domain that commands assume where none is named.
pub(super) const DOMAIN: &str = "example.io";

/// The option that names another domain.
pub(super) fn domain_option(domain: &str) -> String {
    match domain {
        DOMAIN => String::new(),
        other => format!(" --domain={other}"),
    }
}

/// Name of the Lease there, unless `serve` has another `--service`.
pub(super) const LEASE: &str = "edgeward";

/// Where to look.
#[derive(Debug, Args)]
pub(super) struct Installed {
    /// Configuration (docs/configuration.md): a file, or a directory with the keys of a ConfigMap; without, that of the
    /// Deployment.
    #[arg(long, value_name = "PATH", conflicts_with = "config_map")]
    config: Option<PathBuf>,

    /// The ConfigMap with edgeward's configuration, in place of the one that the Deployment names. NAMESPACE is edgeward's own.
    #[arg(long, value_name = "[NAMESPACE/]NAME", conflicts_with = "deployment", value_parser = super::namespaced_name)]
    config_map: Option<String>,

    /// edgeward's Deployment, in whose arguments is `--config-map`; the default configuration counts where there is none.
    /// NAMESPACE is edgeward's own.
    #[arg(
        long,
        value_name = "[NAMESPACE/]NAME",
        default_value = "edgeward-system/edgeward",
        value_parser = super::namespaced_name
    )]
    deployment: String,
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    /// The configuration; the defaults where there is none that could be taken.
    pub(super) config: Config,
    /// Where it is, or should be.
    pub(super) place: Place,
    /// How it is.
    pub(super) state: State,
}

/// Where a configuration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A file or directory.
    Path(PathBuf),
    /// A ConfigMap.
    Map(NamespacedName),
    /// A Deployment that should name one.
    Deployment(NamespacedName),
}

/// How a configuration is.
#[derive(Debug)]
pub(super) enum State {
    /// It was taken; what there is to know of it.
    Good(Vec<Notice>),
    /// The defaults stand for it; why.
    Assumed(String),
    /// It cannot be taken.
    Faulty(Faults),
}

impl Installed {
    /// The namespace that edgeward runs in.
    pub(super) fn namespace(&self) -> String {
        let name = self.config_map.as_ref().unwrap_or(&self.deployment);
        NamespacedName::parse(name, NAMESPACE).namespace
    }

    /// Reads it.
    ///
    /// # Errors
    /// The file cannot be read, or has faults.
    pub(super) async fn read(&self, connection: &Connection) -> anyhow::Result<Found> {
        if let Some(path) = &self.config {
            return Ok(Found {
                config: documents::config(Some(path))?,
                place: Place::Path(path.clone()),
                state: State::Good(vec![]),
            });
        }
        let mut config = Config::default();
        config.excluded_namespaces.push(self.namespace());
        let deployment = NamespacedName::parse(&self.deployment, NAMESPACE);
        let named = match &self.config_map {
            Some(name) => Ok(NamespacedName::parse(name, NAMESPACE)),
            None => connection.configured(&deployment).await,
        };
        let (place, read) = match named {
            Ok(name) => (Place::Map(name.clone()), inspect::config_map(connection, &name).await),
            Err(error) => (Place::Deployment(deployment), Err(error)),
        };
        let state = match read {
            Ok(Ok((read, notices))) => {
                config = read;
                State::Good(notices)
            }
            Ok(Err(faults)) => State::Faulty(faults),
            Err(error) => State::Assumed(assumption(&super::sentence(&error))),
        };
        Ok(Found { config, place, state })
    }
}

fn assumption(cause: &str) -> String {
    format!(
        "{cause}: the default configuration is assumed; name edgeward's own with --deployment, --config-map or --config"
    )
}

impl Found {
    /// A sentence where the defaults stand for what edgeward has.
    pub(super) fn assumption(&self) -> Option<String> {
        match &self.state {
            State::Good(_) => None,
            State::Assumed(why) => Some(why.clone()),
            State::Faulty(_) => Some(assumption(&format!(
                "{} has faults (`edgeward check` lists them)",
                self.place
            ))),
        }
    }
}

impl Place {
    /// The command that changes it.
    pub(super) fn edit(&self) -> String {
        match self {
            Place::Path(path) => format!("$EDITOR {}", path.display()),
            Place::Map(name) => format!("kubectl -n {} edit configmap {}", name.namespace, name.name),
            Place::Deployment(name) => format!("kubectl -n {} edit deployment {}", name.namespace, name.name),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Path(path) => write!(f, "{}", path.display()),
            Place::Map(name) => write!(f, "ConfigMap {name}"),
            Place::Deployment(name) => write!(f, "Deployment {name}"),
        }
    }
}

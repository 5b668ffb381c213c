//! The configuration of the edgeward that is installed in a cluster.

use std::path::{Path, PathBuf};

use clap::Args;
use edgeward_decision::config::Config;
use edgeward_decision::document::Fault;

use super::sentence;
use crate::inspect;
use crate::inspect::{Connection, View};
use crate::watch::namespaced_name::NamespacedName;

/// Default namespace of edgeward.
pub(super) const NAMESPACE: &str = "edgeward-system";

/// Default domain of the commands.
pub(super) const DOMAIN: &str = "example.io";

/// Returns the option that names the domain, unless it is the default.
pub(super) fn domain_option(domain: &str) -> String {
    match domain {
        DOMAIN => String::new(),
        other => format!(" --domain={other}"),
    }
}

/// Name of edgeward's Lease, unless `serve` has another `--service`.
pub(super) const LEASE: &str = "edgeward";

/// Options that tell where edgeward's configuration is.
#[derive(Debug, Args)]
pub(super) struct Installed {
    /// Configuration file, or directory with the keys of a ConfigMap. Default: the Deployment's.
    #[arg(long, value_name = "PATH", conflicts_with = "config_map")]
    config: Option<PathBuf>,

    /// ConfigMap in edgeward's own namespace, in place of the Deployment's.
    #[arg(long, value_name = "[NAMESPACE/]NAME", conflicts_with = "deployment", value_parser = super::namespaced_name)]
    config_map: Option<String>,

    /// edgeward's Deployment, whose `--config-map` is read. Without that argument, the defaults apply.
    #[arg(
        long,
        value_name = "[NAMESPACE/]NAME",
        default_value = "edgeward-system/edgeward",
        value_parser = super::namespaced_name
    )]
    deployment: String,
}

/// The configuration that was found, and where.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The configuration. The defaults, if none could be used.
    pub(super) config: Config,
    /// The object or file that contains it, or should.
    pub(super) place: String,
    /// The command that edits it.
    pub(super) edit: String,
    /// The ConfigMap that contains it, if there is one.
    pub(super) map: Option<NamespacedName>,
    /// Notices about a valid configuration.
    pub(super) notices: Vec<String>,
    /// Faults that make the configuration invalid.
    pub(super) faults: Vec<Fault>,
    /// Why no configuration could be read.
    pub(super) missing: Option<String>,
}

impl Installed {
    /// Returns the namespace that edgeward runs in.
    pub(super) fn namespace(&self) -> String {
        let name = self.config_map.as_ref().unwrap_or(&self.deployment);
        NamespacedName::parse(name, NAMESPACE).namespace
    }

    /// Returns the configuration file, if the options name one. Reading it needs no cluster.
    pub(super) fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Reads the configuration and the cluster, and warns of what could not be read.
    ///
    /// # Errors
    /// Those of [`Self::read`] and [`inspect::view`].
    pub(super) async fn view(&self, connection: &Connection) -> anyhow::Result<View> {
        let found = self.read(connection).await?;
        if let Some(assumption) = found.assumption() {
            tracing::warn!("{assumption}");
        }
        let (view, _) = inspect::view(connection, found.config, None).await?;
        for error in &view.unread {
            tracing::warn!("not taken into account: {}", sentence(error));
        }
        Ok(view)
    }

    /// Reads the configuration.
    ///
    /// # Errors
    /// The file cannot be read, or has faults.
    pub(super) async fn read(&self, connection: &Connection) -> anyhow::Result<Found> {
        if let Some(path) = &self.config {
            let place = path.display().to_string();
            return Ok(Found {
                config: super::read_config(Some(path))?,
                edit: format!("$EDITOR {place}"),
                place,
                ..Found::default()
            });
        }
        let deployment = NamespacedName::parse(&self.deployment, NAMESPACE);
        let named = match &self.config_map {
            Some(name) => Ok(NamespacedName::parse(name, NAMESPACE)),
            None => connection.configured(&deployment).await,
        };
        let (kind, name) = match &named {
            Ok(map) => ("ConfigMap", map),
            Err(_) => ("Deployment", &deployment),
        };
        let mut found = Found {
            place: format!("{kind} {name}"),
            edit: format!(
                "kubectl -n {} edit {} {}",
                name.namespace,
                kind.to_lowercase(),
                name.name
            ),
            map: named.as_ref().ok().cloned(),
            ..Found::default()
        };
        found.config.excluded_namespaces.push(self.namespace());
        let read = match named {
            Ok(name) => inspect::config_map(connection, &name).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(Ok((config, notices))) => (found.config, found.notices) = (config, notices),
            Ok(Err(faults)) => found.faults = faults.0,
            Err(error) => found.missing = Some(super::sentence(&error)),
        }
        Ok(found)
    }
}

impl Found {
    /// Says that the defaults are assumed, if edgeward's configuration could not be used.
    pub(super) fn assumption(&self) -> Option<String> {
        let faulty = || format!("{} has faults (`edgeward check` lists them)", self.place);
        let faulty = (!self.faults.is_empty()).then(faulty);
        let why = self.missing.clone().or(faulty)?;
        Some(format!(
            "{why}: the default configuration is assumed; name edgeward's own with --deployment, --config-map or --config"
        ))
    }
}

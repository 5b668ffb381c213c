//! The configuration that a cluster's own edgeward has.

use std::path::PathBuf;

use clap::Args;
use edgeward_core::config::Config;
use edgeward_core::config::map::Notice;
use edgeward_core::document::Fault;

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
    /// Configuration (docs/reference/settings.md): a file, or a directory with the keys of a ConfigMap; without, that of the
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
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The configuration; the defaults where there is none that could be taken.
    pub(super) config: Config,
    /// Where it is, or should be.
    pub(super) place: String,
    /// The command that changes it.
    pub(super) edit: String,
    /// The ConfigMap that it is in, if it is.
    pub(super) map: Option<NamespacedName>,
    /// What there is to know of one that was taken.
    pub(super) notices: Vec<Notice>,
    /// Why it cannot be taken.
    pub(super) faults: Vec<Fault>,
    /// Why there is none to be taken.
    pub(super) missing: Option<String>,
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
    /// A sentence where the defaults stand for what edgeward has.
    pub(super) fn assumption(&self) -> Option<String> {
        let faulty = || format!("{} has faults (`edgeward check` lists them)", self.place);
        let faulty = (!self.faults.is_empty()).then(faulty);
        let why = self.missing.clone().or(faulty)?;
        Some(format!(
            "{why}: the default configuration is assumed; name edgeward's own with --deployment, --config-map or --config"
        ))
    }
}

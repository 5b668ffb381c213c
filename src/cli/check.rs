//! `edgeward check`: what is wrong with an installation, and how to fix it.

mod certificate;
mod configuration;
mod custom_resources;
mod finding;
mod leader;
mod liqo;
mod rights;
mod sites;
mod webhook;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use self::certificate::Behind;
use self::custom_resources::CustomResources;
use self::finding::{Finding, Report, told};
use self::leader::Replicas;
use super::cluster::Cluster;
use super::installed::{Found, Installed, State};
use super::output::Output;
use super::undecided;
use crate::inspect;
use crate::inspect::Connection;
use crate::inspect::installation::{Calls, User, Webhook};
use crate::instruments::logs::{self, LogFormat};
use crate::instruments::metrics::Metrics;

/// Find what is wrong with an installation of edgeward, and say how to fix it.
///
/// One line a finding: ok, warning or fault, with a fix that can be copied. Looks at the API server, the configuration,
/// custom resources, edgeward's rights, who leads, the webhook, whether its calls are answered, and its certificate (by a TLS
/// handshake with whoever serves and by the Secret that replicas mount, verified by caBundle and name), namespaces, nodes, sites,
/// gated pods and, by one round of probes, the WAN. Runs wherever a kubeconfig leads to the cluster, and changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 no fault; 1 a fault, or the check could not be made.")]
pub(super) struct Check {
    #[command(flatten)]
    installed: Installed,

    /// Name of the MutatingWebhookConfiguration.
    #[arg(long, value_name = "NAME", default_value = "zz-edgeward")]
    webhook: String,

    /// User whose rights are reviewed; without, the ServiceAccount `edgeward` in edgeward's own namespace.
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,

    /// A group that this user is in; may be given several times.
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,

    #[command(flatten)]
    cluster: Cluster,

    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// What was read of an installation, and what could not be. Each check looks at a part of it.
struct Installation {
    /// edgeward's own namespace.
    home: String,
    /// Name of the MutatingWebhookConfiguration.
    webhook: String,
    /// The configuration, with the sites in use.
    found: Found,
    namespaces: anyhow::Result<BTreeMap<String, ObjectMeta>>,
    custom: anyhow::Result<CustomResources>,
    /// Every mutating webhook.
    webhooks: anyhow::Result<Vec<Webhook>>,
    /// Those of them that are ours.
    ours: Vec<Webhook>,
    /// Who is behind each of ours.
    behind: Vec<Result<Behind, Finding>>,
    /// How the API server's calls of webhooks ended.
    calls: anyhow::Result<BTreeMap<String, Calls>>,
    liqo: inspect::Liqo,
    replicas: Replicas,
    now: Timestamp,
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let _logs = logs::init_logging(LogFormat::Pretty, "error", &Metrics::new())?;
        let findings = self.cluster.ask(async |connection| self.findings(connection).await)?;
        let report = Report::new(findings);
        self.output.print(&report, Report::text)?;
        Ok(ExitCode::from(u8::from(report.faults > 0)))
    }

    async fn findings(&self, connection: &Connection) -> anyhow::Result<Vec<Finding>> {
        let version = connection.server_version().await?;
        let seen = self.look(connection).await?;
        let config = &seen.found.config;
        let account = format!("system:serviceaccount:{}:edgeward", seen.home);
        let user = User {
            name: self.user.as_deref().unwrap_or(&account),
            more_groups: &self.groups,
        };
        let (rights, is_installed) = rights::review(connection, user, &seen).await;
        let leader = seen.replicas.judge(&seen.home, &config.keys.domain, is_installed);
        let checks = [
            Ok(vec![configuration::version(&version, connection.name())]),
            Ok(configuration::judge(&seen.found)),
            custom_resources::judge(&seen),
            Ok(rights),
            Ok(leader.into_iter().collect()),
            webhook::judge(&seen),
            Ok(certificate::judge(&seen)),
        ];
        let mut findings: Vec<_> = checks.into_iter().flat_map(told).collect();
        let sites = seen.custom.as_ref().map(custom_resources::sites);
        if matches!(seen.found.state, State::Faulty(_)) || matches!(sites, Ok(Err(_))) {
            let text =
                "namespaces, nodes, gated pods and probes are not checked: the configuration or the Sites have faults";
            findings.push(Finding::warning("nodes", text));
            return Ok(findings);
        }
        findings.extend(told(webhook::namespaces(&seen)));
        findings.extend(liqo::judge(&seen));
        match inspect::list_and_probe(connection, config, seen.liqo.objects.as_ref()).await {
            Ok(mut listing) => {
                let now = connection.clock.now();
                let snapshot = listing.cache.publish(now.moment);
                findings.extend(seen.replicas.gated(&listing.gated, &seen.home, config, seen.now));
                findings.extend(sites::judge(&snapshot, listing.cache.faults()));
                findings.extend(sites::probes(&snapshot, &seen.found.place));
                findings.extend(sites::misplaced(&listing.misplaced(&snapshot, config, now)));
                let custom = seen.custom.iter();
                findings.extend(sites::missing_traits(
                    &snapshot,
                    custom.flat_map(CustomResources::policies),
                ));
            }
            Err(error) => findings.push(Finding::unknown("sites", &error)),
        }
        Ok(findings)
    }

    /// Reads everything but rights, nodes and pods.
    async fn look(&self, connection: &Connection) -> anyhow::Result<Installation> {
        let home = self.installed.namespace();
        let mut found = self.installed.read(connection).await?;
        let (namespaces, custom, webhooks, calls, replicas) = tokio::join!(
            connection.namespaces(),
            custom_resources::ask(connection),
            connection.webhooks(),
            connection.calls(),
            leader::ask(connection, &home),
        );
        if let Ok(Ok(Some(sites))) = custom.as_ref().map(custom_resources::sites) {
            found.config.sites = sites;
        }
        let liqo = inspect::liqo(connection, &mut found.config).await;
        let is_ours = |webhook: &&Webhook| webhook.configuration == self.webhook && undecided::is_ours(&webhook.name);
        let ours: Vec<_> = webhooks.iter().flatten().filter(is_ours).cloned().collect();
        Ok(Installation {
            behind: join_all(ours.iter().map(|entry| certificate::ask(connection, entry))).await,
            webhook: self.webhook.clone(),
            now: connection.clock.wall(),
            home,
            found,
            namespaces,
            custom,
            webhooks,
            ours,
            calls,
            liqo,
            replicas,
        })
    }
}

#[cfg(test)]
mod testkit {
    use super::*;
    use crate::cli::installed::Place;
    use crate::inspect::installation::Labels;
    use edgeward_core::config::Config;

    /// Namespaces with these labels.
    pub(super) fn namespaces(labels: BTreeMap<String, Labels>) -> BTreeMap<String, ObjectMeta> {
        let of = |labels| ObjectMeta {
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        labels.into_iter().map(|(name, labels)| (name, of(labels))).collect()
    }

    impl Installation {
        /// An installation with one entry, in which nothing else is known to be wrong.
        pub(super) fn example() -> Self {
            Self {
                home: "edgeward-system".into(),
                webhook: "zz-edgeward".into(),
                found: Found {
                    config: Config::default(),
                    place: Place::Path("edgeward.yaml".into()),
                    state: State::Good(vec![]),
                },
                namespaces: Ok(BTreeMap::new()),
                custom: Ok(CustomResources::default()),
                webhooks: Ok(vec![]),
                ours: vec![Webhook::example()],
                behind: vec![],
                calls: Ok(BTreeMap::new()),
                liqo: inspect::Liqo::default(),
                replicas: Replicas {
                    wanted: Some(2),
                    lead: Ok(Ok("a_1".to_owned())),
                },
                now: "2026-11-21T12:00:00Z".parse().unwrap(),
            }
        }
    }
}

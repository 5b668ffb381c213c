//! `edgeward check`: what is wrong with an installation, and how to fix it.
//!
//! Everything is read once, into [`Facts`]; each check is a function of these.

mod certificate;
mod custom_resources;
mod finding;
mod leader;
mod liqo;
mod rights;
mod sites;
mod webhook;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use edgeward_core::cluster::cache::NodeFault;
use edgeward_core::guard::backstop;
use edgeward_core::model::pod_record::GatedPod;
use edgeward_core::model::snapshot::Snapshot;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use self::certificate::Behind;
use self::custom_resources::CustomResources;
use self::finding::{Finding, Report};
use super::Cluster;
use super::Output;
use super::installed::{Found, Installed, LEASE};
use super::undecided;
use crate::inspect;
use crate::inspect::Connection;
use crate::inspect::installation::{Calls, Lead, User, Webhook};
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

/// What was read of an installation. What could not be is `None`, and told by a finding in `unread`.
#[derive(Default)]
struct Facts {
    /// edgeward's own namespace.
    home: String,
    /// Name of the MutatingWebhookConfiguration.
    webhook: String,
    now: Timestamp,
    /// Major and minor version of the API server, and how it is named.
    version: (u32, u32, String),
    /// The configuration, with the sites in use.
    found: Found,
    /// Whether the user whose rights are reviewed exists, if it is a ServiceAccount that can be looked for.
    is_installed: bool,
    /// What is wrong with the rights of that user.
    rights: Vec<Finding>,
    namespaces: Option<BTreeMap<String, ObjectMeta>>,
    custom: Option<CustomResources>,
    /// Every mutating webhook.
    webhooks: Option<Vec<Webhook>>,
    /// Those of them that are ours.
    ours: Vec<Webhook>,
    /// Who is behind these, by whom they call.
    behind: BTreeMap<String, Behind>,
    /// How the API server's calls of webhooks ended.
    calls: Option<BTreeMap<String, Calls>>,
    liqo: inspect::Liqo,
    /// How many replicas the Deployment is to have; `None` where there is none, or nobody says.
    wanted: Option<i32>,
    lead: Option<Lead>,
    nodes: Option<Nodes>,
    unread: Vec<Finding>,
}

/// Nodes and pods, counted.
#[derive(Default)]
struct Nodes {
    snapshot: Snapshot,
    faults: Vec<NodeFault>,
    gated: Vec<Arc<GatedPod>>,
    misplaced: Vec<backstop::Finding>,
}

type Judge = fn(&Facts) -> Vec<Finding>;

/// What is judged whatever the configuration.
const OF_INSTALLATION: [Judge; 8] = [
    version,
    configuration,
    custom_resources::judge,
    |facts| facts.rights.clone(),
    leader::judge,
    webhook::registration,
    webhook::calls,
    certificate::judge,
];

/// What means something under a good configuration only.
const OF_CLUSTER: [Judge; 7] = [
    webhook::namespaces,
    liqo::judge,
    leader::gated,
    sites::judge,
    sites::probes,
    sites::misplaced,
    sites::missing_traits,
];

impl Facts {
    /// Whether domain and sites are as they will be.
    fn is_configured(&self) -> bool {
        let are_sites_faulty = self.custom.as_ref().is_some_and(|custom| custom.sites().is_err());
        !are_sites_faulty && self.found.faults.is_empty()
    }

    fn judge(self) -> Vec<Finding> {
        let mut findings: Vec<_> = OF_INSTALLATION.iter().flat_map(|judge| judge(&self)).collect();
        if self.is_configured() {
            findings.extend(OF_CLUSTER.iter().flat_map(|judge| judge(&self)));
        } else {
            let text =
                "namespaces, nodes, gated pods and probes are not checked: the configuration or the Sites have faults";
            findings.push(Finding::warning("nodes", text));
        }
        findings.extend(self.unread);
        findings
    }

    /// What was read, if it could be.
    fn read<T>(&mut self, area: &'static str, read: anyhow::Result<T>) -> Option<T> {
        read.map_err(|error| self.unread.push(Finding::unknown(area, &error)))
            .ok()
    }
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let _logs = logs::init_logging(LogFormat::Pretty, "error", &Metrics::new())?;
        let facts = self.cluster.ask(async |connection| self.look(connection).await)?;
        let report = Report::new(facts.judge());
        self.output.print(&report, Report::text)?;
        Ok(ExitCode::from(u8::from(report.faults > 0)))
    }

    async fn look(&self, connection: &Connection) -> anyhow::Result<Facts> {
        let (major, minor, version) = connection.server_version().await?;
        let home = self.installed.namespace();
        let account = format!("system:serviceaccount:{home}:edgeward");
        let user = User {
            name: self.user.as_deref().unwrap_or(&account),
            more_groups: &self.groups,
        };
        let (namespaces, custom, webhooks, calls, wanted, lead) = tokio::join!(
            connection.namespaces(),
            custom_resources::ask(connection),
            connection.webhooks(),
            connection.calls(),
            connection.wanted_replicas(&home, "edgeward"),
            connection.lead(&home, LEASE),
        );
        let mut facts = Facts {
            webhook: self.webhook.clone(),
            now: connection.clock.wall(),
            version: (major, minor, format!("Kubernetes {version} at {}", connection.name)),
            found: self.installed.read(connection).await?,
            is_installed: match user.account() {
                Some((namespace, name)) => {
                    let found = connection.get::<ServiceAccount>(namespace, name).await;
                    !matches!(found, Ok(None))
                }
                None => true,
            },
            wanted: wanted.unwrap_or_default(),
            home,
            ..Facts::default()
        };
        facts.namespaces = facts.read("namespaces", namespaces);
        facts.custom = facts.read("resources", custom);
        facts.webhooks = facts.read("webhook", webhooks);
        facts.calls = facts.read("webhook", calls);
        facts.lead = facts.read("leader", lead);
        if let Some(Ok(Some(sites))) = facts.custom.as_ref().map(CustomResources::sites) {
            facts.found.config.sites = sites;
        }
        facts.liqo = inspect::liqo(connection, &mut facts.found.config).await;
        let all = facts.webhooks.iter().flatten();
        let is_ours = |entry: &&Webhook| entry.configuration() == self.webhook && undecided::is_ours(&entry.entry.name);
        facts.ours = all.filter(is_ours).cloned().collect();
        certificate::ask(connection, &mut facts).await;
        facts.rights = rights::review(connection, user, &facts).await;
        if facts.is_configured() {
            let listing = list(connection, &facts).await;
            facts.nodes = facts.read("sites", listing);
        }
        Ok(facts)
    }
}

async fn list(connection: &Connection, facts: &Facts) -> anyhow::Result<Nodes> {
    let config = &facts.found.config;
    let mut listing = inspect::list_and_probe(connection, config, facts.liqo.objects.as_ref()).await?;
    let now = connection.clock.now();
    let snapshot = listing.cache.publish(now.moment);
    Ok(Nodes {
        faults: listing.cache.faults().cloned().collect(),
        misplaced: listing.misplaced(&snapshot, config, now),
        gated: listing.gated,
        snapshot,
    })
}

/// The version that the client which we speak through is made for.
const SUPPORTED: (u32, u32) = (1, 33);

/// The API server answers, and its version.
fn version(facts: &Facts) -> Vec<Finding> {
    const AREA: &str = "versions";
    let (major, minor, name) = &facts.version;
    let server = format!("edgeward {}; {name}", env!("CARGO_PKG_VERSION"));
    if (*major, *minor) < SUPPORTED {
        let text = format!("{server}: older than 1.33, which edgeward is made for; webhook/base needs 1.30");
        return vec![Finding::warning(AREA, text)];
    }
    vec![Finding::ok(AREA, server)]
}

/// The configuration, with every fault.
fn configuration(facts: &Facts) -> Vec<Finding> {
    const AREA: &str = "configuration";
    let found = &facts.found;
    let place = &found.place;
    if found.missing.is_some() {
        let fix = "edgeward check --deployment NAMESPACE/NAME, or --config FILE";
        let why = found.assumption().unwrap_or_default();
        return vec![Finding::warning(AREA, why).fix(fix)];
    }
    let faults = found.faults.iter();
    let mut findings: Vec<_> = faults
        .map(|fault| Finding::fault(AREA, format!("{place}: {fault}")).fix(&found.edit))
        .collect();
    if findings.is_empty() {
        findings.push(Finding::ok(AREA, format!("{place} can be taken")));
    }
    let notices = found.notices.iter();
    findings.extend(notices.map(|notice| Finding::warning(AREA, format!("{place}: {notice}")).fix(&found.edit)));
    findings
}

#[cfg(test)]
mod testkit {
    use super::*;
    use crate::inspect::installation::Labels;

    /// Namespaces with these labels.
    pub(super) fn namespaces(labels: BTreeMap<String, Labels>) -> Option<BTreeMap<String, ObjectMeta>> {
        let of = |labels| ObjectMeta {
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        Some(labels.into_iter().map(|(name, labels)| (name, of(labels))).collect())
    }

    impl Facts {
        /// An installation with one entry, in which nothing else is known to be wrong.
        pub(super) fn example() -> Self {
            Self {
                home: "edgeward-system".into(),
                webhook: "zz-edgeward".into(),
                is_installed: true,
                now: "2026-11-21T12:00:00Z".parse().unwrap(),
                ours: vec![Webhook::example()],
                webhooks: Some(vec![]),
                wanted: Some(2),
                ..Self::default()
            }
        }
    }
}

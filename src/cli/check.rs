//! `edgeward check`: finds what is wrong with an installation, and how to fix it.
//!
//! Everything is read once into [`Facts`]. Each check is a function of [`Facts`].

mod certificate;
mod custom_resources;
mod finding;
mod leader;
mod rights;
mod sites;
mod webhook;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use edgeward_decision::config::ScorerSource;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ServiceAccount;

use self::certificate::Behind;
use self::custom_resources::CustomResources;
use self::finding::{Finding, Report};
use super::installed::{Found, Installed, LEASE};
use super::{Cluster, Output};
use super::{sentence, undecided};
use crate::inspect::installation::{Calls, Labels, Lead, User, Webhook};
use crate::inspect::{self, Connection, View};
use crate::scorer;

/// Find what is wrong with an installation, and how to fix it.
///
/// Prints one line per finding: ok, warning or fault, and what to do about it. Checks the API server, configuration,
/// custom resources, rights, leader, webhook and its calls, served certificates, namespaces, nodes, sites and gated
/// pods, and probes the WAN once. Needs a kubeconfig, and changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 no fault; 1 a fault, or the check could not run.")]
pub(super) struct Check {
    #[command(flatten)]
    installed: Installed,

    /// The MutatingWebhookConfiguration that calls edgeward.
    #[arg(long, value_name = "NAME", default_value = "zz-edgeward")]
    webhook: String,

    /// User whose rights are checked. Default: the ServiceAccount `edgeward` in edgeward's namespace.
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,

    /// Group of this user. May be repeated.
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,

    #[command(flatten)]
    cluster: Cluster,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The state of an installation. A part that could not be read is `None` and has a finding in `unread`.
#[derive(Default)]
struct Facts {
    /// edgeward's own namespace.
    home: String,
    /// Name of the MutatingWebhookConfiguration.
    webhook: String,
    now: Timestamp,
    /// Versions of edgeward and of the API server, and its name.
    version: String,
    /// The configuration, with the sites in use.
    found: Found,
    /// Whether the user whose rights are checked exists. False only for a ServiceAccount that was not found.
    is_installed: bool,
    /// Findings about the rights of that user.
    rights: Vec<Finding>,
    namespaces: Option<BTreeMap<String, Labels>>,
    custom: Option<CustomResources>,
    /// edgeward's webhooks.
    ours: Option<Vec<Webhook>>,
    /// The servers behind edgeward's webhooks, by the target that the API server calls.
    behind: BTreeMap<String, Behind>,
    /// Results of the API server's calls to edgeward's webhooks.
    calls: Option<Calls>,
    lead: Option<Lead>,
    view: Option<View>,
    unread: Vec<Finding>,
}

type Judge = fn(&Facts) -> Vec<Finding>;

/// Checks that run with any configuration.
const OF_INSTALLATION: [Judge; 9] = [
    |facts| vec![Finding::ok("versions", &facts.version)],
    configuration,
    custom_resources::judge,
    custom_resources::unread,
    |facts| facts.rights.clone(),
    leader::judge,
    webhook::registration,
    webhook::calls,
    certificate::judge,
];

/// Checks that need a valid configuration.
const OF_CLUSTER: [Judge; 4] = [webhook::namespaces, leader::gated, sites::judge, sites::probes];

impl Facts {
    fn judge(self) -> Vec<Finding> {
        let mut findings: Vec<_> = OF_INSTALLATION.iter().flat_map(|judge| judge(&self)).collect();
        if self.found.faults.is_empty() {
            findings.extend(OF_CLUSTER.iter().flat_map(|judge| judge(&self)));
        } else {
            let text = "namespaces, nodes, gated pods and probes are not checked: the configuration has faults";
            findings.push(Finding::warning("nodes", text));
        }
        findings.extend(self.unread);
        findings
    }

    /// Returns what was read. Turns an error into a finding in `unread` and `None`.
    fn read<T>(&mut self, area: &'static str, read: anyhow::Result<T>) -> Option<T> {
        read.map_err(|error| self.unread.push(Finding::unknown(area, &error)))
            .ok()
    }
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let facts = self.cluster.ask(async |connection| self.look(connection).await)?;
        let report = Report::new(facts.judge());
        self.output.print(&report, Report::text)?;
        Ok(ExitCode::from(u8::from(report.faults > 0)))
    }

    async fn look(&self, connection: &Connection) -> anyhow::Result<Facts> {
        let version = connection.client.apiserver_version().await;
        let version = version.map_err(|error| connection.failure("cannot ask for its version", error))?;
        let home = self.installed.namespace();
        let account = format!("system:serviceaccount:{home}:edgeward");
        let user = User {
            name: self.user.as_deref().unwrap_or(&account),
            more_groups: &self.groups,
        };
        let (namespaces, custom, webhooks, calls, lead) = tokio::join!(
            connection.namespaces(),
            custom_resources::ask(connection),
            connection.webhooks(),
            connection.calls(undecided::is_ours),
            connection.lead(&home, LEASE),
        );
        let mut facts = Facts {
            webhook: self.webhook.clone(),
            now: connection.clock.wall(),
            version: format!(
                "edgeward {}; Kubernetes {} at {}",
                env!("CARGO_PKG_VERSION"),
                version.git_version,
                connection.name
            ),
            found: self.installed.read(connection).await?,
            is_installed: match user.account() {
                Some((namespace, name)) => !matches!(connection.get::<ServiceAccount>(namespace, name).await, Ok(None)),
                None => true,
            },
            home,
            ..Facts::default()
        };
        facts.namespaces = facts.read("namespaces", namespaces);
        facts.custom = facts.read("resources", custom);
        facts.ours = facts.read("webhook", webhooks);
        let is_ours = |entry: &Webhook| entry.configuration() == self.webhook && undecided::is_ours(&entry.entry.name);
        facts.ours.iter_mut().for_each(|all| all.retain(is_ours));
        facts.calls = facts.read("webhook", calls);
        facts.lead = facts.read("leader", lead);
        certificate::ask(connection, &mut facts).await;
        if facts.found.faults.is_empty() {
            let view = inspect::view(connection, facts.found.config.clone(), None).await;
            facts.view = facts.read("nodes", view.map(|(view, _)| view));
        }
        if let Some(view) = &facts.view {
            facts.found.config = view.config.clone();
        }
        let settings = &facts.found.config.scorer;
        if let Some(ScorerSource::ConfigMap(_)) = settings.source()
            && let Err(error) = scorer::read(connection, &facts.home, settings).await
        {
            let fix = "edgeward scorer check FILE, then put FILE into the ConfigMap under the key scorer.json";
            let finding = Finding::warning(
                "scorer",
                format!("the learned scorer is not used: {}", sentence(&error)),
            );
            facts.unread.push(finding.fix(fix));
        }
        facts.rights = rights::review(connection, user, &facts).await;
        Ok(facts)
    }
}

/// Reports the configuration and its faults.
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
        findings.push(Finding::ok(AREA, format!("{place} is valid")));
    }
    let notices = found.notices.iter();
    findings.extend(notices.map(|notice| Finding::warning(AREA, format!("{place}: {notice}")).fix(&found.edit)));
    findings
}

#[cfg(test)]
mod testkit {
    use super::*;

    impl Facts {
        /// An installation with one webhook and no other known fault.
        pub(super) fn example() -> Self {
            Self {
                home: "edgeward-system".into(),
                webhook: "zz-edgeward".into(),
                is_installed: true,
                now: "2026-11-21T12:00:00Z".parse().unwrap(),
                ours: Some(vec![Webhook::example()]),
                ..Self::default()
            }
        }
    }
}

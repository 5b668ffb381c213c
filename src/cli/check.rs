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

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use edgeward_core::placement::policy::Seen;
use edgeward_core::wire::liqo_objects::LiqoObjects;
use futures::future::join_all;

use self::certificate::Behind;
use self::finding::{Finding, Report};
use super::cluster::Cluster;
use super::installed::{Found, Installed, State};
use super::undecided;
use crate::inspect;
use crate::inspect::installation::Webhook;
use crate::inspect::{Connection, Listing};
use crate::instruments::logs::{self, LogFormat};
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::sources::volumes::can_have_data;

/// Find what is wrong with an installation of edgeward, and say how to fix it.
///
/// One line a finding: ok, warning or fault, with a fix that can be copied. Looks at the API server, the configuration,
/// custom resources, edgeward's rights, who leads, the webhook, whether its calls are answered, and its certificate (by a TLS
/// handshake with whoever serves and by the Secret that replicas mount, verified by caBundle and name), namespaces, nodes, sites,
/// held pods and, by one round of probes, the WAN. Runs wherever a kubeconfig leads to the cluster, and changes nothing.
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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// One CheckReport.
    Json,
    /// One CheckReport.
    Yaml,
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let metrics = Arc::new(Metrics::new());
        let _logs = logs::init_logging(LogFormat::Pretty, "error", &metrics)?;
        let clock = Clock::start();
        let report = self
            .cluster
            .ask(async |connection| Ok(Report::new(self.findings(connection, clock, &metrics).await?)))?;
        super::print(&match self.output {
            Output::Text => report.text(),
            Output::Json => serde_json::to_string_pretty(&report)? + "\n",
            Output::Yaml => serde_saphyr::to_string(&report)?,
        })?;
        Ok(ExitCode::from(u8::from(report.faults > 0)))
    }

    async fn findings(
        &self,
        connection: &Connection,
        clock: Clock,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Vec<Finding>> {
        let mut findings = configuration::versions(&connection.server_version().await?, connection.name());
        let mut found = self.installed.read(connection).await?;
        findings.extend(configuration::judge(&found));
        let namespaces = connection.namespaces().await;
        let mut are_installed = false;
        let mut sites_are_good = true;
        let mut policies = vec![];
        match custom_resources::ask(connection).await {
            Ok(custom) => {
                are_installed = custom.sites.is_some() || custom.policies.is_some() || custom.profiles.is_some();
                findings.extend(custom_resources::judge(
                    &custom,
                    namespaces.as_ref().ok(),
                    &found.config.keys,
                ));
                policies = custom.policies.clone().unwrap_or_default();
                match custom_resources::sites(&custom) {
                    Ok(sites) => found.config.sites = sites.unwrap_or(found.config.sites),
                    Err(faults) => {
                        findings.extend(faults);
                        sites_are_good = false;
                    }
                }
            }
            Err(error) => findings.push(Finding::unknown(custom_resources::AREA, &error)),
        }
        let webhooks = connection.webhooks().await;
        let is_ours = |found: &Webhook| found.configuration == self.webhook && undecided::is_ours(&found.name);
        let webhooks = webhooks.map(|all| all.into_iter().partition::<Vec<_>, _>(is_ours));
        let (ours, others) = match webhooks {
            Ok((ours, others)) => (Ok(ours), others),
            Err(error) => (Err(error), vec![]),
        };
        let asked = ours.iter().flatten().map(|entry| certificate::ask(connection, entry));
        let behind = join_all(asked).await;
        let home = self.installed.namespace();
        let of_liqo = inspect::liqo(connection, &found.config).await;
        let (config, left_out) = inspect::with_discovered(found.config.clone(), of_liqo.objects.as_ref());
        found.config = config;
        let opted_in = namespaces.as_ref().ok();
        let opted_in = opted_in.map(|all| webhook::opted_in(all, &found.config));
        let installation = rights::Installation {
            home: &home,
            place: &found.place,
            custom_resources: are_installed,
            liqo: of_liqo.objects.is_some() || !of_liqo.unreadable.is_empty(),
            has_data: can_have_data(&found.config),
            certificates: behind.iter().find_map(Behind::self_managed),
            webhook: &self.webhook,
            opted_in: opted_in.as_deref(),
        };
        let domain = &found.config.keys.domain;
        let user = self.user.as_deref();
        let reviewed = rights::review(connection, user, &self.groups, &installation, domain).await;
        findings.extend(reviewed.findings);
        let replicas = leader::ask(connection, &home, clock).await;
        findings.extend(replicas.judge(&home, domain, reviewed.is_installed));
        match &ours {
            Ok(ours) => {
                findings.extend(webhook::judge(&self.webhook, ours, &found.config.keys));
                if !ours.is_empty() {
                    let addresses = behind.first().map(Behind::addresses).unwrap_or_default();
                    findings.push(match connection.calls().await {
                        Ok(counted) => webhook::calls(ours, &counted, &addresses),
                        Err(error) => Finding::unknown("webhook", &error),
                    });
                }
                let around = certificate::Around {
                    home: &home,
                    wanted: replicas.wanted,
                    now: clock.wall(),
                };
                for (entry, behind) in ours.iter().zip(&behind) {
                    for found in certificate::judge(entry, behind, &around) {
                        // Of what the entries have in common.
                        if !findings.contains(&found) {
                            findings.push(found);
                        }
                    }
                }
            }
            Err(error) => findings.push(Finding::unknown("webhook", error)),
        }
        if matches!(found.state, State::Faulty(_)) {
            let text = "namespaces, nodes, held pods and probes are not checked: the configuration has faults";
            findings.push(Finding::warning("nodes", text.to_owned(), None));
            return Ok(findings);
        }
        match &namespaces {
            Ok(namespaces) => {
                let ours = ours.as_deref().ok();
                findings.extend(webhook::namespaces(&self.webhook, ours, namespaces, &found));
            }
            Err(error) => findings.push(Finding::unknown("namespaces", error)),
        }
        let reviewed = liqo::Reviewed {
            config: &found.config,
            place: &found.place,
            namespaces: namespaces.as_ref().ok(),
            webhooks: &others,
            left_out: &left_out,
        };
        findings.extend(liqo::judge(&of_liqo, &reviewed));
        if !sites_are_good {
            let text = "nodes, held pods and probes are not checked: the Sites have faults";
            findings.push(Finding::warning("nodes", text.to_owned(), None));
            return Ok(findings);
        }
        match inspect::list_and_probe(connection, &found.config, clock, metrics).await {
            Ok(listing) => {
                findings.extend(replicas.held(&listing.held, &home, &found.config, clock.wall()));
                findings.extend(picture(listing, of_liqo.objects.as_ref(), &found, &policies, clock));
            }
            Err(error) => findings.push(Finding::unknown("sites", &error)),
        }
        Ok(findings)
    }
}

/// Nodes, sites and probes.
fn picture(
    mut listing: Listing,
    liqo: Option<&LiqoObjects>,
    found: &Found,
    policies: &[Arc<Seen>],
    clock: Clock,
) -> Vec<Finding> {
    let cache = &mut listing.cache;
    cache.set_liqo(liqo.map(|objects| Arc::new(objects.facts(clock.now()))));
    let snapshot = cache.publish(clock.moment());
    let mut findings = sites::judge(&snapshot, cache.faults());
    findings.extend(sites::probes(&snapshot, &found.place));
    findings.extend(sites::missing_traits(&snapshot, policies));
    findings
}

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

use clap::Args;
use futures::future::join_all;

use self::certificate::Behind;
use self::custom_resources::CustomResources;
use self::finding::{Finding, Report};
use super::cluster::Cluster;
use super::installed::{Installed, State};
use super::output::Output;
use super::undecided;
use crate::inspect;
use crate::inspect::Connection;
use crate::inspect::installation::Webhook;
use crate::instruments::logs::{self, LogFormat};
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::sources::volumes::can_have_data;

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

impl Check {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let metrics = Arc::new(Metrics::new());
        let _logs = logs::init_logging(LogFormat::Pretty, "error", &metrics)?;
        let clock = Clock::start();
        let report = self
            .cluster
            .ask(async |connection| Ok(Report::new(self.findings(connection, clock, &metrics).await?)))?;
        self.output.print(&report, Report::text)?;
        Ok(ExitCode::from(u8::from(report.faults > 0)))
    }

    async fn findings(
        &self,
        connection: &Connection,
        clock: Clock,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Vec<Finding>> {
        let version = connection.server_version().await?;
        let mut findings = vec![configuration::version(&version, connection.name())];
        let mut found = self.installed.read(connection).await?;
        findings.extend(configuration::judge(&found));
        let namespaces = connection.namespaces().await;
        let known_namespaces = namespaces.as_ref().ok();
        let custom = custom_resources::ask(connection).await;
        let mut sites_are_good = true;
        match &custom {
            Ok(custom) => {
                findings.extend(custom_resources::judge(custom, known_namespaces, &found.config.keys));
                match custom_resources::sites(custom) {
                    Ok(sites) => found.config.sites = sites.unwrap_or(found.config.sites),
                    Err(faults) => {
                        findings.extend(faults);
                        sites_are_good = false;
                    }
                }
            }
            Err(error) => findings.push(Finding::unknown(custom_resources::AREA, error)),
        }
        let is_ours = |found: &Webhook| found.configuration == self.webhook && undecided::is_ours(&found.name);
        let webhooks = connection.webhooks().await;
        let webhooks = webhooks.map(|all| all.into_iter().partition::<Vec<_>, _>(is_ours));
        let (ours, others) = webhooks
            .as_ref()
            .map_or((None, &[][..]), |(ours, others)| (Some(&**ours), &**others));
        let asked = ours
            .unwrap_or_default()
            .iter()
            .map(|entry| certificate::ask(connection, entry));
        let behind = join_all(asked).await;
        let home = self.installed.namespace();
        let of_liqo = inspect::liqo(connection, &found.config).await;
        let (config, left_out) = inspect::with_discovered(found.config.clone(), of_liqo.objects.as_ref());
        found.config = config;
        let keys = &found.config.keys;
        let is_excluded = |name: &str| found.config.excluded_namespaces.iter().any(|excluded| excluded == name);
        let opted_in = known_namespaces.map(|all| {
            let opted_in = webhook::opted_in(all, keys).into_iter().map(|(name, _)| name);
            opted_in.filter(|name| !is_excluded(name)).collect::<Vec<_>>()
        });
        let is_installed =
            |custom: &CustomResources| custom.sites.is_some() || custom.policies.is_some() || custom.profiles.is_some();
        let installation = rights::Installation {
            home: &home,
            place: &found.place,
            custom_resources: custom.as_ref().is_ok_and(is_installed),
            liqo: of_liqo.objects.is_some() || !of_liqo.unreadable.is_empty(),
            has_data: can_have_data(&found.config),
            certificates: behind.iter().flatten().find_map(Behind::self_managed),
            webhook: &self.webhook,
            opted_in: opted_in.as_deref(),
        };
        let user = self.user.as_deref();
        let reviewed = rights::review(connection, user, &self.groups, &installation, &keys.domain).await;
        findings.extend(reviewed.findings);
        let replicas = leader::ask(connection, &home, clock).await;
        findings.extend(replicas.judge(&home, &keys.domain, reviewed.is_installed));
        match &webhooks {
            Ok((ours, _)) => {
                findings.extend(webhook::judge(&self.webhook, ours, keys));
                if !ours.is_empty() {
                    findings.push(match connection.calls().await {
                        Ok(counted) => webhook::calls(ours, &counted),
                        Err(error) => Finding::unknown("webhook", &error),
                    });
                }
                let around = certificate::Around {
                    home: &home,
                    wanted: replicas.wanted,
                    now: clock.wall(),
                };
                let entries = ours.iter().zip(&behind);
                for found in entries.flat_map(|(entry, behind)| certificate::judge(entry, behind, &around)) {
                    // Of what the entries have in common.
                    if !findings.contains(&found) {
                        findings.push(found);
                    }
                }
            }
            Err(error) => findings.push(Finding::unknown("webhook", error)),
        }
        if matches!(found.state, State::Faulty(_)) || !sites_are_good {
            let text =
                "namespaces, nodes, gated pods and probes are not checked: the configuration or the Sites have faults";
            findings.push(Finding::warning("nodes", text));
            return Ok(findings);
        }
        match &namespaces {
            Ok(namespaces) => findings.extend(webhook::namespaces(&self.webhook, ours, namespaces, &found)),
            Err(error) => findings.push(Finding::unknown("namespaces", error)),
        }
        let reviewed = liqo::Reviewed {
            config: &found.config,
            place: &found.place,
            namespaces: known_namespaces,
            webhooks: others,
            left_out: &left_out,
        };
        findings.extend(liqo::judge(&of_liqo, &reviewed));
        match inspect::list_and_probe(connection, &found.config, clock, metrics).await {
            Ok(mut listing) => {
                findings.extend(replicas.gated(&listing.gated, &home, &found.config, clock.wall()));
                let liqo = of_liqo.objects.map(|objects| Arc::new(objects.facts(clock.now())));
                listing.cache.set_liqo(liqo);
                let snapshot = listing.cache.publish(clock.moment());
                findings.extend(sites::judge(&snapshot, listing.cache.faults()));
                findings.extend(sites::probes(&snapshot, &found.place));
                let policies = custom.ok().and_then(|custom| custom.policies).unwrap_or_default();
                findings.extend(sites::missing_traits(&snapshot, &policies));
            }
            Err(error) => findings.push(Finding::unknown("sites", &error)),
        }
        Ok(findings)
    }
}

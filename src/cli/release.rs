//! `edgeward release`: removes edgeward's scheduling gate from pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args};
use edgeward_decision::config::Config;
use futures::StreamExt as _;
use serde_json::json;

use super::Cluster;
use crate::controllers::gate::{Freed, Target, Ungate};
use crate::inspect::Connection;
use crate::inspect::installation::Webhook;

/// How long API servers may still call a webhook after its configuration was deleted. It covers the delay of their
/// watch and the 1 s timeout of a call. No API reports when the calls have ended.
const UNREGISTERED: Duration = Duration::from_secs(3);

/// Pause between two lists while pods may still be gated.
const PAUSE: Duration = Duration::from_secs(1);

/// Remove edgeward's gate from gated pods, and change nothing else.
///
/// The pods go to kube-scheduler without a placement by edgeward. Prints a line per pod (released, already free, or
/// failed and why) and the counts. To uninstall, use `--all --unregister`, which also keeps new pods from being gated
/// (docs/guide/operate.md#uninstall).
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["all", "pods"])))]
// Even a cluster with many gated pods needs less time.
#[command(mut_arg("timeout", |timeout| timeout
    .default_value("300")
    .help("Seconds until it gives up. Released pods stay released; run it again for the rest")))]
#[command(
    after_help = "Exit codes: 0 no pod carries the gate any more; 1 some may. With --all, gates of another domain count if the \
                  domain is not known from --domain, --config or the deleted configuration."
)]
pub(super) struct Release {
    /// Every pod with the gate, in every namespace.
    #[arg(long)]
    all: bool,

    /// First delete this MutatingWebhookConfiguration, so that no more pods are gated. NAME defaults to zz-edgeward. A
    /// missing one is not an error.
    #[arg(
        long,
        value_name = "NAME",
        requires = "all",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "zz-edgeward",
        value_parser = super::name
    )]
    unregister: Option<String>,

    /// Names of pods.
    #[arg(value_name = "POD", value_parser = super::name)]
    pods: Vec<String>,

    /// Namespace of the pods. Default: that of the context.
    #[arg(short, long, conflicts_with = "all", value_parser = super::name)]
    namespace: Option<String>,

    /// Configuration whose domain names the gate: a file, or a directory with the keys of a ConfigMap. Without it, the
    /// defaults apply.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// Domain that names the gate, if there is no configuration. Default: that of the configuration deleted by
    /// --unregister.
    #[arg(long, value_name = "DOMAIN", conflicts_with = "config")]
    domain: Option<String>,

    #[command(flatten)]
    cluster: Cluster,
}

/// Number of pods by outcome.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    released: usize,
    already_free: usize,
    failed: usize,
}

impl Release {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let config = match &self.domain {
            Some(domain) => of_domain(domain)?,
            None => super::read_config(self.config.as_deref())?,
        };
        self.cluster
            .ask(async |connection| self.release(connection, config).await)
    }

    async fn release(&self, connection: &Connection, mut config: Config) -> anyhow::Result<ExitCode> {
        let mut is_domain_known = self.domain.is_some() || self.config.is_some();
        if let Some(name) = &self.unregister
            && !is_domain_known
        {
            let webhooks = connection.webhooks_of(name).await?;
            if let Some(domain) = webhooks.iter().find_map(Webhook::domain) {
                config = of_domain(&domain)?;
                is_domain_known = true;
            }
        }
        let ungate = Ungate {
            connection,
            keys: &config.keys,
        };
        if let Some(name) = &self.unregister {
            let removed = ungate.unregister(name).await?;
            let what = if removed { "deleted" } else { "not there" };
            super::print(&format!("mutatingwebhookconfiguration {name} {what}\n"))?;
        }
        let mut counts = Counts::default();
        let mut others = BTreeMap::new();
        if self.all {
            let pause = self.unregister.as_ref().map_or(PAUSE, |_| UNREGISTERED);
            let released = ungate.release_until_none(pause, |pod, freed| counts.add(pod, freed));
            others = released.await?;
        }
        let namespace = self
            .namespace
            .as_deref()
            .unwrap_or(connection.client.default_namespace());
        let named: Vec<_> = self.pods.iter().map(|name| Target::new(namespace, name)).collect();
        let mut released = std::pin::pin!(ungate.release_all(&named));
        while let Some((pod, freed)) = released.next().await {
            counts.add(pod, &freed)?;
        }
        let (at, failed) = (&connection.name, counts.failed);
        super::print(&format!(
            "{} released, {} already free, {failed} failed: {at}\n",
            counts.released, counts.already_free
        ))?;
        let context = self.cluster.context.iter().map(|name| format!(" --context {name}"));
        let context: String = context.collect();
        for (domain, pods) in &others {
            super::note(&format!(
                "{pods} pods are still gated, by the gate of the domain {domain}, which another edgeward may have; to release them: \
                 edgeward release --all --domain {domain}{context}"
            ));
        }
        let is_missed = !is_domain_known && !others.is_empty();
        Ok(ExitCode::from(u8::from(failed > 0 || is_missed)))
    }
}

fn of_domain(domain: &str) -> anyhow::Result<Config> {
    Ok(Config::read(&json!({"domain": domain}))?)
}

impl Counts {
    /// Counts a pod and prints its line.
    fn add(&mut self, pod: &Target, freed: &Freed) -> anyhow::Result<()> {
        let (count, what) = match freed {
            Freed::Released => (&mut self.released, "released".to_owned()),
            Freed::AlreadyFree => (&mut self.already_free, "already free".to_owned()),
            Freed::Failed(why) => (&mut self.failed, format!("failed: {why}")),
        };
        *count += 1;
        super::print(&format!("{}/{} {what}\n", pod.namespace, pod.name))
    }
}

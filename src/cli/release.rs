//! `edgeward release`: our gate off pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args};
use edgeward_core::config::Config;
use futures::StreamExt as _;
use serde_json::json;

use super::Cluster;
use crate::controllers::gate::{Freed, Target, Ungate};
use crate::inspect::Connection;
use crate::inspect::installation::Webhook;

/// How long the API servers go on calling a webhook whose configuration was deleted: until their watch tells them, and for
/// the second that they wait for an answer. Nobody says when that is over.
const UNREGISTERED: Duration = Duration::from_secs(3);

/// How far apart lists are while pods may still be gated.
const PAUSE: Duration = Duration::from_secs(1);

/// Take edgeward's gate off gated pods, and change nothing else.
///
/// They go to kube-scheduler as they are, without a placement of ours. A line for each pod (released, already free, or failed
/// and why), and the counts. For uninstalling, `--all --unregister` sees to it that no other pod is gated afterwards
/// (docs/guide/operate.md#uninstall).
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["all", "pods"])))]
// Even a cluster with many gated pods is done within this time.
#[command(mut_arg("timeout", |timeout| timeout
    .default_value("300")
    .help("Seconds after which it is given up; what was done is done, and it can be run again")))]
#[command(
    after_help = "Exit code 0: none of these pods carries the gate any more; 1: some may. So it is with --all where pods are \
                  behind the gate of another domain and ours is not known: by --domain, --config or the deleted configuration."
)]
pub(super) struct Release {
    /// Every pod that carries the gate, in every namespace.
    #[arg(long)]
    all: bool,

    /// First delete this MutatingWebhookConfiguration (zz-edgeward if none is named), so that no pod is gated any more. One
    /// that is gone is no fault.
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

    /// Pods, by name.
    #[arg(value_name = "POD", value_parser = super::name)]
    pods: Vec<String>,

    /// Namespace of the pods; without, that of the context.
    #[arg(short, long, conflicts_with = "all", value_parser = super::name)]
    namespace: Option<String>,

    /// Configuration (docs/reference/settings.md), whose domain names the gate: a file, or a directory with the keys of a
    /// ConfigMap; defaults without.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// The domain that names the gate, where no configuration is at hand; without, that of the configuration which --unregister
    /// deletes.
    #[arg(long, value_name = "DOMAIN", conflicts_with = "config")]
    domain: Option<String>,

    #[command(flatten)]
    cluster: Cluster,
}

/// How many pods became what.
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

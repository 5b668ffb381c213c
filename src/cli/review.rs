//! `edgeward review`: decides the pods in files, with a fleet file or through an API server.

mod live;
pub(super) mod oam;
pub(super) mod offline;
pub(super) mod report;
pub(super) mod subject;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{ArgGroup, Args, ValueEnum};
use edgeward_decision::config::Config;

use super::Cluster;
use crate::platform::clock::Clock;
use crate::platform::yaml;
use report::{Item, ReviewList};
use subject::Subject;

/// Show what edgeward would do with pods, and why, with a fleet file or a live cluster.
///
/// Reads Pods, AdmissionReviews, workloads with a pod template (Deployment, ReplicaSet, StatefulSet, DaemonSet, Job,
/// CronJob), OAM Applications of KubeVela and Lists of them. Other kinds are skipped and named on standard error. With --fleet, requests default to
/// limits as in the API server, and `assumptions` lists facts that only a cluster knows.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("view").required(true).args(["fleet", "live"])))]
#[command(after_help = "Exit code 3: an SLO has faults.")]
pub(super) struct Review {
    /// YAML or JSON with pods, any number of documents; `-` is standard input. May be repeated.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    filename: Vec<PathBuf>,

    /// Fleet file (docs/reference/fleet-file.md), as `edgeward fleet -o yaml` prints it.
    #[arg(long, value_name = "FILE", conflicts_with = "context")]
    fleet: Option<PathBuf>,

    /// Send each pod to the API server as a dry run, which stores nothing, and show the answer.
    #[arg(long)]
    live: bool,

    #[command(flatten)]
    cluster: Cluster,

    /// Configuration: a file, or a directory with the keys of a ConfigMap. Without it, the defaults apply.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// Namespace of pods that name none. Default: that of the context with --live, else `default`.
    #[arg(short, long)]
    namespace: Option<String>,

    /// `json` and `yaml` print one ReviewList (docs/reference/output.md). `patch` prints one JSONPatch per pod and
    /// line, not with --live.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
    Yaml,
    Patch,
}

impl Review {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let config = super::read_config(self.config.as_deref())?;
        let items = match &self.fleet {
            Some(fleet) => self.offline(&config, fleet)?,
            None => self.live(&config)?,
        };
        let is_faulty = items.iter().any(|item| !item.faults.is_empty());
        super::print(&self.output.render(&ReviewList::new(items))?)?;
        Ok(if is_faulty { 3.into() } else { ExitCode::SUCCESS })
    }

    fn offline(&self, config: &Config, fleet: &Path) -> anyhow::Result<Vec<Item>> {
        let now = Clock::start().now();
        let snapshot = offline::scored_snapshot(&super::read_text(fleet)?, &fleet.display().to_string(), config, now)?;
        let namespace = self.namespace.as_deref().unwrap_or("default");
        let subjects = self.subjects(config)?;
        let items = subjects
            .iter()
            .map(|subject| offline::review(subject, namespace, &snapshot, config, now));
        items.collect()
    }

    fn live(&self, config: &Config) -> anyhow::Result<Vec<Item>> {
        if self.output == Output::Patch {
            bail!("--output patch is not for --live: an API server answers with the pod, not with the patch");
        }
        let subjects = self.subjects(config)?;
        self.cluster.ask(async |connection| {
            let default = connection.client.default_namespace();
            let namespace = self.namespace.as_deref().unwrap_or(default);
            let mut items = Vec::new();
            for subject in &subjects {
                items.push(live::review(subject, namespace, connection, config).await?);
            }
            Ok(items)
        })
    }

    /// Reads the pods of all files.
    fn subjects(&self, config: &Config) -> anyhow::Result<Vec<Subject>> {
        let (mut subjects, mut skipped) = (Vec::new(), Vec::new());
        for path in &self.filename {
            let source = match path.to_str() {
                Some("-") => "stdin".to_owned(),
                _ => path.display().to_string(),
            };
            let documents = yaml::parse_all(&super::read_text(path)?, &source)?;
            if documents.is_empty() {
                bail!("{source}: holds no document");
            }
            for (i, document) in documents.iter().enumerate() {
                let source = format!("{source}#{}", i + 1);
                subject::collect(document, &source, &config.keys, &mut subjects, &mut skipped)?;
            }
        }
        if subjects.is_empty() && !skipped.is_empty() {
            bail!("nothing here makes pods that can be reviewed: {}", skipped.join(", "));
        }
        for skipped in skipped {
            super::note(&format!("skipped {skipped}"));
        }
        Ok(subjects)
    }
}

impl Output {
    fn render(self, list: &ReviewList) -> anyhow::Result<String> {
        let format = match self {
            Output::Json => super::Output::Json,
            Output::Yaml => super::Output::Yaml,
            Output::Table => super::Output::Text,
            Output::Patch => {
                let patches = list.items.iter().map(|item| serde_json::to_string(&item.patch));
                return Ok(patches.collect::<Result<Vec<_>, _>>()?.join("\n") + "\n");
            }
        };
        format.render(list, ReviewList::table)
    }
}

//! `edgeward oam`: where the components of an OAM application would run.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{bail, ensure};
use clap::{Args, Subcommand};
use edgeward_cluster::engine::{DecisionContext, SharedState};
use edgeward_decision::config::Config;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::snapshot::Site;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::verdict::{Action, Assessment, Standing, Verdict};
use edgeward_kube::units::{Micros, Now};
use serde::Serialize;

use super::review::report::{SiteItem, harmless};
use super::review::subject::{self, Subject};
use super::review::{oam, offline};
use super::{Output, table};
use crate::platform::clock::Clock;
use crate::platform::yaml;

/// Plan applications of the Open Application Model (OAM).
#[derive(Debug, Args)]
pub(super) struct Oam {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Plan(Plan),
}

/// Show where the components of an application would run: all of them, or none.
///
/// Components are planned in their order. A component is reused if it already runs with the same traits at a usable site and
/// accepts another client. Otherwise its pods are placed as by `edgeward review`, after those planned before.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 1: a component has no place, or an error.")]
struct Plan {
    /// YAML or JSON with one Application of core.oam.dev/v1beta1; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Fleet file (docs/reference/fleet-file.md).
    #[arg(long, value_name = "FILE")]
    fleet: PathBuf,

    /// Configuration: a file, or a directory with the keys of a ConfigMap. Without it, the defaults apply.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// Namespace of the pods if the application names none.
    #[arg(short, long, default_value = "default")]
    namespace: String,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The most pods of a component.
const MAX_PODS: u64 = 10_000;

/// The plan of an application.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OamPlan {
    api_version: &'static str,
    kind: &'static str,
    /// Whether each component has a place.
    complete: bool,
    components: Vec<Planned>,
    /// Components of types that are not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<String>,
}

/// The plan of one component.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Planned {
    name: String,
    outcome: Outcome,
    /// The number of its pods by site. A component that is reused counts as one.
    pods: BTreeMap<String, u64>,
    /// Reason of the last decision. `None` if the component is reused.
    reason: Option<&'static str>,
    /// The assessment of each site for the pod that has no place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sites: Vec<SiteItem>,
}

/// A component by its name, with its pod.
type Named = (String, Subject);

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Reuse,
    Place,
    /// edgeward does not manage its pods, which may run anywhere.
    Pass,
    None,
}

impl Oam {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Command::Plan(plan) = self.command;
        plan.run()
    }
}

impl Plan {
    fn run(self) -> anyhow::Result<ExitCode> {
        let config = super::read_config(self.config.as_deref())?;
        let now = Clock::start().now();
        let fleet = super::read_text(&self.fleet)?;
        let snapshot = offline::scored_snapshot(&fleet, &self.fleet.display().to_string(), &config, now)?;
        // No time passes while the plan is made, so no reservation ends.
        let state = SharedState::new(Arc::new(snapshot), Micros::from_secs(1));
        let (subjects, skipped) = self.subjects(&config)?;
        let mut components = vec![];
        for (name, subject) in subjects {
            components.push(planned(name, &subject, &self.namespace, &state, &config, now)?);
        }
        let plan = OamPlan {
            api_version: "edgeward.io/v1alpha1",
            kind: "OamPlan",
            complete: skipped.is_empty() && components.iter().all(|component| component.outcome != Outcome::None),
            components,
            skipped,
        };
        self.output.print(&plan, OamPlan::text)?;
        Ok(if plan.complete {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    /// Reads the components, each with its name and its pod, and the names of those that are skipped.
    fn subjects(&self, config: &Config) -> anyhow::Result<(Vec<Named>, Vec<String>)> {
        let source = self.file.display().to_string();
        let document = yaml::parse_one(&super::read_text(&self.file)?, &source)?;
        ensure!(
            oam::is_application(&document),
            "{source}: is not an Application of core.oam.dev/v1beta1"
        );
        let (mut named, mut skipped) = (vec![], vec![]);
        for (place, workload) in oam::workloads(&document, &source, &config.keys, &mut skipped)? {
            let mut subjects = vec![];
            subject::collect(&workload, &place, &config.keys, &mut subjects, &mut skipped)?;
            let name = workload["metadata"]["name"].as_str().unwrap_or_default();
            named.extend(subjects.into_iter().map(|subject| (name.to_owned(), subject)));
        }
        for skipped in skipped {
            super::note(&format!("skipped {skipped}"));
        }
        ensure!(!named.is_empty(), "{source}: has no component that makes pods");
        let all = document["spec"]["components"].as_array().into_iter().flatten();
        let names = all.filter_map(|component| component["name"].as_str());
        let others = names.filter(|name| !named.iter().any(|(known, _)| known == name));
        let others = others.map(str::to_owned).collect();
        Ok((named, others))
    }
}

/// Plans one component after the ones whose room is reserved in `state`.
fn planned(
    name: String,
    subject: &Subject,
    namespace: &str,
    state: &SharedState,
    config: &Config,
    now: Now,
) -> anyhow::Result<Planned> {
    let mut pod = subject.pod()?;
    pod.apply_api_defaults();
    let namespace = subject.namespace.as_deref().unwrap_or(namespace);
    let workload = pod.workload(namespace.into(), &config.keys);
    let context = || DecisionContext {
        config,
        id: DecisionId(uuid::Uuid::new_v4().as_u128()),
        now,
    };
    let read = OnceCell::new();
    let verdict = state.review(&read, &workload, context(), || false);
    if let Some(fault) = verdict.faults.first() {
        bail!("{}: {fault}", subject.source);
    }
    ensure!(
        subject.others < MAX_PODS,
        "{}: has more than {MAX_PODS} pods",
        subject.source
    );
    let mut planned = Planned {
        name,
        outcome: Outcome::Place,
        pods: BTreeMap::new(),
        reason: None,
        sites: vec![],
    };
    if matches!(verdict.action, Action::PassThrough) {
        planned.outcome = Outcome::Pass;
        planned.reason = Some(verdict.reason.as_str());
        return Ok(planned);
    }
    if let Some(site) = reusable(&planned.name, &workload, &verdict) {
        planned.outcome = Outcome::Reuse;
        planned.pods.insert(site.name().to_owned(), 1);
        return Ok(planned);
    }
    for _ in 0..=subject.others {
        let read = OnceCell::new();
        let verdict = state.review(&read, &workload, context(), || true);
        planned.reason = Some(verdict.reason.as_str());
        // The only possible site takes a pod even if it has no room or cannot be used now.
        let Some(chosen) = verdict.chosen().filter(|chosen| chosen.standing() <= Standing::Late) else {
            planned.outcome = Outcome::None;
            planned.pods.clear();
            planned.reason = None;
            planned.sites = SiteItem::all(&verdict);
            break;
        };
        *planned.pods.entry(chosen.site.name().to_owned()).or_default() += 1;
    }
    Ok(planned)
}

/// Returns the nearest site where the component runs and takes another client. The pod must not be refused there, other than
/// for room.
fn reusable<'s>(name: &str, workload: &Workload<'_>, verdict: &Verdict<'s>) -> Option<&'s Site> {
    let traits = workload.traits().cloned().unwrap_or_default();
    let serves = |found: &&Assessment<'s>| {
        let mut refusals = found.refusals.iter();
        refusals.all(|refusal| refusal.code.standing() == Standing::Full)
            && found
                .site
                .components
                .iter()
                .any(|component| component.serves(name, &traits))
    };
    let found = verdict.sites.iter().filter(serves);
    let nearest = found.min_by_key(|found| (found.estimate.wan.is_none(), found.estimate.wan));
    nearest.map(|found| found.site)
}

impl OamPlan {
    /// Formats the plan for people.
    fn text(&self) -> String {
        let mut text = table("COMPONENT,PLAN,SITES,REASON", self.components.iter().map(Planned::row));
        let missing = self
            .components
            .iter()
            .filter(|component| component.outcome == Outcome::None);
        for component in missing {
            text += &format!(
                "\nno place for {}, so the application has none\n",
                harmless(&component.name)
            );
            let lines = component.sites.iter().map(SiteItem::line);
            lines.for_each(|line| text += &format!("  {}\n", harmless(&line)));
        }
        if !self.skipped.is_empty() {
            text += &format!("\nnot planned: {}\n", harmless(&self.skipped.join(", ")));
        }
        text
    }
}

impl Planned {
    fn row(&self) -> [String; 4] {
        let outcome = match self.outcome {
            Outcome::Reuse => "reuse",
            Outcome::Place => "place",
            Outcome::Pass => "pass",
            Outcome::None => "none",
        };
        let sites = self.pods.iter().map(|(site, pods)| match pods {
            1 => site.clone(),
            pods => format!("{site} ({pods})"),
        });
        let sites = sites.collect::<Vec<_>>().join(", ");
        [
            harmless(&self.name),
            outcome.to_owned(),
            if sites.is_empty() { "-".to_owned() } else { sites },
            self.reason.unwrap_or("-").to_owned(),
        ]
    }
}

//! kube-scheduler's extender: which of the offered nodes a pod may use (`docs/guide/extender.md`).
//!
//! The Go types have no JSON names, so each key is the name of a Go field. Source:
//! <https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1>.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use edgeward_cluster::engine::{Attempt, DecisionContext, Outcome};
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::decide::unmanaged;
use edgeward_decision::placement::verdict::{Action, Reason, Verdict};
use edgeward_decision::pod::Pod;
use edgeward_kube::excerpt::excerpt;
use edgeward_kube::units::Micros;
use edgeward_kube::words;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::admission::review::{MAX_ELEMENTS, Reviewer, SHOWN_ERROR, commas, shorten, shown};
use crate::admission::{Answer, Responder, Route};

/// kube-scheduler does not state its `httpTimeout`. The guide says that it must be no shorter than this.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The highest score that an extender may give.
const HIGHEST: i64 = 10;

words! {
    /// A call of kube-scheduler: the last part of the path, and the label `verb`.
    pub enum Verb {
        /// Keeps the nodes that the pod may use.
        Filter = "filter",
        /// Scores nodes.
        Prioritize = "prioritize",
    }
}

/// The paths that kube-scheduler calls. They are served while the configuration says so.
pub fn routes(reviewer: &Arc<Reviewer>) -> [Route; 2] {
    let route = |path, verb| Route {
        path,
        answer: Arc::new(Extender {
            verb,
            reviewer: Arc::clone(reviewer),
        }),
        timeout: TIMEOUT,
    };
    [
        route("/extender/filter", Verb::Filter),
        route("/extender/prioritize", Verb::Prioritize),
    ]
}

/// Answers one of the calls.
struct Extender {
    verb: Verb,
    reviewer: Arc<Reviewer>,
}

impl Answer for Extender {
    fn is_served(&self) -> bool {
        self.reviewer.config.load().extender.enabled
    }

    fn review(&self, body: &[u8], responder: &Responder) -> anyhow::Result<Vec<u8>> {
        let args = Args::read(body)?;
        let text = args.pod.get();
        if commas(text) > MAX_ELEMENTS {
            return Ok(self.pass(&args.node_names, Reason::TooLarge, responder));
        }
        match Pod::from_json(text) {
            Ok(pod) => self.decide(&args.node_names, pod, responder),
            Err(_) => Ok(self.pass(&args.node_names, Reason::NotAPodCreate, responder)),
        }
    }

    fn no_opinion(&self, body: &[u8], why: Reason, _: Duration) -> anyhow::Result<Vec<u8>> {
        let args = Args::read(body)?;
        self.count(&Verdict::pass_through(why));
        Ok(self.answer(&args.node_names, |_| true, ""))
    }
}

impl Extender {
    /// The answer for a pod that is not decided.
    fn pass(&self, offered: &[String], why: Reason, responder: &Responder) -> Vec<u8> {
        if responder.take() {
            self.count(&Verdict::pass_through(why));
        }
        self.answer(offered, |_| true, "")
    }

    /// Decides about the pod, and reserves its room if an offered node is of its site.
    fn decide(&self, offered: &[String], mut pod: Pod<'_>, responder: &Responder) -> anyhow::Result<Vec<u8>> {
        let reviewer = &*self.reviewer;
        let config = reviewer.config.load();
        let now = reviewer.clock.now();
        let metadata = pod.metadata.as_ref().context("the pod has no metadata")?;
        let uid = metadata.uid.stated().unwrap_or_default().to_owned();
        let id = DecisionId::parse(&uid).context("the pod's uid is no UUID")?;
        let created: Option<jiff::Timestamp> = metadata.creation_timestamp.parse().ok();
        let age = created.map(|created| now.wall.duration_since(created).as_micros());
        let attempt = Attempt {
            waited: Micros(age.and_then(|age| u64::try_from(age).ok()).unwrap_or(0)),
            offered: offered.iter().map(|node| &**node).collect(),
        };
        let namespace = pod.namespace().unwrap_or_default().to_owned();
        reviewer.policies.load().apply(&mut pod, &namespace, &config.keys);
        let workload = Workload {
            unpatchable: true,
            // It gets none any more.
            runtime_class: true,
            shadow: pod.is_marked_as_shadow(),
            ..pod.workload(Cow::Owned(namespace), &config.keys)
        };
        if let Some(why) = unmanaged(&workload, &config) {
            return Ok(self.pass(offered, why, responder));
        }
        let context = DecisionContext {
            config: &config,
            id,
            now,
        };
        let (read, mut is_ours) = (OnceCell::new(), false);
        let verdict = reviewer
            .shared
            .schedule(&read, &workload, &attempt, context, |verdict| {
                is_ours = responder.take();
                let keeps_any = offered.iter().any(|node| is_kept(node, &workload, verdict));
                match self.verb {
                    _ if is_ours && keeps_any => Outcome::Reserve,
                    Verb::Filter if is_ours => Outcome::Free,
                    _ => Outcome::Leave,
                }
            });
        if is_ours {
            self.count(&verdict);
            if self.verb == Verb::Filter {
                reviewer.metrics.learned(&verdict);
            }
            self.log(&uid, &pod, &workload, &verdict);
        }
        Ok(self.answer(offered, |node| is_kept(node, &workload, &verdict), &why(&verdict)))
    }

    /// The answer to the call. `why` says why nodes are not kept.
    ///
    /// Evicting pods would not open such a node, so kube-scheduler must not preempt there.
    fn answer(&self, offered: &[String], is_kept: impl Fn(&str) -> bool, why: &str) -> Vec<u8> {
        let (kept, failed): (Vec<&str>, Vec<&str>) = offered.iter().map(|node| &**node).partition(|node| is_kept(node));
        let answer = match self.verb {
            Verb::Filter => serde_json::to_vec(&Kept {
                node_names: kept,
                failed_and_unresolvable_nodes: failed.into_iter().map(|node| (node, why)).collect(),
            }),
            Verb::Prioritize => {
                let scored = |score| move |host| Score { host, score };
                let others = failed.into_iter().map(scored(0));
                serde_json::to_vec(&kept.into_iter().map(scored(HIGHEST)).chain(others).collect::<Vec<_>>())
            }
        };
        // These have no key that is not a text.
        answer.unwrap_or_default()
    }

    fn count(&self, verdict: &Verdict<'_>) {
        let labels = [self.verb.as_str(), verdict.action.as_str(), verdict.reason.as_str()];
        self.reviewer.metrics.extender_calls.at(labels).inc();
    }

    /// Logs a verdict of the filter at a bounded rate, because kube-scheduler asks again about a pod that it cannot place.
    fn log(&self, uid: &str, pod: &Pod<'_>, workload: &Workload<'_>, verdict: &Verdict<'_>) {
        if self.verb != Verb::Filter || matches!(verdict.action, Action::PassThrough) {
            return;
        }
        if let Some(held_back) = self.reviewer.log_limit.due("extender") {
            tracing::info!(
                uid,
                namespace = shown(&workload.namespace),
                name = shown(pod.name()),
                verdict = verdict.action.as_str(),
                site = verdict.site().map(|site| site.name()),
                reason = verdict.reason.as_str(),
                held_back,
                "decided for kube-scheduler"
            );
        }
    }
}

/// Whether the pod may use this node: it is of the chosen site and has the required traits, or the pod passes through.
fn is_kept(node: &str, workload: &Workload<'_>, verdict: &Verdict<'_>) -> bool {
    match verdict.action {
        Action::Place(site) => site.node(node).is_some_and(|node| {
            let traits = workload.traits();
            traits.is_none_or(|traits| traits.are_at(node, &site.definition))
        }),
        Action::PassThrough => true,
        Action::Gate | Action::Deny => false,
    }
}

/// Why the other nodes are not kept, for the pod's status and Events.
fn why(verdict: &Verdict<'_>) -> String {
    let reason = verdict.reason.as_str();
    match verdict.action {
        Action::Place(site) => format!("edgeward chose {} ({reason})", site.name()),
        Action::PassThrough => String::new(),
        Action::Gate => format!("edgeward waits ({reason})"),
        Action::Deny => {
            let faults = verdict.faults.iter().map(ToString::to_string).collect::<Vec<_>>();
            shorten(&format!("edgeward: invalid SLO: {}", faults.join("; ")))
        }
    }
}

/// The parts of `ExtenderFilterResult` that are written.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Kept<'a> {
    node_names: Vec<&'a str>,
    failed_and_unresolvable_nodes: BTreeMap<&'a str, &'a str>,
}

/// `HostPriority`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Score<'a> {
    host: &'a str,
    score: i64,
}

/// The parts of `ExtenderArgs` that are read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WrittenArgs<'a> {
    #[serde(borrow)]
    pod: &'a RawValue,
    #[serde(borrow)]
    node_names: Option<&'a RawValue>,
}

/// A pod, and the names of the nodes that passed kube-scheduler's own filters.
struct Args<'a> {
    pod: &'a RawValue,
    node_names: Vec<String>,
}

impl<'a> Args<'a> {
    fn read(body: &'a [u8]) -> anyhow::Result<Self> {
        let written: WrittenArgs<'a> = serde_json::from_slice(body)
            .map_err(|error| anyhow!("not the arguments of an extender: {}", excerpt(error, SHOWN_ERROR)))?;
        let names = written.node_names;
        let names = names.context("no NodeNames: configure the extender with nodeCacheCapable: true")?;
        ensure!(
            commas(names.get()) < MAX_ELEMENTS,
            "NodeNames has more than {MAX_ELEMENTS} entries"
        );
        let node_names =
            serde_json::from_str(names.get()).map_err(|error| anyhow!("NodeNames: {}", excerpt(error, SHOWN_ERROR)))?;
        Ok(Self {
            pod: written.pod,
            node_names,
        })
    }
}

#[cfg(test)]
mod tests;

//! `edgeward why`: explains why a pod is where it is, or why it does not run.

mod explanation;
mod scheduling_state;

use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use edgeward_cluster::pod_record::record;
use edgeward_decision::config::Config;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::decide::decide_with_scores;
use edgeward_decision::placement::ledger::Ledger;
use edgeward_decision::placement::room::Room;
use edgeward_decision::pod::Pod;
use edgeward_kube::units::Micros;
use kube::Api;

use self::explanation::{Explanation, Now, Queue, Subject};
use self::scheduling_state::SchedulingState;
use super::installed::{Installed, LEASE};
use super::sentence;
use super::undecided::{self, Undecided};
use super::{Cluster, Output};
use crate::inspect::{self, Connection, View};
use crate::scorer;
use crate::watch::raw::{Gvr, Raw};

/// Explain why a pod is where it is, or why it does not run.
///
/// The first line is the answer. Then come the decision at creation with its numbers, where the pod is, what edgeward
/// would decide now with the numbers of every site, and what has changed. Lists nodes, pods and namespaces once, probes
/// the cloud sites once, and changes nothing. Also reads the Lease for a gated pod, and the Events of a pod whose node
/// reports no containers.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 answered; 1 there is no such pod, or the cluster did not answer.")]
pub(super) struct Why {
    /// NAME or pod/NAME.
    #[arg(value_name = "[pod/]NAME", value_parser = pod_name)]
    pod: String,

    /// Namespace of the pod. Default: that of the context.
    #[arg(short, long)]
    namespace: Option<String>,

    #[command(flatten)]
    installed: Installed,

    #[command(flatten)]
    cluster: Cluster,

    /// Output format; `json` and `yaml` are for programs (docs/reference/output.md).
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

fn pod_name(text: &str) -> Result<String, String> {
    let mut kinds = ["pod/", "pods/", "po/"].iter();
    super::name(kinds.find_map(|kind| text.strip_prefix(kind)).unwrap_or(text))
}

impl Why {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let explanation = self.cluster.ask(async |connection| self.explain(connection).await)?;
        self.output.print(&explanation, Explanation::text)
    }

    async fn explain(&self, connection: &Connection) -> anyhow::Result<Explanation> {
        let namespace = self
            .namespace
            .as_deref()
            .unwrap_or(connection.client.default_namespace());
        let name = &self.pod;
        let found = self.installed.read(connection).await?;
        let pods = Api::<Raw>::namespaced_with(connection.client.clone(), namespace, &Gvr::PODS);
        let json = connection.get_from(pods, name).await?;
        let json = json.with_context(|| format!("{}: there is no pod {namespace}/{name}", connection.name))?;
        let mut notes: Vec<_> = found.assumption().into_iter().collect();
        let mut pod = Pod::from_json(json.json()).with_context(|| format!("pod {namespace}/{name} cannot be read"))?;
        let record = record(&pod, &found.config.keys)?;
        let record = record.with_context(|| format!("pod {namespace}/{name} has no uid"))?;
        let gated_pod = record.gated_pod.as_ref();
        // The resources that the pod itself uses count as free.
        let without = gated_pod.is_none().then_some(&*record.uid);
        let (view, engine) = inspect::view(connection, found.config, without).await?;
        notes.extend(view.unread.iter().map(note));
        view.policies.apply(&mut pod, namespace, &view.config.keys);
        let View {
            config, mut snapshot, ..
        } = view;
        let scorer = scorer::read(connection, &self.installed.namespace(), &config.scorer).await;
        Arc::make_mut(&mut snapshot).scorer = noted(scorer, &mut notes).flatten();
        let now = connection.clock.now();
        let site = engine.cache().site_of(&record).map(|site| site.name.clone());
        let place = engine.waitlist().position(&record.uid, &snapshot, &config, now.moment);

        let mut state = SchedulingState::read(json.json(), &config.keys, site, now.wall)?;
        if state.is_silent {
            let events = inspect::events(connection, namespace, &record.uid).await;
            state.events = noted(events, &mut notes).unwrap_or_default();
        }
        let workload = as_it_arrived(&pod, namespace, &state, &snapshot, &config);
        let queue_key = match (place, gated_pod) {
            (Some((queue_key, _)), _) => queue_key,
            (None, Some(gated)) => gated.queue_key_of(&workload, &config),
            (None, None) => workload.queue_key(&config.priority_caps, None),
        };
        let ledger = Ledger::default();
        let room = Room::new(&snapshot, &ledger, queue_key, &workload.namespace);
        let verdict = decide_with_scores(&workload, &room, &config, now);
        let mut queue = None;
        if let Some(pod) = gated_pod {
            let lead = connection.lead(&self.installed.namespace(), LEASE).await;
            queue = Some(Queue {
                ahead: place.map(|(_, ahead)| ahead),
                gated: view.gated.len(),
                limit_over: pod.limit(&config, now.wall).filter(|end| *end < now.wall),
                leaderless: noted(lead, &mut notes).and_then(Result::err),
            });
        }
        let causes = match (&state.decided, state.other_domain(&config.keys)) {
            (Some(_), _) => vec![],
            (None, Some(cause)) => vec![cause],
            (None, None) => {
                let undecided = Undecided {
                    workload: &workload,
                    created: record.created,
                    on_node: record.node.is_some(),
                };
                undecided::causes(connection, &config, &undecided).await
            }
        };
        let subject = Subject {
            namespace,
            name,
            workload: &workload,
            snapshot: &snapshot,
        };
        let now = Now::from(&verdict);
        Ok(Explanation::new(subject, state, queue, now, causes, notes, &config))
    }
}

fn note(error: &anyhow::Error) -> String {
    format!("not taken into account: {}", sentence(error))
}

/// Returns what was read. Turns an error into a note and `None`.
fn noted<T>(read: anyhow::Result<T>, notes: &mut Vec<String>) -> Option<T> {
    read.map_err(|error| notes.push(note(&error))).ok()
}

/// Returns the pod as it would arrive now: without a node, and without the fields that edgeward's decision wrote.
fn as_it_arrived<'p>(
    pod: &Pod<'p>,
    namespace: &'p str,
    state: &SchedulingState,
    snapshot: &Snapshot,
    config: &Config,
) -> Workload<'p> {
    let mut workload = pod.workload(namespace.into(), &config.keys);
    workload.bound = false;
    // An existing pod does not show who created it.
    workload.shadow = pod.is_marked_as_shadow();
    if let Some(seconds) = state.gated_seconds {
        workload.gated_for = Some(Micros::from_secs(seconds));
    }
    let decided = state.decided.as_ref().map(|decided| &*decided.reason);
    let site = snapshot
        .sites
        .iter()
        .find(|site| Some(site.name()) == state.site.as_deref());
    workload.without_placement(decided, site.map(|site| &*site.definition))
}

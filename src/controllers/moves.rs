//! Evicts pods for which another site has become better. This runs on the replica that holds the Lease.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use edgeward_cluster::moves::{Blocker, Evaluation, Memory, Missed, MovesReport, Outlook, View, Why};
use edgeward_kube::units::Now;
use http::Request;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Context;
use super::events::{PodEvent, PodReason};
use crate::platform::blocking::{at_leisure, blocking};

/// The most pods that the Lease names.
const NAMED: usize = 100;

/// What the Lease says about a pod that is better elsewhere.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Noted {
    /// Why it would be moved.
    pub why: Why,
    /// Where it would go.
    pub to: Option<Arc<str>>,
    /// Since when it has been better elsewhere.
    pub since: Timestamp,
    /// What blocks its move.
    pub blocked: Option<Blocker>,
}

/// Evaluates the pods each time the engine reports them, while this replica holds the Lease. Never returns.
pub async fn run(context: Context, mut reports: watch::Receiver<Arc<MovesReport>>) {
    while context.leadership.during(serve(&context, &mut reports)).await.is_none() {
        // The next leader remembers nothing, and waits for `dwell`.
        context.metrics.moves_stopped.set(0);
        context.leadership.note_moves(String::new());
    }
}

async fn serve(context: &Context, reports: &mut watch::Receiver<Arc<MovesReport>>) {
    let mut mover = Mover {
        context,
        memory: Memory::default(),
        told: HashSet::new(),
    };
    while reports.changed().await.is_ok() {
        let report = Arc::clone(&reports.borrow_and_update());
        at_leisure(context.clock, mover.evaluate(report)).await;
    }
}

struct Mover<'c> {
    context: &'c Context,
    memory: Memory,
    /// Uids of the pods whose lost traits were reported.
    told: HashSet<Arc<str>>,
}

impl Mover<'_> {
    /// Judges the pods, writes Events, and evicts at most one pod.
    async fn evaluate(&mut self, report: Arc<MovesReport>) {
        let context = self.context;
        let (config, now) = (context.config.load_full(), context.clock.now());
        let (snapshot, ledger) = (context.shared.snapshot(), context.shared.ledger().clone());
        let (mut memory, seen) = (std::mem::take(&mut self.memory), Arc::clone(&report));
        let dwell = config.moves.dwell;
        let (memory, evaluation) = blocking(move || {
            let evaluation = memory.evaluate(
                &seen,
                View {
                    snapshot: &snapshot,
                    ledger: &ledger,
                    config: &config,
                    now,
                },
            );
            (memory, evaluation)
        })
        .await;
        self.memory = memory;
        context.metrics.moves_stopped.set(evaluation.is_stopped.into());
        context.leadership.note_moves(note(&evaluation.outlooks, now));
        for missed in &evaluation.missed {
            context.metrics.moves.at([missed.why.as_str(), "missed"]).inc();
            context.events.record(missed_event(missed, now));
        }
        self.tell_lost_traits(&evaluation, now, |outlook| outlook.since.after(dwell) <= now.moment);
        if let Some(outlook) = evaluation.next.map(|at| &evaluation.outlooks[at]) {
            self.evict(outlook, &report, now).await;
        }
    }

    /// Writes an Event on each pod that has lost what it requires and has no other good site.
    fn tell_lost_traits(&mut self, evaluation: &Evaluation, now: Now, is_over: impl Fn(&Outlook) -> bool) {
        let is_lost = |outlook: &&Outlook| outlook.to.is_none() && is_over(outlook);
        let told = std::mem::take(&mut self.told);
        for outlook in evaluation.outlooks.iter().filter(is_lost) {
            let uid = &outlook.pod.member.uid;
            if !told.contains(uid) {
                self.context.events.record(lost_event(outlook, now));
            }
            self.told.insert(Arc::clone(uid));
        }
    }

    /// Evicts the pod, so that budgets hold. The request names the uid, so it never evicts another pod of this name.
    async fn evict(&mut self, outlook: &Outlook, report: &MovesReport, now: Now) {
        let (pod, context) = (&outlook.pod, self.context);
        let (namespace, name) = (&*pod.namespace, &*pod.member.name);
        if !context.leadership.is_held() {
            return;
        }
        let evicted = match eviction(namespace, name, &pod.member.uid) {
            Ok(request) => context.client.request::<Value>(request).await,
            Err(error) => Err(kube::Error::HttpError(error)),
        };
        let (why, to) = (outlook.why.as_str(), outlook.to.as_deref().unwrap_or_default());
        let result = match evicted {
            Ok(_) => {
                tracing::info!(
                    namespace,
                    name,
                    why,
                    to,
                    "evicted a pod, because another site is better for it"
                );
                context.events.record(moved_event(outlook, now));
                self.memory.evicted(outlook, report, now.moment);
                "evicted"
            }
            // The pod is gone, or another pod has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => "gone",
            // With 500 the API server refuses a pod of several budgets.
            Err(kube::Error::Api(status)) if status.code <= 500 => {
                let error = status.message;
                tracing::warn!(namespace, name, why, error, "the API server refused an eviction");
                self.memory.refused(outlook, now.moment);
                if status.code == 429 { "budget" } else { "refused" }
            }
            Err(error) => {
                tracing::warn!(namespace, name, why, %error, "it is not known whether a pod was evicted");
                self.memory.evicted(outlook, report, now.moment);
                "unknown"
            }
        };
        context.metrics.moves.at([why, result]).inc();
    }
}

/// The request that evicts the pod with this uid. kube's own type sends the precondition under a name that the API server
/// ignores.
fn eviction(namespace: &str, name: &str, uid: &str) -> Result<Request<Vec<u8>>, http::Error> {
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": uid}},
    });
    Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"))
        .header("Content-Type", "application/json")
        .body(body.to_string().into_bytes())
}

/// What is known of the pods that are better elsewhere, by uid, as JSON. Empty without such pods.
fn note(outlooks: &[Outlook], now: Now) -> String {
    let mut better: Vec<_> = outlooks.iter().filter(|outlook| outlook.to.is_some()).collect();
    better.sort_by_key(|outlook| (outlook.why, outlook.since));
    better.truncate(NAMED);
    let known = |outlook: &Outlook| {
        let ago = now.moment.since(outlook.since).signed();
        let since = now.wall - jiff::SignedDuration::from_micros(ago);
        Noted {
            why: outlook.why,
            to: outlook.to.clone(),
            since: since.round(jiff::Unit::Second).unwrap_or(since),
            blocked: outlook.blocker,
        }
    };
    let noted = better.iter().map(|outlook| (&outlook.pod.member.uid, known(outlook)));
    let noted: BTreeMap<_, _> = noted.collect();
    if noted.is_empty() {
        return String::new();
    }
    json!(noted).to_string()
}

/// Why a pod is moved, in words.
fn in_words(why: Why) -> &'static str {
    match why {
        Why::Unschedulable => "kube-scheduler finds no node for it",
        Why::Trait => "its node or site lacks a trait that it requires",
        Why::Distance => "the RTT of its site is not below its distance limit",
        Why::Home => "the edge has room for it",
        Why::Profile => "its performance profile prefers another site",
    }
}

fn place(site: Option<&Arc<str>>) -> String {
    site.map_or("no site".to_owned(), |site| format!("site {site}"))
}

fn moved_event(outlook: &Outlook, now: Now) -> PodEvent {
    let seconds = now.moment.since(outlook.since).0 / 1_000_000;
    let (from, to) = (place(outlook.pod.site.as_ref()), place(outlook.to.as_ref()));
    let why = in_words(outlook.why);
    let note = format!("evicted from {from}: {why}; decided now it would be sent to {to}, since {seconds} s");
    event(&outlook.pod, PodReason::Moved, note, now)
}

fn missed_event(missed: &Missed, now: Now) -> PodEvent {
    let (found, expected) = (place(missed.pod.site.as_ref()), &missed.expected);
    let reason = missed.pod.member.reason.as_deref().unwrap_or_default();
    let requests: Vec<_> = missed.pod.request.quantities().collect();
    let note = format!(
        "created after an eviction for site {expected}, but sent to {found} ({reason}); asks for {}; no other pod of its owner \
         is evicted for twice moves.dwell, and longer each time",
        requests.join(", ")
    );
    event(&missed.pod, PodReason::MoveMissed, note, now)
}

fn lost_event(outlook: &Outlook, now: Now) -> PodEvent {
    let seconds = now.moment.since(outlook.since).0 / 1_000_000;
    let (place, why) = (place(outlook.pod.site.as_ref()), in_words(outlook.why));
    let note = format!("stays at {place}: {why} since {seconds} s, and no other site is good for it");
    event(&outlook.pod, PodReason::TraitLost, note, now)
}

fn event(pod: &edgeward_cluster::moves::Seen, reason: PodReason, note: String, now: Now) -> PodEvent {
    PodEvent {
        namespace: (&*pod.namespace).into(),
        name: pod.member.name.clone(),
        uid: (&*pod.member.uid).into(),
        reason,
        decision: pod.member.decision,
        at: now.wall,
        note,
    }
}

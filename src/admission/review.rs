//! One AdmissionReview, from request bytes to response bytes.
//!
//! The request is parsed into our own structs, which borrow from the body and contain only the fields used.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_cluster::engine::{DecisionContext, SharedState};
use edgeward_decision::config::Config;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::patch::{Stamp, patch};
use edgeward_decision::placement::policy::Policies;
use edgeward_decision::placement::verdict::{Action, Estimate, Learned, Reason, Verdict};
use edgeward_decision::pod::Pod;
use edgeward_kube::excerpt::{LONGEST_NAME, excerpt};
use edgeward_kube::units::Micros;
use json_patch::PatchOperation;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::admission::{Answer, Responder};
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Maximum number of list elements and fields of a pod. Each takes a few bytes of the body, but up to 500 bytes of memory
/// once parsed: `{},` may be a container.
pub(super) const MAX_ELEMENTS: usize = 20_000;

/// How many bytes of serde's error message are shown; it may quote long input.
pub(super) const SHOWN_ERROR: usize = 512;

/// Longest warning that clients show in full.
pub const WARNING_CHARS: usize = 120;

/// Answers reviews. All connections share one.
#[derive(Debug)]
pub struct Reviewer {
    /// The configuration. Its only writer replaces it as a whole.
    pub config: Arc<ArcSwap<Config>>,
    /// The SloPolicies: SLOs of pods that do not state one. Their only writer replaces them as a whole.
    pub policies: Arc<ArcSwap<Policies>>,
    /// The cluster state and reservations that decisions use.
    pub shared: Arc<SharedState>,
    /// Metrics of the reviews.
    pub metrics: Arc<Metrics>,
    /// The clock of the process.
    pub clock: Clock,
    /// Limits the log lines about reviews without a decision.
    pub log_limit: LogLimit,
}

impl Answer for Reviewer {
    /// Cost: two passes over the body and one over the nodes. Logs one line per decided pod; lines about other reviews
    /// are limited.
    fn review(&self, body: &[u8], responder: &Responder) -> anyhow::Result<Vec<u8>> {
        let request = Request::read(body)?;
        let untouched = |reason, why: &str| {
            let elapsed = responder.take().then(|| responder.elapsed());
            self.untouched(&request, reason, why, elapsed)
        };
        let Some(object) = request.object.filter(|_| request.is_pod_create()) else {
            return Ok(untouched(Reason::NotAPodCreate, "is not the creation of a pod").bytes());
        };
        let text = object.get();
        if commas(text) > MAX_ELEMENTS {
            let why = format!("has more than {MAX_ELEMENTS} list elements and fields");
            let mut response = untouched(Reason::TooLarge, &why);
            response.warn(&format!("not placed: the pod {why}"));
            return Ok(response.bytes());
        }
        let error = match Pod::from_json(text) {
            Ok(pod) => return Ok(self.decide(&request, pod, responder)),
            Err(error) => excerpt(error, SHOWN_ERROR),
        };
        // serde's message may quote the pod, so it goes to the pod's author and not to the log.
        let mut response = untouched(Reason::NotAPodCreate, "cannot be read");
        response.warn(&format!(
            "edgeward could not read the pod, which was left as it is: {error}"
        ));
        Ok(response.bytes())
    }

    /// Reads only the request's metadata, not the pod.
    fn no_opinion(&self, body: &[u8], why: Reason, elapsed: Duration) -> anyhow::Result<Vec<u8>> {
        let request = Request::read(body)?;
        let warning = match why {
            Reason::Deadline => "edgeward could not decide in time; the pod was left as it is",
            Reason::Panic => "edgeward failed on this pod, which was left as it is; please report its log",
            _ => "edgeward is not ready yet; the pod was left as it is",
        };
        let mut response = self.untouched(&request, why, warning, Some(elapsed));
        response.warn(warning);
        Ok(response.bytes())
    }
}

impl Reviewer {
    /// Decides about this pod and returns the response.
    fn decide(&self, request: &Request<'_>, mut pod: Pod<'_>, responder: &Responder) -> Vec<u8> {
        // One version of the configuration for the whole review.
        let config = self.config.load();
        let namespace = Cow::Borrowed(request.namespace());
        self.policies.load().apply(&mut pod, &namespace, &config.keys);
        let mut workload = pod.workload(namespace, &config.keys);
        workload.shadow = pod.is_marked_as_shadow() && request.is_by_liqo();
        let context = DecisionContext {
            config: &config,
            id: DecisionId(uuid::Uuid::new_v4().as_u128()),
            now: self.clock.now(),
        };
        let (read, mut is_ours) = (OnceCell::new(), false);
        let verdict = self.shared.review(&read, &workload, context, || {
            is_ours = responder.take();
            is_ours && !request.is_dry_run()
        });
        let stamp = Stamp {
            at: context.now.wall,
            id: context.id.to_string(),
        };
        let operations = patch(&pod, &verdict, &config, &stamp);
        let mut response = respond(request, &workload, &verdict, &operations);
        let hints = pod.hints(&workload, &config.keys);
        hints.iter().for_each(|hint| response.warn(hint));
        let bytes = response.bytes();

        if is_ours {
            self.count(verdict.action, verdict.reason, class(&workload), responder.elapsed());
            self.metrics.learned(&verdict);
            self.log(request, &pod, &workload, &verdict);
        }
        bytes
    }

    /// Allows what edgeward does not decide. Counts and logs it with the time that it took, unless it was answered
    /// already.
    fn untouched(&self, request: &Request<'_>, reason: Reason, why: &str, elapsed: Option<Duration>) -> Response {
        if let Some(elapsed) = elapsed {
            self.count(Action::PassThrough, reason, "none", elapsed);
            let kind = match reason {
                Reason::NotAPodCreate if request.is_pod_create() => "unreadable",
                _ => reason.as_str(),
            };
            if let Some(held_back) = self.log_limit.due(kind) {
                tracing::warn!(
                    uid = &*request.uid,
                    namespace = request.namespace(),
                    reason = reason.as_str(),
                    why,
                    held_back,
                    "untouched"
                );
            }
        }
        let mut response = Response::allowed(&request.uid);
        response.audit("reason", reason.as_str());
        response
    }

    /// Logs the line of one decision. It contains only names and numbers, because the contents of a pod may be
    /// confidential.
    fn log(&self, request: &Request<'_>, pod: &Pod<'_>, workload: &Workload<'_>, verdict: &Verdict<'_>) {
        let held_back = match kind_of_line(request, verdict).map(|kind| self.log_limit.due(kind)) {
            Some(None) => return,
            due => due.flatten(),
        };
        let per_site = |time: fn(&Estimate) -> Option<Micros>| {
            let times = verdict
                .sites
                .iter()
                .filter_map(|site| Some((site.site.name(), time(&site.estimate)?)));
            times
                .map(|(site, time)| format!("{site}={time}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let slo = workload.intent.as_ref().map(|intent| &intent.slo);
        tracing::info!(
            uid = &*request.uid,
            namespace = &*workload.namespace,
            name = shown(pod.name()),
            controller = workload.controller.as_deref().map(shown),
            cpu = %workload.request.cpu,
            memory = %workload.request.memory,
            priority = workload.priority,
            class = class(workload),
            slo_priority = slo.map(|slo| slo.priority),
            deadline_ms = slo.and_then(|slo| slo.deadline).map(Micros::as_millis_f64),
            latency_target_ms = slo.and_then(|slo| slo.latency_target).map(Micros::as_millis_f64),
            offload_allowed = slo.map(|slo| slo.offload_allowed),
            verdict = verdict.action.as_str(),
            site = verdict.site().map(|site| site.name()),
            scorer_site = verdict.learned.as_ref().and_then(Learned::other_choice),
            reason = verdict.reason.as_str(),
            rtt_ms = verdict.rtt.map(Micros::as_millis_f64),
            queue_ms = per_site(|estimate| Some(estimate.queue)),
            proc_ms = per_site(|estimate| Some(estimate.processing)),
            eta_ms = per_site(|estimate| estimate.eta()),
            dry_run = request.is_dry_run(),
            held_back,
            "decided"
        );
    }

    fn count(&self, action: Action<'_>, reason: Reason, class: &'static str, elapsed: Duration) {
        let site = match action {
            Action::Place(site) => site.name(),
            Action::Gate | Action::PassThrough | Action::Deny => "",
        };
        self.metrics
            .review(action.as_str(), reason.as_str(), class, site, elapsed);
    }
}

/// Counts the commas in a JSON text outside strings.
pub(super) fn commas(json: &str) -> usize {
    let (mut commas, mut in_string, mut is_escaped) = (0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' if !in_string => commas += 1,
            _ => {}
        }
    }
    commas
}

/// The workload class for logs and metrics: `none` for a pod without an SLO, `invalid` for an unknown class.
fn class(workload: &Workload<'_>) -> &'static str {
    match &workload.intent {
        None => "none",
        Some(intent) if !intent.class_known => "invalid",
        Some(intent) => intent.slo.class.as_str(),
    }
}

fn respond(
    request: &Request<'_>,
    workload: &Workload<'_>,
    verdict: &Verdict<'_>,
    operations: &[PatchOperation],
) -> Response {
    let mut response = Response::allowed(&request.uid);
    verdict.warnings.iter().for_each(|warning| response.warn(warning));
    match verdict.action {
        Action::Place(site) => {
            response.audit("decision", site.kind().as_str());
            response.audit("site", site.name());
            response.patch(operations);
        }
        Action::Gate => {
            response.audit("decision", verdict.action.as_str());
            response.patch(operations);
        }
        Action::PassThrough => {
            // Another webhook's change caused this second review, so the earlier placement is repeated.
            if let Some(claim) = workload
                .placement
                .as_ref()
                .filter(|_| verdict.reason == Reason::Reinvocation)
            {
                response.audit("decision", &claim.decision);
                response.audit("site", &claim.site);
            }
        }
        Action::Deny => {
            let faults = verdict.faults.iter().map(ToString::to_string).collect::<Vec<_>>();
            response.deny(&format!("invalid SLO: {}", faults.join("; ")));
        }
    }
    response.audit("reason", verdict.reason.as_str());
    response
}

/// The limit that applies to the log line of this review; `None` if it is not limited. Each decided pod gets a line. A
/// dry run is limited, because it creates no pod.
fn kind_of_line(request: &Request<'_>, verdict: &Verdict<'_>) -> Option<&'static str> {
    match verdict.action {
        // A separate kind, so that such pods cannot hold back the line of an answer that was too late.
        Action::PassThrough if verdict.reason == Reason::Deadline => Some("too many comparisons"),
        Action::PassThrough => Some(verdict.reason.as_str()),
        Action::Place(_) | Action::Gate | Action::Deny => request.is_dry_run().then_some("dry run"),
    }
}

/// Truncates a pod's name for the log. The API server accepts no longer name, but it calls the webhook before it
/// validates.
pub(super) fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST_NAME)]
}

/// The fields of an AdmissionReview that edgeward reads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    request: Option<Request<'a>>,
}

/// `AdmissionReview.request`. Names without escapes are borrowed, except the optional ones.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Request<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    resource: Option<Resource<'a>>,
    sub_resource: Option<Cow<'a, str>>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    namespace: Option<Cow<'a, str>>,
    dry_run: Option<bool>,
    user_info: Option<UserInfo<'a>>,
    /// The object that is created.
    pub(crate) object: Option<&'a RawValue>,
}

/// The user who creates the object.
#[derive(Deserialize)]
struct UserInfo<'a> {
    /// As raw JSON, of any length.
    #[serde(borrow)]
    username: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resource<'a> {
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    resource: Cow<'a, str>,
}

impl<'a> Request<'a> {
    /// Parses the request of an AdmissionReview.
    pub(crate) fn read(body: &'a [u8]) -> anyhow::Result<Self> {
        let review: Review<'a> = serde_json::from_slice(body)
            .map_err(|error| anyhow!("not an AdmissionReview: {}", excerpt(error, SHOWN_ERROR)))?;
        let found = format_args!("{:?} {:?}", review.api_version, review.kind);
        ensure!(
            (&*review.api_version, &*review.kind) == (API_VERSION, KIND),
            "expected {API_VERSION} {KIND}, found {}",
            excerpt(found, SHOWN_ERROR)
        );
        let request = review.request.context("the AdmissionReview has no request")?;
        ensure!(!request.uid.is_empty(), "the AdmissionReview's request has no uid");
        ensure!(
            request.uid.len().max(request.namespace().len()) <= LONGEST_NAME,
            "uid or namespace has more than {LONGEST_NAME} bytes"
        );
        Ok(request)
    }

    /// Whether this is a dry run, which stores nothing.
    fn is_dry_run(&self) -> bool {
        self.dry_run.unwrap_or(false)
    }

    /// The pod's namespace. The pod's own metadata may not have it yet.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// Whether a ServiceAccount in Liqo's namespace creates the object.
    fn is_by_liqo(&self) -> bool {
        let username = self.user_info.as_ref().and_then(|user| user.username);
        username.is_some_and(|name| name.get().starts_with("\"system:serviceaccount:liqo:"))
    }

    /// Whether this creates a pod itself, not a subresource of one.
    pub(crate) fn is_pod_create(&self) -> bool {
        let Some(Resource { group, resource }) = &self.resource else {
            return false;
        };
        let sub_resource = self.sub_resource.as_deref().unwrap_or_default();
        (&**group, &**resource, sub_resource, &*self.operation) == ("", "pods", "", "CREATE")
    }
}

/// `AdmissionReview.response`.
struct Response {
    fields: Value,
    warnings: Vec<String>,
}

impl Response {
    fn allowed(uid: &str) -> Self {
        Self {
            fields: json!({"uid": uid, "allowed": true}),
            warnings: vec![],
        }
    }

    fn deny(&mut self, message: &str) {
        self.fields["allowed"] = false.into();
        self.fields["status"] = json!({"code": 403, "message": message});
    }

    /// The API server refuses a patch without a type, and a type without a patch.
    fn patch(&mut self, operations: &[PatchOperation]) {
        if !operations.is_empty() {
            // Operations consist of strings and maps, which always serialise.
            let patch = serde_json::to_vec(operations).unwrap_or_default();
            self.fields["patchType"] = "JSONPatch".into();
            self.fields["patch"] = STANDARD.encode(patch).into();
        }
    }

    fn warn(&mut self, warning: &str) {
        self.warnings.push(shorten(warning));
    }

    fn audit(&mut self, key: &str, value: &str) {
        self.fields["auditAnnotations"][key] = value.into();
    }

    fn bytes(mut self) -> Vec<u8> {
        if !self.warnings.is_empty() {
            self.fields["warnings"] = self.warnings.into();
        }
        let review = json!({"apiVersion": API_VERSION, "kind": KIND, "response": self.fields});
        review.to_string().into_bytes()
    }
}

/// Returns the message on one line, cut to at most [`WARNING_CHARS`] characters.
pub fn shorten(warning: &str) -> String {
    let line = warning.replace(|c: char| c.is_control(), " ");
    if line.chars().count() <= WARNING_CHARS {
        return line;
    }
    let mut short: String = line.chars().take(WARNING_CHARS - 1).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests;

//! Webhooks and policies that change the pods created in a namespace.

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_harness::checkout::xtask;
use edgeward_harness::fixture::{POLICIES, Registration};
use edgeward_harness::nodes::Wan;
use edgeward_harness::prelude::*;
use edgeward_harness::process::free_addresses;

pub(crate) const LABEL: &str = "edgeward.test/contender";

/// The change that the CEL policy makes to every pod. edgeward makes it too.
pub(crate) const EDGE: &str =
    r#"[JSONPatch{op: "add", path: "/spec/nodeSelector", value: {"node.role/edge": "true"}}]"#;

/// One webhook or policy in the comparison. After the last contender that shares a webhook is dropped, that webhook changes no
/// pods.
pub(crate) struct Contender<'run> {
    pub(crate) name: &'static str,
    pub(crate) namespace: String,
    pub(crate) pid: Option<u32>,
    /// The webhook's name in the API server's metrics, or a part of it.
    pub(crate) webhook: Option<&'static str>,
    kept: Rc<Kept<'run>>,
}

/// Resources that end with a contender. The registrations come first, because they refer to the processes.
#[derive(Default)]
pub(crate) struct Kept<'run> {
    pub(crate) registrations: Vec<Registration>,
    pub(crate) processes: Vec<Process>,
    pub(crate) edgeward: Option<(Edgeward<'run>, Wan<'run>)>,
}

impl<'run> Contender<'run> {
    /// Creates a contender with a namespace of its own. The namespace gets `labels`, and `slug` as the label that the
    /// registration selects.
    pub(crate) fn new(
        fixture: &Fixture<'run>,
        name: &'static str,
        slug: &str,
        mut labels: Value,
        webhook: Option<&'static str>,
        kept: impl Into<Rc<Kept<'run>>>,
    ) -> Result<Self> {
        let kept = kept.into();
        labels[LABEL] = json!(slug);
        let (namespace, _) = fixture.another_namespace(slug, labels)?;
        let of_edgeward = kept.edgeward.as_ref().map(|(edgeward, _)| edgeward.id());
        Ok(Self {
            name,
            namespace,
            pid: of_edgeward.or(kept.processes.first().map(Process::id)),
            webhook,
            kept,
        })
    }

    pub(crate) fn none(fixture: &Fixture<'run>) -> Result<Self> {
        Self::new(fixture, "no webhook", "none", json!({}), None, Kept::default())
    }

    /// A MutatingAdmissionPolicy that sends every pod to the edge.
    pub(crate) fn policy(fixture: &Fixture<'run>) -> Result<Self> {
        const NAME: &str = "constant-policy";
        let object = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": NAME}, "spec": spec});
        let policy = object(
            "MutatingAdmissionPolicy",
            json!({
                "failurePolicy": "Ignore",
                "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [pods()]},
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": EDGE}}],
            }),
        );
        let binding = object(
            "MutatingAdmissionPolicyBinding",
            json!({"policyName": NAME, "matchResources": {"namespaceSelector": of(NAME)}}),
        );
        let kept = Kept {
            registrations: vec![
                Registration::create(&fixture.kubectl, &policy)?,
                Registration::create(&fixture.kubectl, &binding)?,
            ],
            ..Kept::default()
        };
        Self::new(fixture, "in-process policy, constant", NAME, json!({}), None, kept)
    }

    /// A webhook in Go that sends every pod to the edge.
    pub(crate) fn constant(fixture: &Fixture<'run>) -> Result<Self> {
        Self::in_go(fixture, "constant webhook in Go", "constant-webhook", None)
    }

    /// A webhook in Go that sends every pod to the edge and writes as many annotations as edgeward. Later readers and writers
    /// of the pod then handle an object of the same size.
    pub(crate) fn annotating(fixture: &Fixture<'run>) -> Result<Self> {
        let patch = annotating_patch().to_string();
        let name = "the same with edgeward's annotations";
        Self::in_go(fixture, name, "annotating-webhook", Some(patch))
    }

    /// A webhook in Go that always returns the same patch: `patch`, or its built-in one.
    fn in_go(fixture: &Fixture<'run>, name: &'static str, slug: &'static str, patch: Option<String>) -> Result<Self> {
        let program = xtask("constant-webhook")?.context("there is no Go to build the constant webhook with")?;
        let authority = Authority::new()?;
        let [address] = free_addresses()?;
        let (certificate, key) = authority.server(&[])?.write(&fixture.dir, slug)?;
        let mut args = vec![
            address.to_string(),
            certificate.display().to_string(),
            key.display().to_string(),
        ];
        args.extend(patch);
        let process = Process::start(slug, &program, &args, &fixture.dir)?;
        let url = format!("https://{address}/mutate");
        let configuration = webhook(slug, &url, &authority.certificate);
        let kept = Kept {
            registrations: vec![Registration::create(&fixture.kubectl, &configuration)?],
            processes: vec![process],
            ..Kept::default()
        };
        Self::new(fixture, name, slug, json!({}), Some(slug), kept)
    }

    /// edgeward with all of `webhook/base`, and its custom resources.
    pub(crate) fn edgeward(fixture: &Fixture<'run>) -> Result<Self> {
        fixture.install_custom_resources()?;
        let wan = Wan::open(fixture.runtime)?;
        let edgeward = fixture.live_edgeward(&config(&wan))?;
        let mut registrations = Vec::new();
        for mut object in fixture.kubectl.render(&workspace().join("webhook/base"))? {
            let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
            for webhook in webhooks.into_iter().flatten() {
                webhook["clientConfig"] = json!({"url": edgeward.url, "caBundle": STANDARD.encode(&edgeward.ca)});
            }
            registrations.push(Registration::create(&fixture.kubectl, &object)?);
        }
        let kept = Kept {
            registrations,
            edgeward: Some((edgeward, wan)),
            ..Kept::default()
        };
        let labels = json!({MANAGED: "true"});
        Self::new(fixture, "edgeward", "edgeward", labels, Some("pods.edgeward.io"), kept)
    }

    /// The running edgeward, called for a namespace that is labelled `policies`. The namespace has one policy, which applies to
    /// all pods.
    pub(crate) fn with_policies(&self, fixture: &Fixture<'run>) -> Result<Self> {
        const SLUG: &str = "edgeward-policies";
        let labels = json!({MANAGED: "true", POLICIES: "true"});
        let name = "edgeward, namespace labelled policies";
        let called = Some("policies.edgeward.io");
        let contender = Self::new(fixture, name, SLUG, labels, called, Rc::clone(&self.kept))?;
        let policy = json!({
            "apiVersion": "edgeward.io/v1alpha1",
            "kind": "SloPolicy",
            "metadata": {"name": "all"},
            "spec": {"selector": {}, "slo": {"class": "batch"}},
        });
        fixture.kubectl_in(&contender.namespace).create(&policy)?;
        contender.is_in_force(fixture, &workloads::pod("asked", json!({})))?;
        Ok(contender)
    }

    pub(crate) fn is_in_force(&self, fixture: &Fixture<'_>, pod: &Value) -> Result<()> {
        let kubectl = fixture.kubectl_in(&self.namespace);
        eventually(&format!("{} changes pods", self.name), BOUND, || {
            let created = kubectl.dry_run(pod)?;
            let changed = created["spec"]["nodeSelector"] == json!({"node.role/edge": "true"});
            ensure!(changed != self.changes_nothing(), "{created}");
            Ok(())
        })
    }

    pub(crate) fn decides(&self) -> bool {
        self.kept.edgeward.is_some()
    }

    fn changes_nothing(&self) -> bool {
        self.kept.registrations.is_empty() && self.webhook.is_none()
    }
}

/// Everything that edgeward adds to a pod that it sends to the edge.
fn annotating_patch() -> Value {
    let annotations = [
        ("decision", "edge"),
        ("site", "edge"),
        ("reason", "edge_feasible_slo_met"),
        ("timestamp", "2026-11-25T12:00:00Z"),
        ("decision-id", "019abc12-7c1b-7d43-9a51-2f4c7f0a9b11"),
        ("wanRttMs", "22"),
        (
            "explain",
            r#"{"edge":{"eta":120,"fit":200},"cloud":{"eta":164,"fit":1}}"#,
        ),
    ];
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    annotations
        .map(|(name, value)| {
            let path = format!("/metadata/annotations/scheduling.example.io~1{name}");
            add(&path, json!(value))
        })
        .into_iter()
        .chain([add("/spec/nodeSelector", json!({"node.role/edge": "true"}))])
        .collect()
}

pub(crate) fn config(wan: &Wan<'_>) -> Value {
    let cloud = json!({"name": "cloud", "kind": "cloud", "probes": [wan.probe()]});
    json!({"sites": [{"name": "edge", "kind": "edge"}, cloud]})
}

/// The webhook rule that matches pod creations.
pub(crate) fn pods() -> Value {
    json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]})
}

fn of(contender: &str) -> Value {
    json!({"matchLabels": {LABEL: contender}})
}

pub(crate) fn webhook(contender: &str, url: &str, ca: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": contender},
        "webhooks": [{
            "name": format!("{contender}.edgeward.test"),
            "clientConfig": {"url": url, "caBundle": STANDARD.encode(ca)},
            "failurePolicy": "Ignore", "timeoutSeconds": 1, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [pods()],
            "namespaceSelector": of(contender),
        }],
    })
}

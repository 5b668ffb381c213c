//! The ValidatingAdmissionPolicies of `webhook/` judge a manifest as edgeward's own parser does.

use edgeward_decision::keys::Keys;
use edgeward_decision::model::slo::parse;
use edgeward_harness::clients;
use edgeward_harness::fixture::POLICIES;
use edgeward_harness::folder::copy;
use edgeward_harness::prelude::*;
use edgeward_harness::registration::Registration;
use http::header::{CONTENT_TYPE, WARNING};
use http::{HeaderValue, Request};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

use crate::commands::fleet_command::edgeward;

/// The two policies, by their names in the manifests.
const FAULTS: &str = "edgeward-slo";
const HINTS: &str = "edgeward-slo-hints";

/// Workloads that create pods: kind, resource, and the path of the pod template.
const KINDS: [(&str, &str, &str); 6] = [
    ("Deployment", "/apis/apps/v1/{}/deployments", "/spec/template"),
    ("StatefulSet", "/apis/apps/v1/{}/statefulsets", "/spec/template"),
    ("DaemonSet", "/apis/apps/v1/{}/daemonsets", "/spec/template"),
    ("ReplicaSet", "/apis/apps/v1/{}/replicasets", "/spec/template"),
    ("Job", "/apis/batch/v1/{}/jobs", "/spec/template"),
    (
        "CronJob",
        "/apis/batch/v1/{}/cronjobs",
        "/spec/jobTemplate/spec/template",
    ),
];

#[derive(Debug, Deserialize)]
struct Row {
    managed: Option<String>,
    says: BTreeMap<String, String>,
}

fn table() -> Result<Vec<Row>> {
    Ok(serde_saphyr::from_str(include_str!("../../golden/slo/table.yaml"))?)
}

impl Row {
    fn annotations(&self) -> BTreeMap<String, &str> {
        let said = self.says.iter();
        said.map(|(name, value)| (format!("slo.example.io/{name}"), value.as_str()))
            .collect()
    }

    fn object(&self, kind: &str) -> Value {
        let labels = self.managed.iter().map(|value| (MANAGED, value.as_str()));
        let labels: BTreeMap<_, _> = labels.chain([("app", "row")]).collect();
        let metadata = json!({"annotations": self.annotations(), "labels": labels});
        let pod = workloads::pod("row", json!({}));
        let mut template = json!({"metadata": metadata, "spec": pod["spec"]});
        if kind.ends_with("Job") {
            template["spec"]["restartPolicy"] = json!("Never");
        }
        let selector = json!({"matchLabels": {"app": "row"}});
        let (version, spec) = match kind {
            "Job" => ("batch/v1", json!({"template": template})),
            "CronJob" => (
                "batch/v1",
                json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}),
            ),
            _ => ("apps/v1", json!({"selector": selector, "template": template})),
        };
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": "row"}, "spec": spec})
    }

    /// The faults and the unused keys, in the parser's words.
    fn parsed(&self) -> (String, BTreeSet<String>) {
        let annotations = self.annotations();
        let annotations = annotations.iter().map(|(key, value)| (key.as_str(), *value));
        let (_, intent) = parse(annotations, self.managed.as_deref(), &Keys::new("example.io"));
        let Some(intent) = intent else {
            return Default::default();
        };
        let faults: Vec<_> = intent.faults.iter().map(ToString::to_string).collect();
        let unknown = intent.unknown_keys.iter();
        (
            // CEL cannot write a control character as an escape.
            faults.join("; ").replace("\\u{1b}", "\u{fffd}"),
            unknown
                .map(|key| format!("{key} is not an annotation that edgeward reads"))
                .collect(),
        )
    }
}

/// The policies of `webhook/` for one namespace. Dropping the value removes them.
struct Policies {
    namespace: String,
    kubectl: Kubectl,
    _registrations: Vec<Registration>,
}

impl Policies {
    /// Renders `webhook/base` with these components as `kubectl apply -k` does. Creates the policies among the objects under
    /// names of this test, and waits until they are in force.
    fn install(fixture: &Fixture<'_>, components: &[&str]) -> Result<Self> {
        copy(&workspace().join("webhook"), &fixture.dir.join("webhook"))?;
        let kustomization = json!({"resources": ["../webhook/base"], "components": components});
        let mine = fixture.dir.join("mine");
        fs::create_dir(&mine)?;
        fs::write(mine.join("kustomization.yaml"), kustomization.to_string())?;
        let registrations = Registration::of_policies(fixture, fixture.kubectl.render(&mine)?)?;
        ensure!(
            registrations.len() == 4,
            "{} objects for two policies and their bindings",
            registrations.len()
        );
        let policies = Self {
            namespace: fixture.namespace.clone(),
            kubectl: fixture.kubectl.clone(),
            _registrations: registrations,
        };

        let api = Api::open(fixture)?;
        let bad = Row {
            managed: None,
            says: [("class".to_owned(), "fast".to_owned()), ("x".to_owned(), String::new())].into(),
        };
        eventually("both policies are in force", BOUND, || {
            let answer = api.create("Deployment", &bad.object("Deployment"))?;
            let refusal = answer.refusal.as_deref().unwrap_or_default();
            let told = |name| {
                let name = policies.named(name);
                answer.message(&name).is_some() || refusal.contains(&format!("'{name}' denied"))
            };
            ensure!(told(FAULTS) && told(HINTS), "{answer:?}");
            Ok(())
        })?;
        Ok(policies)
    }

    fn named(&self, name: &str) -> String {
        format!("{name}-{}", self.namespace)
    }

    /// Fails if the API server reports type errors in the expressions for any of the kinds.
    fn are_well_typed(&self) -> Result<()> {
        for name in [FAULTS, HINTS].map(|name| self.named(name)) {
            eventually("the expressions were checked", BOUND, || {
                let policy = self.kubectl.get("validatingadmissionpolicy", &name)?;
                let (status, generation) = (&policy["status"], &policy["metadata"]["generation"]);
                ensure!(status["observedGeneration"] == *generation, "{name}: {status}");
                Ok(())
            })?;
            let status = self.kubectl.get("validatingadmissionpolicy", &name)?["status"].take();
            ensure!(status["typeChecking"] == json!({}), "{name}: {status:#}");
        }
        Ok(())
    }
}

/// A client of the API server for dry-run creations.
struct Api<'s> {
    fixture: &'s Fixture<'s>,
    client: Client,
}

/// The answer: warnings, and the message of a refusal.
#[derive(Debug)]
struct Answer {
    warnings: Vec<String>,
    refusal: Option<String>,
}

impl<'s> Api<'s> {
    fn open(fixture: &'s Fixture<'s>) -> Result<Self> {
        let client = fixture.runtime.block_on(clients::client(fixture))?;
        Ok(Self { fixture, client })
    }

    fn create(&self, kind: &str, object: &Value) -> Result<Answer> {
        let (_, path, _) = KINDS.iter().find(|(name, ..)| *name == kind).context("the kind")?;
        let path = path.replace("{}", &format!("namespaces/{}", self.fixture.namespace));
        let request = Request::post(format!("{path}?dryRun=All"))
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(object.to_string().into_bytes()))?;
        self.fixture.runtime.block_on(async {
            let (head, body) = self.client.send(request).await?.into_parts();
            let body: Value = serde_json::from_slice(&body.collect_bytes().await?)?;
            let refusal = body["message"].as_str().unwrap_or_default().to_owned();
            let warnings = head.headers.get_all(WARNING).iter().filter_map(warning);
            Ok(Answer {
                warnings: warnings.collect(),
                refusal: (!head.status.is_success()).then_some(refusal),
            })
        })
    }
}

impl Api<'_> {
    /// The largest objects that the API server stores, in one value or in many keys, stay within the cost limit of the
    /// expressions.
    fn copes_with_a_lot(&self, policies: &Policies) -> Result<()> {
        let mut long = Row {
            managed: None,
            says: [("class", "batch".to_owned()), ("priority", "9".repeat(200_000))]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
        };
        let answer = self.create("Deployment", &long.object("Deployment"))?;
        let expected = long.parsed().0;
        ensure!(
            answer.message(&policies.named(FAULTS)) == Some(&expected),
            "{expected}: {answer:#?}"
        );
        long.says.insert("priority".to_owned(), "11".to_owned());
        long.says.extend((0..8_000).map(|i| (format!("x{i}"), String::new())));
        let answer = self.create("Deployment", &long.object("Deployment"))?;
        let expected = long.parsed().0;
        ensure!(
            answer.message(&policies.named(FAULTS)) == Some(&expected),
            "{expected}: {answer:#?}"
        );
        let hint = answer.message(&policies.named(HINTS));
        ensure!(
            hint == Some("keys under slo.example.io/ have no effect here"),
            "{answer:#?}"
        );
        Ok(())
    }
}

/// The text of `299 - "text"`.
fn warning(header: &HeaderValue) -> Option<String> {
    let header = String::from_utf8_lossy(header.as_bytes());
    let text = header.split_once('"')?.1.strip_suffix('"')?;
    Some(text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

impl Answer {
    fn message(&self, policy: &str) -> Option<&str> {
        message(self.warnings.iter().map(String::as_str), policy)
    }
}

fn message<'w>(mut warnings: impl Iterator<Item = &'w str>, policy: &str) -> Option<&'w str> {
    let start = format!("Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{policy}': ");
    warnings.find_map(|warning| warning.strip_prefix(&start))
}

e2e! { "validation::policy_messages_match_parser", Nodes, policy_messages_match_parser }
/// For every row of the table and every kind, the faults equal the parser's and the hints equal those of `review`.
fn policy_messages_match_parser(fixture: &Fixture<'_>) -> Result<()> {
    let policies = Policies::install(fixture, &[])?;
    policies.are_well_typed()?;
    let api = Api::open(fixture)?;
    let (faults, hints) = (policies.named(FAULTS), policies.named(HINTS));
    let rows = table()?;
    ensure!(
        rows.iter().any(|row| !row.parsed().0.is_empty()),
        "a table without faults"
    );
    for (kind, _, template) in KINDS {
        let mut objects: Vec<_> = rows.iter().map(|row| row.object(kind)).collect();
        let told = hints_of_review(fixture, &objects)?;
        for ((row, object), mut expected) in rows.iter().zip(&objects).zip(told) {
            let answer = api.create(kind, object)?;
            let (wrong, unknown) = row.parsed();
            let case = || format!("{kind} {row:?}: {answer:#?}");
            ensure!(answer.refusal.is_none(), case());
            ensure!(
                answer.message(&faults).unwrap_or_default() == wrong,
                "{wrong:?} expected: {}",
                case()
            );
            expected.extend(unknown);
            ensure!(
                set(answer.message(&hints)) == expected,
                "{expected:?} expected: {}",
                case()
            );
        }

        // Keys in the wrong place: on labels, and on the workload.
        let object = &mut objects[0];
        let pod = object.pointer_mut(template).context("the template")?;
        pod["metadata"]["labels"]["slo.example.io/class"] = json!("batch");
        object["metadata"]["annotations"] = json!({"slo.example.io/priority": "3"});
        let expected = hints_of_review(fixture, &objects[..1])?;
        let answer = api.create(kind, &objects[0])?;
        ensure!(expected[0].len() == 2, "{expected:?}");
        ensure!(
            set(answer.message(&hints)) == expected[0],
            "{expected:?} expected: {answer:#?}"
        );
        // For opted-out pods, no hint mentions their labels.
        let pod = objects[0].pointer_mut(template).context("the template")?;
        pod["metadata"]["labels"][MANAGED] = json!("false");
        let expected = hints_of_review(fixture, &objects[..1])?;
        let answer = api.create(kind, &objects[0])?;
        ensure!(
            set(answer.message(&hints)) == expected[0] && !expected[0].iter().any(|hint| hint.contains("is a label")),
            "{expected:?} expected: {answer:#?}"
        );
    }
    api.copes_with_a_lot(&policies)
}

fn set(message: Option<&str>) -> BTreeSet<String> {
    let parts = message.into_iter().flat_map(|message| message.split("; "));
    // One hint contains the separator itself.
    let mut hints = BTreeSet::new();
    let mut begun = String::new();
    for part in parts {
        if part.starts_with("edgeward reads") {
            hints.remove(&begun);
            hints.insert(format!("{begun}; {part}"));
        } else {
            hints.insert(part.to_owned());
            begun = part.to_owned();
        }
    }
    hints
}

/// The hints of `edgeward review` for each object.
fn hints_of_review(fixture: &Fixture<'_>, objects: &[Value]) -> Result<Vec<BTreeSet<String>>> {
    let file = fixture.dir.join("objects.json");
    fs::write(&file, json!({"kind": "List", "items": objects}).to_string())?;
    let file = format!("--filename={}", file.display());
    let fleet = format!("--fleet={}/examples/fleet.yaml", workspace().display());
    let said = edgeward(fixture, &json!({}), &["review", &file, &fleet, "--output=json"])?;
    let list: Value = serde_json::from_str(&said.stdout).with_context(|| said.stderr.clone())?;
    let items = list["items"].as_array().context("items")?;
    ensure!(items.len() == objects.len(), "{} of {}", items.len(), objects.len());
    let hints = items.iter().map(|item| item["hints"].as_array().into_iter().flatten());
    Ok(hints
        .map(|hints| hints.filter_map(|hint| hint.as_str().map(str::to_owned)).collect())
        .collect())
}

e2e! { "validation::missing_key_in_policy_namespace_passes", Nodes, missing_key_in_policy_namespace_passes }
/// In a namespace with SloPolicies nothing counts as missing, because a policy may state it. Wrong values are still faults.
fn missing_key_in_policy_namespace_passes(fixture: &Fixture<'_>) -> Result<()> {
    let label = format!("{POLICIES}=true");
    fixture
        .kubectl
        .run(&["label", "namespace", &fixture.namespace, &label], "")?;
    let policies = Policies::install(fixture, &[])?;
    policies.are_well_typed()?;
    let api = Api::open(fixture)?;
    let says = |says: &[(&str, &str)], managed: Option<&str>| Row {
        managed: managed.map(str::to_owned),
        says: says
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    };
    let soon = r#"slo.example.io/deadlineMs: "soon" is not a whole number of milliseconds from 1 to 31536000000"#;
    let idle = "slo.example.io/soon is not an annotation that edgeward reads";
    for (row, fault, hint) in [
        (says(&[], None), None, None),
        (says(&[("deadlineMs", "100")], None), None, None),
        (says(&[], Some("true")), None, None),
        (says(&[("deadlineMs", "soon")], None), Some(soon), None),
        (says(&[("deadlineMs", "soon")], Some("false")), None, None),
        (says(&[("soon", "")], None), None, Some(idle)),
    ] {
        for kind in ["Job", "Deployment"] {
            let answer = api.create(kind, &row.object(kind))?;
            let told = [FAULTS, HINTS].map(|name| answer.message(&policies.named(name)));
            ensure!(told == [fault, hint], "{kind} {row:?}: {answer:#?}");
        }
    }
    Ok(())
}

fn faulty() -> Value {
    json!({"slo.example.io/class": "fast"})
}

const FAULT: &str = r#"slo.example.io/class: "fast" is not latency, throughput or batch"#;

e2e! { "validation::faulty_template_warns_but_scaling_does_not", Nodes, faulty_template_warns_but_scaling_does_not }
/// Only the author of a wrong value is warned, once. There is no warning for scaling, for controllers that repeat it, for
/// namespaces that did not opt in, or for pods. The audit log also records it.
fn faulty_template_warns_but_scaling_does_not(fixture: &Fixture<'_>) -> Result<()> {
    let policies = Policies::install(fixture, &[])?;
    let policy = policies.named(FAULTS);
    let applied = |kubectl: &Kubectl, object: &Value| -> Result<Option<String>> {
        let said = kubectl.apply(object)?;
        Ok(message(said.warnings().into_iter(), &policy).map(str::to_owned))
    };

    let mut web = workloads::deployment("web", 1, faulty());
    let (_, elsewhere) = fixture.another_namespace("elsewhere", json!({}))?;
    ensure!(applied(&elsewhere, &web)?.is_none(), "warned in a namespace of nobody");
    ensure!(applied(&fixture.kubectl, &web)?.as_deref() == Some(FAULT));
    web["spec"]["replicas"] = json!(2);
    ensure!(
        applied(&fixture.kubectl, &web)?.is_none(),
        "warned of a change of scale"
    );
    web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.example/app:2");
    ensure!(applied(&fixture.kubectl, &web)?.as_deref() == Some(FAULT));

    let noted = fixture.violation_of("web")?.context("not in the audit log")?;
    ensure!(noted.contains("fast"), "{noted}");

    // edgeward itself warns about pods.
    ensure!(
        applied(&fixture.kubectl, &workloads::pod("bare", faulty()))?.is_none(),
        "warned of a pod"
    );
    Ok(())
}

e2e! { "validation::refuses", Nodes, refuses }
/// The component refuses objects with faults and names every fault. It accepts values without effect. Existing workloads still
/// get their pods.
pub(crate) fn refuses(fixture: &Fixture<'_>) -> Result<()> {
    fixture.kubectl.create(&workloads::deployment("early", 0, faulty()))?;

    let policies = Policies::install(fixture, &["../webhook/deny"])?;
    let api = Api::open(fixture)?;
    // edgeward itself refuses pods.
    fixture.kubectl.create(&workloads::pod("bare", faulty()))?;
    for kind in ["Deployment", "CronJob"] {
        for row in table()? {
            let answer = api.create(kind, &row.object(kind))?;
            let wrong = row.parsed().0;
            let case = || format!("{kind} {row:?}: {answer:#?}");
            match &answer.refusal {
                None => ensure!(wrong.is_empty(), "{wrong:?} expected: {}", case()),
                Some(message) => {
                    let ending = format!("'{}' denied request: {wrong}", policies.named(FAULTS));
                    ensure!(
                        !wrong.is_empty() && message.ends_with(&ending),
                        "{wrong:?} expected: {}",
                        case()
                    );
                }
            }
        }
    }

    fixture
        .kubectl
        .run(&["scale", "deployment", "early", "--replicas=1"], "")?;
    eventually("the Deployment from before has its pod", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=early")?;
        ensure!(pods.len() == 1, "{} pods", pods.len());
        Ok(())
    })?;
    Ok(())
}

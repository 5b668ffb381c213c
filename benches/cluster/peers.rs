//! Other webhooks, compared if their programs are given. Each sends the pods of its namespace to the edge. Each has the
//! settings of its chart, but runs as a plain process.

use std::net::SocketAddr;

use edgeward_harness::fixture::Registration;
use edgeward_harness::prelude::*;
use edgeward_harness::process::free_addresses;

use crate::contenders::{Contender, EDGE, Kept, LABEL, pods, webhook};

/// Each variable names a directory. Gatekeeper's has `gatekeeper` and its definitions in `gatekeeper-crds`. Kyverno's has
/// `kyverno`, its definitions in `kyverno-crds`, and the ConfigMaps of its chart as a List in `kyverno-config.json`.
const GATEKEEPER: &str = "EDGEWARD_GATEKEEPER";
const KYVERNO: &str = "EDGEWARD_KYVERNO";

/// Starts a peer with the programs in this directory.
type Start = for<'f, 'run> fn(&'f Fixture<'run>, &'f Path) -> Result<Contender<'run>>;

/// The peers whose programs are given: how each starts, and the directory.
pub(crate) fn given() -> Vec<(Start, PathBuf)> {
    let known: [(&str, Start); 2] = [(GATEKEEPER, gatekeeper), (KYVERNO, kyverno)];
    let given = |(variable, start)| Some((start, PathBuf::from(std::env::var_os(variable)?)));
    known.into_iter().filter_map(given).collect()
}

/// Installs custom resource definitions and waits until they are served.
fn define(fixture: &Fixture<'_>, folder: &Path) -> Result<()> {
    let folder = folder.display().to_string();
    fixture.kubectl.run(&["apply", "--server-side", "-f", &folder], "")?;
    fixture.kubectl.wait_until_established(&["-f", &folder])
}

fn create_namespace(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    fixture.kubectl.run(&["create", "namespace", name], "").map(drop)
}

/// Creates an object that the peer's own webhook admits only once the peer is ready. Retries until then.
fn admitted(fixture: &Fixture<'_>, policy: &Value) -> Result<()> {
    let what = policy["kind"].as_str().context("a kind")?;
    eventually(&format!("the {what} is admitted"), BOUND, || {
        fixture.kubectl.apply(policy).map(drop)
    })
}

/// Gatekeeper with one Assign. Only its mutation operation is on.
fn gatekeeper<'run>(fixture: &Fixture<'run>, dir: &Path) -> Result<Contender<'run>> {
    const NAME: &str = "gatekeeper";
    const HOME: &str = "gatekeeper-system";
    const POD: &str = "gatekeeper-0";
    define(fixture, &dir.join("gatekeeper-crds"))?;
    create_namespace(fixture, HOME)?;
    // Gatekeeper writes status objects that belong to its pod.
    let container = json!({"name": "manager", "image": "registry.example/gatekeeper:1"});
    fixture.kubectl_in(HOME).create(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": HOME}, "spec": {"containers": [container]},
    }))?;
    let authority = Authority::new()?;
    let certificates = fixture.dir.join(NAME);
    fs::create_dir(&certificates)?;
    authority.server(&[])?.write(&certificates, "tls")?;
    let [address, health, metrics] = free_addresses()?;
    let mut args: Vec<String> = include_str!("peers/gatekeeper.txt")
        .lines()
        .map(str::to_owned)
        .collect();
    args.extend([
        format!("--kubeconfig={}", fixture.kubeconfig().display()),
        format!("--port={}", address.port()),
        format!("--health-addr={health}"),
        format!("--prometheus-port={}", metrics.port()),
        format!("--cert-dir={}", certificates.display()),
        format!("--exempt-namespace={HOME}"),
    ]);
    let environment = [("POD_NAMESPACE", HOME), ("POD_NAME", POD), ("NAMESPACE", HOME)];
    let environment = environment.map(|(name, value)| (name, Path::new(value)));
    let process = Process::start_with(NAME, &dir.join(NAME), &args, &fixture.dir, &environment)?;
    let mut configuration = webhook(NAME, &format!("https://{address}/v1/mutate"), &authority.certificate);
    configuration["webhooks"][0]["matchPolicy"] = json!("Exact");
    configuration["webhooks"][0]["reinvocationPolicy"] = json!("Never");
    admitted(
        fixture,
        &json!({
            "apiVersion": "mutations.gatekeeper.sh/v1",
            "kind": "Assign",
            "metadata": {"name": "edge"},
            "spec": {
                "applyTo": [{"groups": [""], "versions": ["v1"], "kinds": ["Pod"], "operations": ["CREATE"]}],
                "match": {"scope": "Namespaced", "namespaceSelector": {"matchLabels": {LABEL: NAME}}},
                "location": "spec.nodeSelector",
                "parameters": {"assign": {"value": {"node.role/edge": "true"}}},
            },
        }),
    )?;
    let kept = Kept {
        registrations: vec![Registration::create(&fixture.kubectl, &configuration)?],
        processes: vec![process],
        ..Kept::default()
    };
    let called = Some("gatekeeper.edgeward.test");
    Contender::new(fixture, "Gatekeeper, Assign", NAME, json!({}), called, kept)
}

/// Kyverno with one MutatingPolicy, without reports.
fn kyverno<'run>(fixture: &Fixture<'run>, dir: &Path) -> Result<Contender<'run>> {
    const NAME: &str = "kyverno";
    define(fixture, &dir.join("kyverno-crds"))?;
    create_namespace(fixture, NAME)?;
    let selector = json!({"namespaceSelector": {"matchLabels": {LABEL: NAME}}});
    let text = fs::read_to_string(dir.join("kyverno-config.json"))?;
    let mut list: Value = serde_json::from_str(&text)?;
    for map in list["items"].as_array_mut().context("items")? {
        if map["metadata"]["name"] == NAME {
            map["data"]["webhooks"] = json!(selector.to_string());
        }
    }
    fixture.kubectl_in(NAME).apply(&list)?;
    let [address, metrics] = free_addresses::<2>()?;
    let process = start_kyverno(fixture, &dir.join(NAME), address, metrics)?;
    eventually("Kyverno registers itself", BOUND, || {
        let args = ["get", "validatingwebhookconfiguration", "--output=name"];
        let names = fixture.kubectl.run(&args, "")?.stdout;
        ensure!(names.contains("kyverno-policy-validating-webhook-cfg"), "{names}");
        Ok(())
    })?;
    admitted(
        fixture,
        &json!({
            "apiVersion": "policies.kyverno.io/v1",
            "kind": "MutatingPolicy",
            "metadata": {"name": "edge"},
            "spec": {
                "failurePolicy": "Ignore",
                "autogen": {"podControllers": {"controllers": []}},
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {LABEL: NAME}},
                    "resourceRules": [pods()],
                },
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": EDGE}}],
            },
        }),
    )?;
    let kept = Kept {
        processes: vec![process],
        ..Kept::default()
    };
    Contender::new(
        fixture,
        "Kyverno, MutatingPolicy",
        NAME,
        json!({}),
        Some("kyverno"),
        kept,
    )
}

fn start_kyverno(fixture: &Fixture<'_>, program: &Path, address: SocketAddr, metrics: SocketAddr) -> Result<Process> {
    let account = |controller: &str| format!("system:serviceaccount:kyverno:kyverno-{controller}-controller");
    let mut args: Vec<String> = include_str!("peers/kyverno.txt").lines().map(str::to_owned).collect();
    args.extend([
        format!("--kubeconfig={}", fixture.kubeconfig().display()),
        format!("--serverIP={address}"),
        format!("--webhookServerPort={}", address.port()),
        format!("--metricsPort={}", metrics.port()),
        format!("--backgroundServiceAccountName={}", account("background")),
        format!("--reportsServiceAccountName={}", account("reports")),
    ]);
    let environment = [
        ("KYVERNO_NAMESPACE", "kyverno"),
        ("KYVERNO_SERVICEACCOUNT_NAME", "kyverno-admission-controller"),
        ("KYVERNO_ROLE_NAME", "kyverno:admission-controller"),
        ("KYVERNO_DEPLOYMENT", "kyverno-admission-controller"),
        ("KYVERNO_POD_NAME", "kyverno-0"),
        ("KYVERNO_SVC", "kyverno-svc"),
        ("INIT_CONFIG", "kyverno"),
        ("METRICS_CONFIG", "kyverno-metrics"),
    ];
    let environment = environment.map(|(name, value)| (name, Path::new(value)));
    Process::start_with("kyverno", program, &args, &fixture.dir, &environment)
}

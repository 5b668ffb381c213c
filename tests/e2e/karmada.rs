//! Karmada: what it tells about clouds, and its scheduler's questions about the edge.
//!
//! The scheduler, and the estimator of the cloud, are the real ones. Karmada serves Clusters from a server of its own; here they are
//! custom resources, whose status the test writes as Karmada would.

use edgeward_harness::checkout::xtask;
use edgeward_harness::control_plane::{self, ControlPlane, FailureDetection, Shape, node};
use edgeward_harness::documentation::documented;
use edgeward_harness::prelude::*;
use edgeward_harness::process::free_addresses;

/// The message of edgeward when it cannot read.
const FAILED: &str = "Clusters of Karmada cannot be read; it is tried again";

const CLUSTERS: &str = "clusters.cluster.karmada.io";

/// Where Karmada looks for the Services of estimators.
const SYSTEM: &str = "karmada-system";

e2e! { "karmada::full_member_refuses_its_site", Cluster, 90, full_member_refuses_its_site }
/// A cloud has at most the room that the Cluster of its name reports, until that is old.
fn full_member_refuses_its_site(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    let mut filler = workloads::pod_of("filler", json!({}), "3");
    filler["spec"]["nodeName"] = json!(format!("{}-edge-0", fixture.namespace));
    fixture.kubectl.create(&filler)?;
    define_clusters(&fixture.kubectl)?;
    let file = fixture.dir.join("karmada.yaml");
    let mut config = nodes.config();
    config["explain"] = json!("full");
    config["karmada"] = json!({"kubeconfig": file});
    let edgeward = fixture.live_edgeward(&config)?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    let asked = fixture.in_its_domain(workloads::pod_of(
        "asked",
        json!({"slo.example.io/class": "batch"}),
        "2",
    ));
    let goes_to = |site: &str, why: &[&str]| {
        eventually(&format!("the pod goes to {site}"), BOUND, || {
            let found = fixture.kubectl.dry_run(&asked)?;
            let told = |name| annotation(&found, name).unwrap_or_default().to_owned();
            let explain = told("explain");
            ensure!(
                told("site") == site && why.iter().all(|why| explain.contains(why)),
                "{found}"
            );
            Ok(())
        })
    };
    eventually("the missing kubeconfig is told", BOUND, || {
        ensure!(!edgeward.said(FAILED).is_empty(), "it is not");
        Ok(())
    })?;
    goes_to("cloud", &[])?;

    fs::write(&file, kubeconfig(fixture)?)?;
    let member = |allocated| cluster(&fixture.kubectl, "cloud", ["8", "110"], allocated);
    member("6500m")?;
    goes_to(
        "edge",
        &[r#""remote_full":{"largestFree":{"cpu":1500,"#, r#""source":"karmada""#],
    )?;
    member("6")?;
    goes_to("cloud", &[])?;
    member("6500m")?;
    goes_to("edge", &[])?;
    fs::write(&file, "broken")?;
    goes_to("cloud", &[])
}

e2e! { "karmada::scheduler_asks_how_many_pods_fit_at_the_edge", Cluster, 120, scheduler_asks_how_many_pods_fit_at_the_edge }
/// Of 29 free cores on ten edge nodes, each node has room for two pods of one core. With the estimator Karmada assigns 20 of 100
/// replicas to the edge, and the others overflow. Without it, 29.
fn scheduler_asks_how_many_pods_fit_at_the_edge(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    for number in 0..10 {
        let name = nodes.edge_node(&format!("edge-{number}"), "4")?;
        let mut filler = workloads::pod_of(&format!("filler-{number}"), json!({}), "1100m");
        filler["spec"]["nodeName"] = json!(name);
        fixture.kubectl.create(&filler)?;
    }
    let members = Members::start(fixture)?;
    let mut edgeward = members.edgeward(fixture, &nodes)?;
    let (hub, tolerations) = (&members.plane.kubectl, json!([nodes.toleration()]));
    cluster(hub, "edge", ["40", "1100"], "11")?;
    cluster(hub, "cloud", ["128", "220"], "0")?;
    let _scheduler = members.scheduler(&fixture.dir)?;

    let tolerant = json!({"tolerations": tolerations});
    members.becomes("fragmented", &tolerant, json!({"edge": 20, "cloud": 80}))?;
    let one = format!("{}-edge-0", fixture.namespace);
    let others = json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [one]}]}]);
    let mut without_one = tolerant.clone();
    without_one["hardNodeAffinity"] = json!({"nodeSelectorTerms": others});
    members.becomes("without-one", &without_one, json!({"edge": 18, "cloud": 82}))?;
    ensure!(edgeward.count("edgeward_estimates_total", &[("result", "counted")])? > 0);
    edgeward.kill()?;
    members.becomes("as-before", &tolerant, json!({"edge": 29, "cloud": 71}))
}

/// The other members: a control plane with two nodes of 64 cores is the cloud, and also serves Karmada's API.
struct Members {
    plane: ControlPlane,
    karmada: PathBuf,
    authority: Authority,
    estimator: u16,
    _estimator_of_cloud: Process,
}

impl Members {
    fn start(fixture: &Fixture<'_>) -> Result<Self> {
        let karmada =
            xtask("karmada")?.context("there is no Go to build Karmada with and EDGEWARD_KARMADA is not set")?;
        let binaries = control_plane::binaries()?.context("there is no control plane")?;
        let large = |name| {
            node(
                name,
                json!({}),
                json!([]),
                json!({"cpu": "64", "memory": "128Gi", "pods": "110"}),
            )
        };
        let shape = Shape {
            nodes: vec![large("cloud-1"), large("cloud-2")],
            ..Shape::edge_and(vec![], FailureDetection::AsDefault)
        };
        let plane = ControlPlane::start(fixture.runtime, &binaries, &shape)?;
        let kubectl = &plane.kubectl;
        for name in ["clusterresourcebindings", "resourcebindings"] {
            let file = karmada.join(format!("crds/work.karmada.io_{name}.yaml"));
            kubectl.run(&["create", "--filename", &file.display().to_string()], "")?;
        }
        define_clusters(kubectl)?;
        kubectl.wait_until_established(&[
            "crd/resourcebindings.work.karmada.io",
            "crd/clusterresourcebindings.work.karmada.io",
        ])?;
        kubectl.run(&["create", "namespace", SYSTEM], "")?;

        let authority = Authority::new()?;
        let dir = fixture.dir.as_path();
        authority
            .server(&[])?
            .write_member(&dir.join("estimator"), &authority.certificate)?;
        let [edge, cloud, unused] = free_addresses()?;
        for (member, address) in [("edge", edge), ("cloud", cloud)] {
            let port = json!({"port": 10352, "targetPort": address.port()});
            kubectl.create(&json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": format!("karmada-scheduler-estimator-{member}"), "namespace": SYSTEM},
                "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [port]},
            }))?;
        }
        let certificate = |file: &str| dir.join("estimator").join(file).display().to_string();
        let args = [
            format!("--kubeconfig={}", plane.kubeconfig().display()),
            "--cluster-name=cloud".to_owned(),
            format!("--server-port={}", cloud.port()),
            format!("--grpc-auth-cert-file={}", certificate("tls.crt")),
            format!("--grpc-auth-key-file={}", certificate("tls.key")),
            format!("--grpc-client-ca-file={}", certificate("ca.crt")),
            "--metrics-bind-address=0".to_owned(),
            format!("--health-probe-bind-address={unused}"),
        ];
        Ok(Self {
            _estimator_of_cloud: Process::start(
                "estimator-of-cloud",
                &karmada.join("scheduler-estimator"),
                &args,
                dir,
            )?,
            plane,
            karmada,
            authority,
            estimator: edge.port(),
        })
    }

    /// edgeward in the cluster of the edge, as its estimator.
    fn edgeward<'run>(&self, fixture: &Fixture<'run>, nodes: &Nodes<'_>) -> Result<Edgeward<'run>> {
        let dir = fixture.dir.as_path();
        let mut config = nodes.config();
        config["karmada"] = json!({"estimator": {"enabled": true}});
        fs::write(dir.join("config.json"), config.to_string())?;
        let args = vec![
            format!("--config={}", dir.join("config.json").display()),
            format!("--namespace={}", fixture.home()?),
            format!("--self-signed={}", dir.join("tls").display()),
            format!("--estimator-listen=127.0.0.1:{}", self.estimator),
            format!("--estimator-certificate={}", dir.join("estimator").display()),
        ];
        fs::create_dir_all(dir.join("tls"))?;
        fixture.edgeward_of_arguments(fixture.edgeward_kubeconfig(), fixture.program, dir, args)
    }

    fn scheduler(&self, dir: &Path) -> Result<Process> {
        fs::write(dir.join("estimators.crt"), &self.authority.certificate)?;
        let (certificate, key) = self
            .authority
            .client("karmada-scheduler", "karmada")?
            .write(dir, "karmada-scheduler")?;
        let args = [
            format!("--kubeconfig={}", self.plane.kubeconfig().display()),
            "--leader-elect=false".to_owned(),
            "--metrics-bind-address=0".to_owned(),
            "--health-probe-bind-address=0".to_owned(),
            "--enable-scheduler-estimator".to_owned(),
            format!("--scheduler-estimator-ca-file={}", dir.join("estimators.crt").display()),
            format!("--scheduler-estimator-cert-file={}", certificate.display()),
            format!("--scheduler-estimator-key-file={}", key.display()),
        ];
        Process::start("karmada-scheduler", &self.karmada.join("scheduler"), &args, dir)
    }

    /// Waits until Karmada has assigned 100 replicas of one core each: the edge first, what exceeds it to the cloud.
    fn becomes(&self, name: &str, claim: &Value, expected: Value) -> Result<()> {
        let affinity = |name: &str| json!({"affinityName": name, "clusterNames": [name]});
        let mut edge_first = affinity("edge");
        edge_first["overflowAffinities"] = json!([affinity("cloud")]);
        self.plane.kubectl.create(&json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "name": name, "namespace": "default",
                // Without the label of a policy, the scheduler ignores it.
                "labels": {"propagationpolicy.karmada.io/permanent-id": name},
            },
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name},
                "replicas": 100,
                "replicaRequirements": {"resourceRequest": {"cpu": "1"}, "nodeClaim": claim},
                "placement": {
                    "clusterAffinities": [edge_first],
                    "replicaScheduling": {
                        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
                    },
                },
            },
        }))?;
        eventually(&format!("{name} is assigned"), BOUND, || {
            let binding = self.plane.kubectl.get("resourcebinding", name)?;
            let clusters = binding["spec"]["clusters"].as_array().context("no clusters")?;
            let assigned = clusters
                .iter()
                .map(|cluster| Some((cluster["name"].as_str()?.to_owned(), cluster["replicas"].clone())));
            let assigned: Option<serde_json::Map<_, _>> = assigned.collect();
            ensure!(assigned.map(Value::Object).as_ref() == Some(&expected), "{binding:#}");
            Ok(())
        })
    }
}

/// Grants what the guide grants, and returns a kubeconfig of that account without files.
fn kubeconfig(fixture: &Fixture<'_>) -> Result<String> {
    let manifest = documented("yaml", "resources: [clusters]")?.replace(SYSTEM, &fixture.namespace);
    fixture.shell(&format!("kubectl apply -f - <<'END'\n{manifest}\nEND"))?;
    let token = fixture.kubectl.run(&["create", "token", "edgeward"], "")?.stdout;
    let all = ["config", "view", "--raw", "--flatten", "--output=json"];
    let mut kubeconfig: Value = serde_json::from_str(&fixture.kubectl.run(&all, "")?.stdout)?;
    kubeconfig["users"][0]["user"] = json!({"token": token.trim_end()});
    Ok(kubeconfig.to_string())
}

/// Defines Clusters, as any object with a status.
fn define_clusters(kubectl: &Kubectl) -> Result<()> {
    let (group, open) = (
        "cluster.karmada.io",
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    );
    kubectl.create(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": CLUSTERS},
        "spec": {
            "group": group, "scope": "Cluster", "names": {"plural": "clusters", "singular": "cluster", "kind": "Cluster"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": open},
            }],
        },
    }))?;
    kubectl.wait_until_established(&[&format!("crd/{CLUSTERS}")])
}

/// Writes the Cluster of a member with this much CPU and this many pod slots. This much CPU is allocated.
fn cluster(kubectl: &Kubectl, name: &str, [cpu, pods]: [&str; 2], allocated: &str) -> Result<()> {
    kubectl.apply(&json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {"syncMode": "Push"},
    }))?;
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Test", "message": "", "lastTransitionTime": "2026-11-30T00:00:00Z"});
    let status = json!({
        "conditions": [condition("CompleteAPIEnablements", "True"), condition("Ready", "True")],
        "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}],
        "resourceSummary": {
            "allocatable": {"cpu": cpu, "memory": "640Gi", "pods": pods}, "allocated": {"cpu": allocated},
        },
    });
    kubectl.patch_status(CLUSTERS, name, &status)
}

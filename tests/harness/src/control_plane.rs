//! etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok as processes on loopback, with their own certificates
//! and ports. A control plane starts in seconds, and most tests share one.

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::net::{IpAddr, SocketAddr};

use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::checkout::xtask;
use crate::folder::copy;
use crate::prelude::*;
use crate::process::free_addresses;
use crate::rights::{self, Rights};
use crate::webhook_credentials::WebhookCredentials;

/// Nodes of the cluster, run by kwok. Their labels and taints follow edgeward's documentation for operators.
pub const EDGE_NODES: [&str; 2] = ["edge-1", "edge-2"];
pub const CLOUD_NODE: &str = "cloud-1";

/// The label of a node that kwok ignores, as if its kubelet had stopped.
pub(crate) const STOPPED: &str = "edgeward.test/stopped";

pub(crate) const VIRTUAL_NODE: &str = "liqo.io/type";

/// The label of a pod that takes long to terminate. Other pods are gone at once.
pub const SLOW: &str = "edgeward.test/terminates-slowly";
/// How long such a pod takes to terminate. A busy machine creates a replacement in less time.
pub const SLOW_END: Duration = Duration::from_secs(6);

/// An annotation on a Job's pod, followed by a node's name. Its value is the duration of the work on that node, in Go's format.
/// Without it the work ends at once.
pub const WORKS_ON: &str = "edgeward.test/works-on-";

/// Namespaces that the audit log leaves out, because their pods are too large.
pub(crate) const NOT_AUDITED: [&str; 3] = ["hostile-pods-largest", "hostile-pods-gated", "hostile-pods-managed"];

const API_SERVER: &str = "kube-apiserver";
const SCHEDULER: &str = "kube-scheduler";

/// Log messages of Kubernetes 1.36 for which a program is started again.
///
/// - kube-scheduler: it has missed the deletion of a pod whose name was reused (`cache.UpdatePod`). A pause of the machine that
///   closes its watch is enough for that.
/// - kube-apiserver: it merges the OpenAPI documents just before a new definition's document is stored (`cached.Atomic`).
const CURABLE: &str = "Scheduler cache is corrupted|kube-openapi/pkg/cached.*Atomic";

/// Runs a program, and again when its log has a curable message. Arguments: the log of a run, the message, and the program with
/// its arguments. Each log is printed when its run has ended.
const UNTIL_INCURABLE: &str = r#"
    log=$1 curable=$2 setpriv=$(command -v setpriv); shift 2
    while :; do
        ${setpriv:+setpriv --pdeathsig KILL --} "$@" >"$log" 2>&1
        cat "$log"
        grep -qE "$curable" "$log" || exit 1
    done"#;

/// The addresses of Services.
pub const SERVICES: &str = "10.96.0.0/16";

/// The address of the Service `kubernetes`.
const FIRST_SERVICE: &str = "10.96.0.1";

/// Feature gates of Kubernetes' own gangs.
const GANGS: &str = "GenericWorkload=true,GangScheduling=true";

const KUBECONFIG: &str = "kubeconfig";
const EDGEWARD_KUBECONFIG: &str = "edgeward.kubeconfig";

/// How fast a silent node, or a cluster behind a virtual node, counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureDetection {
    AsDefault,
    /// Within 10 s.
    Fast,
}

/// Settings in which control planes differ.
pub struct Shape {
    pub nodes: Vec<Value>,
    pub detection: FailureDetection,
    /// Whether the cluster is used for measuring. It then has no audit log, and no rate limit on calls by controllers and
    /// scheduler.
    pub is_measured: bool,
    /// Whether kwok runs pods. With many pods, kwok lists all of them again whenever it falls behind its watch.
    pub runs_pods: bool,
    /// Whether Kubernetes' own gangs are served and scheduled, which is alpha.
    pub has_gangs: bool,
    /// The address of a real node in this network namespace. Pods reach the API server there, and kwok does not run.
    pub real_node: Option<IpAddr>,
}

impl Shape {
    pub fn edge_and(nodes: Vec<Value>, detection: FailureDetection) -> Self {
        let nodes = EDGE_NODES.map(edge_node).into_iter().chain(nodes).collect();
        Self {
            nodes,
            detection,
            is_measured: false,
            runs_pods: true,
            has_gangs: false,
            real_node: None,
        }
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self::edge_and(vec![cloud_node(CLOUD_NODE)], FailureDetection::AsDefault)
    }
}

/// A running control plane. Dropping it ends every process and removes its files.
pub struct ControlPlane {
    pub kubectl: Kubectl,
    pub(crate) rights: Rights,
    pub(crate) credentials: WebhookCredentials,
    pub(crate) authority: Authority,
    pub(crate) url: String,
    pub(crate) etcd: String,
    processes: Vec<Process>,
    binaries: PathBuf,
    files: Files,
    dir: TempDir,
}

/// A second API server on a copy of etcd's data, as after a restore from a backup.
pub struct Restored {
    pub url: String,
    _processes: [Process; 2],
}

/// The directory with the binaries; `None` if they must be built and Go is missing.
pub fn binaries() -> Result<Option<PathBuf>> {
    xtask("control-plane")
}

impl ControlPlane {
    pub fn start(runtime: &Runtime, binaries: &Path, shape: &Shape) -> Result<Self> {
        remove_forgotten_runs();
        let dir = tempfile::Builder::new().prefix(RUN).tempdir()?;
        let mut ports = Ports::free()?;
        if let Some(address) = shape.real_node {
            ports.api.set_ip(address);
        }
        let authority = Authority::new()?;
        let files = Files::write(dir.path(), ports.api, &authority, shape)?;
        let kubectl = Kubectl::new(runtime, binaries, &files.kubeconfig, &dir.path().join("kubectl-cache"))?;

        let mut plane = Self {
            rights: Rights::read(&kubectl)?,
            kubectl,
            credentials: WebhookCredentials::write(dir.path())?,
            authority,
            url: format!("https://{}", ports.api),
            etcd: format!("http://{}", ports.etcd),
            processes: Vec::new(),
            binaries: binaries.to_owned(),
            files,
            dir,
        };
        if let Err(error) = plane.start_processes(&ports, shape) {
            eprintln!("{}", plane.tails());
            plane.keep();
            return Err(error);
        }
        Ok(plane)
    }

    fn start_processes(&mut self, ports: &Ports, shape: &Shape) -> Result<()> {
        let (binaries, files) = (&self.binaries, &self.files);
        let dir = self.dir.path().to_owned();
        let start = |name: &str, args: Vec<String>| Process::start(name, &binaries.join(name), &args, &dir);
        // A measured program is a process of its own.
        let restarted = |name: &str, args: Vec<String>| match shape.is_measured {
            true => start(name, args),
            false => {
                let log = running_log(&dir, name).display().to_string();
                let program = binaries.join(name).display().to_string();
                let shell = ["-c", UNTIL_INCURABLE, "sh", &log, CURABLE, &program].map(str::to_owned);
                Process::start(name, Path::new("sh"), &[&shell[..], &args].concat(), &dir)
            }
        };

        self.processes.push(start("etcd", etcd_args(&dir, ports))?);
        let mut args = api_server_args(files, ports);
        args.push(flag("admission-control-config-file", self.credentials.configuration()));
        if shape.has_gangs {
            let gates = format!("--feature-gates={GANGS}");
            args.extend([gates, "--runtime-config=scheduling.k8s.io/v1alpha2=true".to_owned()]);
        }
        self.processes.push(restarted(API_SERVER, args)?);
        eventually("kube-apiserver is ready", BOUND, || {
            self.processes.iter_mut().try_for_each(Process::ensure_running)?;
            self.kubectl.run(&["get", "--raw", "/readyz"], "")
        })?;

        self.processes.push(start(
            "kube-controller-manager",
            controller_manager_args(&dir, files, ports, shape),
        )?);
        let args = component_args(&dir, files, ports.scheduler, shape);
        self.processes.push(restarted(SCHEDULER, args)?);
        if shape.real_node.is_some() {
            return Ok(());
        }
        self.processes
            .push(start("kwok", kwok_args(binaries, files, ports, shape)?)?);
        self.grant()?;

        for node in &shape.nodes {
            self.kubectl.create(node)?;
        }
        let timeout = format!("--timeout={}s", BOUND.as_secs());
        self.kubectl
            .run(&["wait", "--for=condition=Ready", "node", "--all", &timeout], "")?;
        self.processes.iter_mut().try_for_each(Process::ensure_running)
    }

    /// Starts another kube-scheduler with this KubeSchedulerConfiguration. Its log is in `dir`.
    pub(crate) fn another_scheduler(&self, dir: &Path, config: &Value) -> Result<Process> {
        let mut config = config.clone();
        config["clientConnection"] = json!({"kubeconfig": self.files.kubeconfig});
        config["leaderElection"] = json!({"leaderElect": false});
        let file = dir.join("scheduler.yaml");
        fs::write(&file, config.to_string())?;
        let [address] = free_addresses()?;
        let args = [
            flag("config", &file),
            flag("authentication-kubeconfig", &self.files.kubeconfig),
            flag("authorization-kubeconfig", &self.files.kubeconfig),
            format!("--bind-address={}", address.ip()),
            format!("--secure-port={}", address.port()),
            flag("cert-dir", dir.join("scheduler-certificates")),
        ];
        Process::start("another-scheduler", &self.binaries.join(SCHEDULER), &args, dir)
    }

    pub(crate) fn back_up(&self, to: &Path) -> Result<()> {
        let _paused = self.process("etcd")?.pause()?;
        copy(&self.dir.path().join("etcd"), to)
    }

    /// Starts an API server on the backup in `dir/etcd`.
    pub(crate) fn restore(&self, dir: &Path) -> Result<Restored> {
        let ports = Ports::free()?;
        let mut args = etcd_args(dir, &ports);
        args.push("--force-new-cluster".to_owned());
        let etcd = Process::start("etcd", &self.binaries.join("etcd"), &args, dir)?;
        let mut args = api_server_args(&self.files, &ports);
        args.push(flag("admission-control-config-file", self.credentials.configuration()));
        args.push(flag("audit-log-path", dir.join(AUDIT_LOG)));
        let api_server = Process::start("kube-apiserver", &self.binaries.join("kube-apiserver"), &args, dir)?;
        let restored = Restored {
            url: format!("https://{}", ports.api),
            _processes: [api_server, etcd],
        };
        eventually("the restored API server is ready", BOUND, || {
            let server = format!("--server={}", restored.url);
            self.kubectl.run(&["get", "--raw", "/readyz", &server], "")
        })?;
        Ok(restored)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join(KUBECONFIG)
    }

    pub(crate) fn grant(&self) -> Result<()> {
        self.rights.grant(&self.kubectl)?;
        self.sign_in()
    }

    /// Writes a kubeconfig for edgeward's current ServiceAccount.
    pub(crate) fn sign_in(&self) -> Result<()> {
        self.sign_in_as("edgeward", &self.edgeward_kubeconfig())
    }

    /// Writes a kubeconfig for a ServiceAccount of edgeward's namespace.
    pub(crate) fn sign_in_as(&self, account: &str, file: &Path) -> Result<()> {
        let token = rights::token(&self.kubectl, account)?;
        let mut config: Value = serde_json::from_str(&fs::read_to_string(self.kubeconfig())?)?;
        config["users"][0]["user"] = json!({"token": token});
        Ok(fs::write(file, config.to_string())?)
    }

    /// The kubeconfig of edgeward's ServiceAccount, which has exactly the manifests' rights.
    pub(crate) fn edgeward_kubeconfig(&self) -> PathBuf {
        self.dir.path().join(EDGEWARD_KUBECONFIG)
    }

    pub(crate) fn process(&self, name: &str) -> Result<&Process> {
        let mut processes = self.processes.iter();
        let found = processes.find(|process| process.name() == name);
        found.with_context(|| format!("no {name}"))
    }

    pub fn binary(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn audited(&self) -> Result<u64> {
        match fs::metadata(self.dir.path().join(AUDIT_LOG)) {
            Ok(log) => Ok(log.len()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Audit events of pod and Deployment creations that name this namespace, in order. Reads the audit log from byte `from`
    /// on.
    pub(crate) fn creations(&self, namespace: &str, from: u64) -> Result<Vec<Value>> {
        let namespace = format!("\"namespace\":\"{namespace}\"");
        self.audit_log(from, |line| line.contains(&namespace) && !is_of_edgeward(line))
    }

    /// Log lines of the API server, one for each failed call of the webhook at this address after which it failed open.
    pub(crate) fn failed_open(&self, url: &str) -> Result<Vec<String>> {
        let log = fs::read_to_string(running_log(self.dir.path(), API_SERVER))?;
        let lines = log
            .lines()
            .filter(|line| line.contains("failing open") && line.contains(url));
        Ok(lines.map(ToOwned::to_owned).collect())
    }

    pub(crate) fn calls_of_edgeward(&self) -> Result<Vec<Value>> {
        self.audit_log(0, is_of_edgeward)
    }

    fn audit_log(&self, from: u64, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Value>> {
        let mut log = match File::open(self.dir.path().join(AUDIT_LOG)) {
            // The audit log does not exist yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
            log => log?,
        };
        log.seek(SeekFrom::Start(from))?;
        let mut text = String::new();
        log.read_to_string(&mut text)?;
        let lines = text.lines().filter(|line| is_wanted(line));
        // The last line may be incomplete.
        Ok(lines.filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Keeps the files of the run, with every log, for debugging.
    pub fn keep(&mut self) {
        self.dir.disable_cleanup(true);
        eprintln!("e2e: logs are kept in {}", self.dir.path().display());
    }

    fn tails(&self) -> String {
        self.processes.iter().map(Process::tail).collect::<Vec<_>>().join("\n")
    }
}

/// The log of a program that is started again, since its last start.
fn running_log(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}-running.log"))
}

const AUDIT_LOG: &str = "audit.log";

/// Whether a line of the audit log is a call by one of edgeward's ServiceAccounts.
fn is_of_edgeward(line: &str) -> bool {
    line.contains(&format!("\"username\":\"{}", rights::USER))
}

const RUN: &str = "edgeward-e2e-";

/// Removes files that failed or killed runs left behind more than a day ago.
fn remove_forgotten_runs() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let entries = fs::read_dir(env::temp_dir()).into_iter().flatten().flatten();
    for run in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(RUN)) {
        let modified = run.metadata().and_then(|metadata| metadata.modified()).ok();
        if modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > DAY) {
            // The files may belong to another user, who then has to remove them.
            let _ = fs::remove_dir_all(run.path());
        }
    }
}

struct Ports {
    etcd: SocketAddr,
    etcd_peer: SocketAddr,
    api: SocketAddr,
    controllers: SocketAddr,
    scheduler: SocketAddr,
    kwok: SocketAddr,
}

impl Ports {
    fn free() -> Result<Self> {
        let [etcd, etcd_peer, api, controllers, scheduler, kwok] = free_addresses()?;
        Ok(Self {
            etcd,
            etcd_peer,
            api,
            controllers,
            scheduler,
            kwok,
        })
    }
}

struct Files {
    ca: PathBuf,
    ca_key: PathBuf,
    serving: (PathBuf, PathBuf),
    service_accounts: (PathBuf, PathBuf),
    admin: (PathBuf, PathBuf),
    kubeconfig: PathBuf,
    audit_policy: PathBuf,
    audit_log: PathBuf,
    stages: PathBuf,
}

impl Files {
    fn write(dir: &Path, api: SocketAddr, authority: &Authority, shape: &Shape) -> Result<Self> {
        let (ca, ca_key) = (dir.join("ca.crt"), dir.join("ca.key"));
        fs::write(&ca, &authority.certificate)?;
        fs::write(&ca_key, &authority.key)?;
        let address = api.ip().to_string();
        let serving = authority
            .server(&["kubernetes.default.svc", FIRST_SERVICE, &address])?
            .write(dir, "kube-apiserver")?;
        let admin = authority.client("admin", "system:masters")?.write(dir, "admin")?;
        // Any key pair works. The API server reads the public key from its certificate.
        let service_accounts = authority
            .client("service-accounts", "none")?
            .write(dir, "service-accounts")?;

        let config = kubeconfig_of(
            json!({"server": format!("https://{api}"), "certificate-authority": ca}),
            json!({"client-certificate": admin.0, "client-key": admin.1}),
        );
        let kubeconfig = dir.join(KUBECONFIG);
        fs::write(&kubeconfig, config.to_string())?;

        // The audit policy records which webhooks the API server called for a pod and in which round, and edgeward's own calls.
        let audit_policy = dir.join("audit-policy.yaml");
        let rules = match shape.is_measured {
            true => json!([{"level": "None"}]),
            false => json!([
                {"level": "Metadata", "users": rights::users()},
                {"level": "None", "namespaces": NOT_AUDITED},
                {"level": "RequestResponse", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
                {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "apps", "resources": ["deployments"]}]},
                {"level": "None"},
            ]),
        };
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules,
        });
        fs::write(&audit_policy, policy.to_string())?;
        let stages = dir.join("stages.yaml");
        let text = include_str!("control_plane/stages.yaml").replace("$SLOW", SLOW);
        let text = text.replace("$MILLISECONDS", &SLOW_END.as_millis().to_string());
        fs::write(&stages, text.replace("$WORKS_ON", WORKS_ON))?;
        Ok(Self {
            ca,
            ca_key,
            serving,
            service_accounts,
            admin,
            kubeconfig,
            audit_policy,
            stages,
            audit_log: dir.join(AUDIT_LOG),
        })
    }
}

/// A kubeconfig with one cluster and one user.
pub(crate) fn kubeconfig_of(cluster: Value, user: Value) -> Value {
    let named = |kind: &str, body: Value| json!([{ "name": "e2e", kind: body }]);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "e2e",
        "contexts": named("context", json!({"cluster": "e2e", "user": "e2e"})),
        "clusters": named("cluster", cluster),
        "users": named("user", user),
    })
}

fn flag(name: &str, value: impl AsRef<Path>) -> String {
    format!("--{name}={}", value.as_ref().display())
}

fn etcd_args(dir: &Path, ports: &Ports) -> Vec<String> {
    let (client, peer) = (ports.etcd, ports.etcd_peer);
    vec![
        flag("data-dir", dir.join("etcd")),
        format!("--listen-client-urls=http://{client}"),
        format!("--advertise-client-urls=http://{client}"),
        format!("--listen-peer-urls=http://{peer}"),
        format!("--initial-advertise-peer-urls=http://{peer}"),
        format!("--initial-cluster=default=http://{peer}"),
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn api_server_args(files: &Files, ports: &Ports) -> Vec<String> {
    vec![
        format!("--etcd-servers=http://{}", ports.etcd),
        format!("--bind-address={}", ports.api.ip()),
        format!("--secure-port={}", ports.api.port()),
        flag("tls-cert-file", &files.serving.0),
        flag("tls-private-key-file", &files.serving.1),
        flag("client-ca-file", &files.ca),
        // Without this flag the controller manager and the scheduler report errors forever. No certificate has the allowed
        // name, because there is no proxy in front.
        flag("requestheader-client-ca-file", &files.ca),
        "--requestheader-allowed-names=front-proxy".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        flag("service-account-key-file", &files.service_accounts.0),
        flag("service-account-signing-key-file", &files.service_accounts.1),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-cluster-ip-range={SERVICES}"),
        // For `kubectl logs` of a real node.
        flag("kubelet-client-certificate", &files.admin.0),
        flag("kubelet-client-key", &files.admin.1),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        flag("audit-policy-file", &files.audit_policy),
        flag("audit-log-path", &files.audit_log),
        // In MiB. More than a run writes, so that the log stays in one file.
        "--audit-log-maxsize=4096".to_owned(),
    ]
}

fn component_args(dir: &Path, files: &Files, address: SocketAddr, shape: &Shape) -> Vec<String> {
    let mut args = vec![
        flag("kubeconfig", &files.kubeconfig),
        flag("authentication-kubeconfig", &files.kubeconfig),
        flag("authorization-kubeconfig", &files.kubeconfig),
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        flag("cert-dir", dir.join(format!("certificates-{}", address.port()))),
        "--leader-elect=false".to_owned(),
    ];
    if shape.has_gangs {
        args.push(format!("--feature-gates={GANGS}"));
    }
    if shape.is_measured {
        args.extend(["--kube-api-qps=1000", "--kube-api-burst=1000"].map(str::to_owned));
    }
    args
}

fn controller_manager_args(dir: &Path, files: &Files, ports: &Ports, shape: &Shape) -> Vec<String> {
    let mut args = component_args(dir, files, ports.controllers, shape);
    args.push(flag("service-account-private-key-file", &files.service_accounts.1));
    args.push(flag("root-ca-file", &files.ca));
    // The controller manager signs certificate requests.
    args.push(flag("cluster-signing-cert-file", &files.ca));
    args.push(flag("cluster-signing-key-file", &files.ca_key));
    args.push("--controllers=*,-node-ipam-controller".to_owned());
    if shape.detection == FailureDetection::Fast {
        args.extend(["--node-monitor-grace-period=10s", "--node-monitor-period=1s"].map(str::to_owned));
    }
    args
}

fn kwok_args(binaries: &Path, files: &Files, ports: &Ports, shape: &Shape) -> Result<Vec<String>> {
    let lease = match shape.detection {
        FailureDetection::AsDefault => 40,
        FailureDetection::Fast => 8,
    };
    let mut args = vec![
        flag("kubeconfig", &files.kubeconfig),
        // Virtual nodes are left out too, because they have a kubelet.
        format!("--manage-nodes-with-label-selector=!{STOPPED},{VIRTUAL_NODE}!=virtual-node"),
        // kwok renews leases after a quarter of their duration. Without leases, a node counts as lost 50 s after its last
        // heartbeat.
        format!("--node-lease-duration-seconds={lease}"),
        format!("--server-address={}", ports.kwok),
    ];
    let stages = binaries.join("stages");
    for stage in fs::read_dir(&stages).with_context(|| format!("{}", stages.display()))? {
        let stage = stage?;
        if shape.runs_pods || stage.file_name().to_string_lossy().starts_with("node-") {
            args.push(flag("config", stage.path()));
        }
    }
    if shape.runs_pods {
        args.push(flag("config", &files.stages));
    }
    Ok(args)
}

fn edge_node(name: &str) -> Value {
    node(
        name,
        json!({"node.role/edge": "true"}),
        json!([]),
        json!({"cpu": "4", "memory": "8Gi", "pods": "110"}),
    )
}

fn cloud_node(name: &str) -> Value {
    let taints = json!([{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]);
    node(
        name,
        json!({"node.role/cloud": "true"}),
        taints,
        json!({"cpu": "64", "memory": "256Gi", "pods": "500"}),
    )
}

pub fn node(name: &str, mut labels: Value, taints: Value, resources: Value) -> Value {
    labels["kubernetes.io/hostname"] = json!(name);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"taints": taints},
        "status": {"allocatable": resources, "capacity": resources},
    })
}

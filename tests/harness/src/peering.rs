//! A cluster peered with others by the real Liqo. Its unmodified programs run as processes next to the control planes, without
//! containers and without a network between the clusters.
//!
//! This is Liqo's declarative peering. The objects that `liqoctl peer` would create at either end are applied directly, and
//! Liqo's controllers do the rest.

mod objects;

use std::panic::resume_unwind;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Client;
use tokio::runtime::Runtime;

use self::objects::{CONSUMER, LIQO, TEMPLATE, webhooks};
pub use self::objects::{REMOTE, Strategy};
use crate::checkout::xtask;
use crate::control_plane::{ControlPlane, FailureDetection, Shape, VIRTUAL_NODE, kubeconfig_of, node};
use crate::decision::has_condition;
use crate::prelude::*;
use crate::process::{Paused, free_addresses};

#[derive(Debug)]
pub struct Layout {
    pub clouds: &'static [Cloud],
    pub detection: FailureDetection,
}

impl Layout {
    pub const NONE: Self = Self {
        clouds: &[],
        detection: FailureDetection::AsDefault,
    };
}

#[derive(Debug)]
pub struct Cloud {
    pub id: &'static str,
    /// The cloud's virtual nodes: name and promised CPU in cores.
    pub virtual_nodes: &'static [(&'static str, u32)],
    pub nodes: &'static [u32],
}

/// The clusters and the programs between them. Dropping it ends every process.
pub(crate) struct Peering {
    processes: Vec<Process>,
    providers: Vec<Provider>,
    consumer: ControlPlane,
}

pub struct Provider {
    /// The id of its [`Cloud`].
    pub id: &'static str,
    plane: ControlPlane,
}

struct Kit<'k> {
    runtime: &'k Runtime,
    binaries: &'k Path,
    liqo: PathBuf,
    definitions: Vec<Value>,
    http: Client,
}

impl Peering {
    /// Starts and peers the control planes. Waits until every virtual node is Ready.
    pub(crate) fn start(runtime: &Runtime, binaries: &Path, layout: &Layout) -> Result<Self> {
        let liqo = liqo()?;
        let kit = Kit {
            runtime,
            binaries,
            definitions: definitions(&liqo)?,
            liqo,
            http: Client::builder().no_proxy().timeout(BOUND).build()?,
        };
        let (consumer, providers) = thread::scope(|scope| {
            let providers = layout.clouds.iter();
            let providers: Vec<_> = providers.map(|cloud| scope.spawn(|| kit.provider(cloud))).collect();
            let consumer = kit.consumer(layout);
            let providers = providers
                .into_iter()
                .map(|started| started.join().unwrap_or_else(|panic| resume_unwind(panic)));
            (consumer, providers.collect::<Result<Vec<_>>>())
        });
        let (providers, started) = providers?.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        let mut peering = Self {
            processes: started,
            providers,
            consumer: consumer?,
        };
        if let Err(error) = peering.peer(&kit, layout) {
            eprintln!("{}", peering.tails());
            peering.keep();
            return Err(error);
        }
        Ok(peering)
    }

    fn peer(&mut self, kit: &Kit<'_>, layout: &Layout) -> Result<()> {
        let consumer = &self.consumer;
        consumer.rights.grant_liqo_for_good(&consumer.kubectl)?;
        let processes = kit.consumers_programs(consumer, layout.detection)?;
        self.processes.extend(processes);
        for (cloud, provider) in layout.clouds.iter().zip(&self.providers) {
            let identity = provider.identity()?;
            let identity = json!(identity).to_string();
            let mut made = objects::objects("tenancy", &[("$PROVIDER", cloud.id), ("$IDENTITY", &identity)])?;
            for (name, cores) in cloud.virtual_nodes {
                let cores = cores.to_string();
                let values = [("$PROVIDER", cloud.id), ("$NODE", *name), ("$CORES", &*cores)];
                made.extend(objects::objects("slice", &values)?);
            }
            for object in made {
                consumer.kubectl.create(&object)?;
            }
        }
        let nodes = layout.clouds.iter();
        let nodes = nodes.flat_map(|cloud| cloud.virtual_nodes.iter().map(|(name, _)| (cloud.id, *name)));
        for (cloud, name) in nodes.clone() {
            self.processes
                .push(kit.virtual_kubelet(consumer, cloud, name, layout.detection)?);
        }
        for (_, name) in nodes {
            eventually("the virtual node is Ready", BOUND, || {
                self.processes.iter_mut().try_for_each(Process::ensure_running)?;
                let node = self.consumer.kubectl.get("node", name)?;
                ensure!(has_condition(&node, "Ready"), "{}", node["status"]["conditions"]);
                let taints = node["spec"]["taints"].to_string();
                ensure!(!taints.contains("node.kubernetes.io"), "{taints}");
                Ok(())
            })?;
        }
        Ok(())
    }

    pub(crate) fn consumer(&self) -> &ControlPlane {
        &self.consumer
    }

    pub(crate) fn providers(&self) -> &[Provider] {
        &self.providers
    }

    pub(crate) fn keep(&mut self) {
        self.consumer.keep();
        self.providers.iter_mut().for_each(|provider| provider.plane.keep());
    }

    pub(crate) fn tails(&self) -> String {
        self.processes.iter().map(Process::tail).collect::<Vec<_>>().join("\n")
    }
}

impl Provider {
    pub fn kubectl(&self) -> &Kubectl {
        &self.plane.kubectl
    }

    /// A kubeconfig with all rights there.
    pub fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig()
    }

    pub fn kubectl_in(&self, namespace: &str) -> Kubectl {
        self.plane.kubectl.in_namespace(&format!("{namespace}-{CONSUMER}"))
    }

    pub fn site(&self) -> Value {
        json!({
            "name": self.id,
            "kind": "liqo",
            "nodeSelector": {VIRTUAL_NODE: "virtual-node", REMOTE: self.id},
            "probes": [format!("{}/livez", self.plane.url)],
        })
    }

    pub fn tcp_probe(&self) -> String {
        self.plane.url.replace("https:", "tcp:")
    }

    /// Stops the API server with SIGSTOP until the returned value is dropped. It neither answers nor closes connections.
    pub fn freeze(&self) -> Result<Paused<'_>> {
        self.plane.process("kube-apiserver")?.pause()
    }

    /// A kubeconfig with the rights that Liqo gives the other cluster's control plane here.
    fn identity(&self) -> Result<String> {
        let pair = self.plane.authority.client(objects::CONTROL_PLANE, CONSUMER)?;
        let encoded = |text: &str| STANDARD.encode(text);
        let user = json!({
            "client-certificate-data": encoded(&pair.certificate),
            "client-key-data": encoded(&pair.key),
        });
        let cluster = json!({
            "server": self.plane.url,
            "certificate-authority-data": encoded(&self.plane.authority.certificate),
        });
        Ok(kubeconfig_of(cluster, user).to_string())
    }
}

impl Kit<'_> {
    /// Starts a cloud's control plane, ready to be peered, and its Liqo controllers.
    fn provider(&self, cloud: &Cloud) -> Result<(Provider, Process)> {
        let node = |(i, cores): (usize, &u32)| {
            let resources = json!({"cpu": cores, "memory": "256Gi", "pods": "500"});
            node(&format!("{}-{}", cloud.id, i + 1), json!({}), json!([]), resources)
        };
        let shape = Shape {
            nodes: cloud.nodes.iter().enumerate().map(node).collect(),
            ..Shape::default()
        };
        let plane = ControlPlane::start(self.runtime, self.binaries, &shape)?;
        self.define(&plane)?;
        for role in objects::ROLES_THERE {
            plane.kubectl.create(&self.role(role)?)?;
        }
        for object in objects::objects("provider", &[])? {
            plane.kubectl.create(&object)?;
        }
        let ca = STANDARD.encode(&plane.authority.certificate);
        let more = [
            format!("--api-server-address-override={}", plane.url),
            format!("--ca-override={ca}"),
            "--default-limits-enforcement=None".to_owned(),
        ];
        let controllers = self.controllers(&plane, cloud.id, &more)?;
        Ok((Provider { id: cloud.id, plane }, controllers))
    }

    /// Starts the cluster where pods are created, with the objects of Liqo's chart.
    fn consumer(&self, layout: &Layout) -> Result<ControlPlane> {
        let shape = Shape::edge_and(vec![], layout.detection);
        let plane = ControlPlane::start(self.runtime, self.binaries, &shape)?;
        self.define(&plane)?;
        plane.kubectl.create(&self.role("virtual-kubelet-local")?)?;
        for object in objects::objects("consumer", &[])? {
            plane.kubectl.create(&object)?;
        }
        Ok(plane)
    }

    /// Installs all of Liqo's definitions. Its controllers exit at once unless all are served.
    fn define(&self, plane: &ControlPlane) -> Result<()> {
        for definition in &self.definitions {
            plane.kubectl.create(definition)?;
        }
        eventually("Liqo's definitions are served", BOUND, || {
            let kinds = plane.kubectl.list("customresourcedefinitions", "")?;
            let established = kinds.iter().filter(|kind| has_condition(kind, "Established")).count();
            ensure!(established >= self.definitions.len(), "{established}");
            Ok(())
        })
    }

    /// A role of the chart. Its rules are in a file, and its label identifies it.
    fn role(&self, name: &str) -> Result<Value> {
        let mut role = read(&self.liqo.join(format!("roles/liqo-{name}-ClusterRole.yaml")))?;
        role["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        role["kind"] = json!("ClusterRole");
        role["metadata"] = json!({"name": format!("liqo-{name}"), "labels": {"app.kubernetes.io/name": name}});
        Ok(role)
    }

    fn controllers(&self, plane: &ControlPlane, id: &str, more: &[String]) -> Result<Process> {
        let [health] = free_addresses()?;
        let mut args = vec![
            format!("--cluster-id={id}"),
            format!("--liqo-namespace={LIQO}"),
            "--networking-enabled=false".to_owned(),
            "--metrics-address=0".to_owned(),
            format!("--health-probe-address={health}"),
        ];
        args.extend_from_slice(more);
        let mut process = self.start(plane, "liqo-controller-manager", "liqo-controller-manager", &args, &[])?;
        self.ready(&mut process, &format!("http://{health}/readyz"))?;
        Ok(process)
    }

    /// Starts Liqo's programs of the cluster where pods are created, except the virtual kubelets. The webhook is registered,
    /// because without it a VirtualNode has no template, and Liqo's controllers crash.
    fn consumers_programs(&self, plane: &ControlPlane, detection: FailureDetection) -> Result<Vec<Process>> {
        let [webhook, health] = free_addresses()?;
        let temporary = plane.dir().join("liqo-webhook");
        let serving = temporary.join("k8s-webhook-server/serving-certs");
        fs::create_dir_all(&serving)?;
        let authority = Authority::new()?;
        authority.server(&[])?.write(&serving, "tls")?;
        let args = [
            format!("--cluster-id={CONSUMER}"),
            format!("--liqo-namespace={LIQO}"),
            format!("--webhook-port={}", webhook.port()),
            format!("--vk-options-default-template={LIQO}/{TEMPLATE}"),
            "--metrics-address=0".to_owned(),
            format!("--health-probe-address={health}"),
        ];
        let environment = [("TMPDIR", temporary.as_path())];
        let mut server = self.start(plane, "liqo-webhook", "webhook", &args, &environment)?;
        self.ready(&mut server, &format!("http://{health}/readyz"))?;
        for configuration in webhooks(webhook.port(), &STANDARD.encode(&authority.certificate))? {
            plane.kubectl.create(&configuration)?;
        }
        let pings = match detection {
            FailureDetection::AsDefault => vec![],
            FailureDetection::Fast => vec![
                "--foreign-cluster-ping-interval=2s".to_owned(),
                "--foreign-cluster-ping-timeout=1s".to_owned(),
            ],
        };
        let controllers = self.controllers(plane, CONSUMER, &pings)?;
        let args = [format!("--cluster-id={CONSUMER}"), "--metrics-address=0".to_owned()];
        let replicator = self.start(plane, "crd-replicator", "crd-replicator", &args, &[])?;
        Ok(vec![server, controllers, replicator])
    }

    /// Starts the virtual kubelet with the arguments of the Deployment that Liqo's controllers create for the VirtualNode.
    fn virtual_kubelet(
        &self,
        plane: &ControlPlane,
        cloud: &str,
        node: &str,
        detection: FailureDetection,
    ) -> Result<Process> {
        let namespace = format!("{LIQO}-tenant-{cloud}");
        let kubectl = plane.kubectl.in_namespace(&namespace);
        let selector = format!("liqo.io/virtual-node={node}");
        let deployment = eventually("Liqo has made a virtual node", BOUND, || {
            let made = kubectl.list("deployments", &selector)?.into_iter().next();
            made.context("no Deployment of a virtual kubelet")
        })?;
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let args = container["args"].as_array().context("it has arguments")?.iter();
        let mut args: Vec<_> = args
            .filter_map(Value::as_str)
            .map(|arg| arg.replace("$(POD_IP)", "127.0.0.1"))
            .collect();
        // The virtual kubelet can only listen on all addresses.
        let [listen] = free_addresses()?;
        args.push(format!("--listen-port={}", listen.port()));
        if detection == FailureDetection::Fast {
            args.extend(["--node-ping-interval=1s", "--node-lease-duration=8s"].map(str::to_owned));
        }
        let name = format!("virtual-kubelet-{node}");
        let environment = [
            ("POD_NAME", Path::new(&name)),
            ("POD_NAMESPACE", Path::new(&namespace)),
            ("VIRTUALNODE_NAME", Path::new(node)),
        ];
        self.start(plane, &name, "virtual-kubelet", &args, &environment)
    }

    /// Starts one of Liqo's programs with administrator rights in that cluster.
    fn start(
        &self,
        plane: &ControlPlane,
        name: &str,
        program: &str,
        args: &[String],
        environment: &[(&str, &Path)],
    ) -> Result<Process> {
        let kubeconfig = plane.kubeconfig();
        let environment = [environment, &[("KUBECONFIG", kubeconfig.as_path())]].concat();
        Process::start_with(name, &self.liqo.join(program), args, plane.dir(), &environment)
    }

    fn ready(&self, process: &mut Process, url: &str) -> Result<()> {
        eventually("one of Liqo's programs is ready", BOUND, || {
            process.ensure_running()?;
            let answer = self.runtime.block_on(async { self.http.get(url).send().await })?;
            ensure!(answer.status().is_success(), "{}", answer.status());
            Ok(())
        })
    }
}

/// The directory with Liqo's programs, which are built first if need be.
pub fn liqo() -> Result<PathBuf> {
    xtask("liqo")?.context("there is no Go to build Liqo with and EDGEWARD_LIQO is not set")
}

pub(crate) fn definitions(liqo: &Path) -> Result<Vec<Value>> {
    let files = fs::read_dir(liqo.join("crds"))?;
    files.map(|file| read(&file?.path())).collect()
}

fn read(file: &Path) -> Result<Value> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_saphyr::from_str(&text).with_context(|| file.display().to_string())
}

/// Offloads this namespace, or changes its strategy. Waits until every cloud has the namespace.
pub(crate) fn offload(kubectl: &Kubectl, namespace: &str, strategy: Strategy) -> Result<()> {
    let strategy_name = format!("{strategy:?}");
    let values = [("$NAMESPACE", namespace), ("$STRATEGY", &*strategy_name)];
    for object in objects::objects("offloading", &values)? {
        kubectl.apply(&object)?;
    }
    eventually("the namespace is offloaded", BOUND, || {
        let offloading = kubectl.get("namespaceoffloadings", "offloading")?;
        let phase = &offloading["status"]["offloadingPhase"];
        let observed = &offloading["status"]["observedGeneration"];
        ensure!(
            phase == "Ready" && *observed == offloading["metadata"]["generation"],
            "{}",
            offloading["status"]
        );
        // The API server calls Liqo's webhook for namespaces with this label.
        let labels = kubectl.get("namespace", namespace)?["metadata"]["labels"].take();
        let is_called = labels["liqo.io/scheduling-enabled"] == "true";
        ensure!(is_called == (strategy != Strategy::Local), "{labels}");
        Ok(())
    })
}

/// The pods with this label, once there are `count` and each is Running, at any site.
pub fn running(kubectl: &Kubectl, label: &str, count: usize) -> Result<Vec<Value>> {
    eventually(&format!("{count} pods run"), 4 * BOUND, || {
        let pods = kubectl.list("pods", label)?;
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        ensure!(
            pods.len() == count && running == count,
            "{running} of {} run",
            pods.len()
        );
        Ok(pods)
    })
}

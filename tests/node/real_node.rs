//! A real node beside a control plane: containerd, kubelet, kube-proxy and kube-router, which enforces network policies. All run
//! in this process's sandbox, so that nothing of them outlives it.

use std::env;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use tokio::runtime::Runtime;

use edgeward_harness::control_plane::{ControlPlane, FailureDetection, SERVICES, Shape};
use edgeward_harness::prelude::*;
use edgeward_harness::wait::TIMEOUT;

use crate::installed::image;

pub(crate) const NODE: &str = "edge-1";

/// The image of pods that do nothing, under the name that its archive has.
pub(crate) const PAUSE: &str = "localhost/pause:1";

/// The variable that names the folder with kubelet, kube-proxy, containerd, runc, CNI plugins and the archive `pause.tar`.
pub(crate) const PROGRAMS: &str = "EDGEWARD_NODE";

/// The variable that names the program kube-router.
pub(crate) const KUBE_ROUTER: &str = "EDGEWARD_KUBE_ROUTER";

/// The node's address.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);

/// Gives the network namespace an address, and forwarding between it and pods.
const NETWORK: &str = "ip link set lo up && ip link add node type veth peer name beyond && \
    ip address add 198.51.100.10/24 dev node && ip link set node up && ip link set beyond up && \
    ip route add default via 198.51.100.1 && sysctl --quiet --write net.ipv4.ip_forward=1";

/// A running cluster of one real node. Dropping it ends its processes; the containers end with the sandbox.
pub(crate) struct RealNode {
    // Dropped before the control plane.
    processes: Vec<Process>,
    plane: ControlPlane,
    programs: PathBuf,
}

impl RealNode {
    /// Starts the cluster, with the images of this archive on its node. Takes about 15 s.
    pub(crate) fn start(runtime: &Runtime, archive: &Path) -> Result<Self> {
        let folder = |name: &str| env::var_os(name).map(PathBuf::from).with_context(|| name.to_owned());
        let programs = folder(PROGRAMS)?;
        run(Command::new("sh").args(["-c", NETWORK]))?;
        let shape = Shape {
            real_node: Some(IpAddr::V4(ADDRESS)),
            ..Shape::edge_and(vec![], FailureDetection::AsDefault)
        };
        let plane = ControlPlane::start(runtime, &folder("EDGEWARD_CONTROL_PLANE")?, &shape)?;
        let mut node = Self {
            processes: vec![],
            plane,
            programs,
        };
        node.start_runtime(archive)?;
        node.start_kubelet()?;
        node.start_proxy()?;
        let wait = ["wait", "--for=create", "node", NODE, TIMEOUT];
        node.kubectl("default").run(&wait, "")?;
        node.start_policies()?;
        let wait = ["wait", "--for=condition=Ready", "node", NODE, TIMEOUT];
        node.kubectl("default").run(&wait, "")?;
        Ok(node)
    }

    pub(crate) fn kubectl(&self, namespace: &str) -> Kubectl {
        self.plane.kubectl.in_namespace(namespace)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.plane.dir()
    }

    /// Keeps the logs of every program.
    pub(crate) fn keep(&mut self) {
        self.plane.keep();
    }

    fn start_runtime(&mut self, archive: &Path) -> Result<()> {
        let cni = self.dir().join("cni");
        fs::create_dir(&cni)?;
        fs::write(cni.join("10-pods.conflist"), include_str!("real_node/cni.conflist"))?;
        let config = self.write("containerd.toml", include_str!("real_node/containerd.toml"))?;
        let args = [format!("--config={}", config.display())];
        self.start_program("containerd", &self.programs.join("containerd"), &args)?;
        let socket = self.dir().join("containerd.sock").display().to_string();
        let ctr = |args: &[&str]| {
            let mut ctr = Command::new(self.programs.join("ctr"));
            run(ctr.args(["--address", &socket, "--namespace", "k8s.io"]).args(args))
        };
        eventually("containerd answers", BOUND, || ctr(&["version"]))?;
        let import = |archive: &Path, args: &[&str]| {
            let archive = archive.display().to_string();
            ctr(&[&["images", "import"], args, &[&*archive]].concat())
        };
        import(&self.programs.join("pause.tar"), &[])?;
        // As if it was pulled by tag and by digest.
        import(archive, &["--base-name", &image().0, "--digests"])
    }

    fn start_kubelet(&mut self) -> Result<()> {
        let config = self.write("kubelet.yaml", include_str!("real_node/kubelet.yaml"))?;
        let args = [
            format!("--kubeconfig={}", self.kubeconfig().display()),
            format!("--config={}", config.display()),
            format!("--root-dir={}", self.dir().join("kubelet").display()),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={ADDRESS}"),
            "--node-labels=node.role/edge=true".to_owned(),
        ];
        self.start_program("kubelet", &self.programs.join("kubelet"), &args)
    }

    fn start_proxy(&mut self) -> Result<()> {
        let args = [
            format!("--kubeconfig={}", self.kubeconfig().display()),
            format!("--hostname-override={NODE}"),
            "--proxy-mode=nftables".to_owned(),
            "--conntrack-max-per-core=0".to_owned(),
            "--conntrack-min=0".to_owned(),
        ];
        self.start_program("kube-proxy", &self.programs.join("kube-proxy"), &args)
    }

    fn start_policies(&mut self) -> Result<()> {
        let program = PathBuf::from(env::var_os(KUBE_ROUTER).context(KUBE_ROUTER)?);
        let args = [
            format!("--kubeconfig={}", self.kubeconfig().display()),
            format!("--hostname-override={NODE}"),
            format!("--service-cluster-ip-range={SERVICES}"),
            "--run-firewall=true".to_owned(),
            "--run-router=false".to_owned(),
            "--run-service-proxy=false".to_owned(),
            "--health-port=0".to_owned(),
        ];
        self.start_program("kube-router", &program, &args)
    }

    /// Writes a configuration, with this cluster's paths in place of its variables.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let dir = self.dir();
        let file = dir.join(name);
        let text = text
            .replace("$DIR", &dir.display().to_string())
            .replace("$PAUSE", PAUSE);
        let text = text.replace("$CA", &dir.join("ca.crt").display().to_string());
        fs::write(&file, text.replace("$PROGRAMS", &self.programs.display().to_string()))?;
        Ok(file)
    }

    fn start_program(&mut self, name: &str, program: &Path, args: &[String]) -> Result<()> {
        let system = env::var_os("PATH").unwrap_or_default();
        let folders = [self.programs.clone()].into_iter().chain(env::split_paths(&system));
        let path = PathBuf::from(env::join_paths(folders)?);
        let dir = self.dir().to_owned();
        self.processes
            .push(Process::start_with(name, program, args, &dir, &[("PATH", &path)])?);
        Ok(())
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {said}", output.status);
    Ok(())
}

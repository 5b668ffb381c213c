//! Installation, test, upgrade and removal by Helm, as `docs/guide/install.md` and `operate.md` say. A pod is decided in
//! between, and nothing is left at the end.

use std::process::Stdio;

use edgeward_harness::control_plane::EDGE_NODES;
use edgeward_harness::documentation::{documented, script};
use edgeward_harness::fixture::DEFINITIONS;
use edgeward_harness::helm::Helm;
use edgeward_harness::installation::Installation;
use edgeward_harness::prelude::*;
use edgeward_harness::wait::TIMEOUT;

use crate::install::{
    Ground, Source, check_out, config_map, decides_and_gates, definitions_are_kept_until_they_are_deleted, gates,
    is_as_it_was, is_restricted,
};

/// A domain of its own, set everywhere by one value.
const DOMAIN: &str = "acme.dev";

/// The label of the only node on which edgeward and the hooks may run.
const HOME: &str = "edgeward.test/home";

e2e! { "install::by_helm", Cluster, by_helm }
/// With the chart's defaults. A test of the chart compares its other variants with those of kustomize.
fn by_helm(fixture: &Fixture<'_>) -> Result<()> {
    let source = Source::CertManager;
    let helm = Helm::obtain(&fixture.dir)?;
    let ground = Ground::clear(fixture, source, DOMAIN)?;

    check_out(fixture, source)?;
    let chart = Chart { fixture, helm, source };
    chart.write_values(&ground.nodes)?;
    let home = Home::of(fixture)?;
    chart.install()?;
    let manifest = chart.run("helm -n edgeward-system get manifest edgeward")?;
    let installation = Installation {
        fixture,
        domain: DOMAIN,
        objects: serde_saphyr::from_multiple(&manifest)?,
    };
    is_restricted(&installation)?;

    // No kubelet has the logs of the Job's pod.
    let command = script("install.md", "helm -n edgeward-system test")?.trim_end_matches(" --logs");
    let test = || {
        chart.during_hook(&home, command, "edgeward-test", |kubeconfig, args| {
            fixture.command_as(kubeconfig, args)
        })
    };
    // The Deployment's pods run nowhere, so a server at their addresses has a wrong certificate, and there is no leader. All
    // other checks pass.
    let tested = test()?;
    let faults = tested.stdout.lines().filter(|line| line.starts_with("FAULT"));
    let others: Vec<_> = faults
        .filter(|line| {
            !["FAULT    certificate", "FAULT    leader"]
                .iter()
                .any(|area| line.starts_with(area))
        })
        .collect();
    ensure!(
        others.is_empty() && !tested.succeeded,
        "{}{}",
        tested.stdout,
        tested.stderr
    );

    let replica = decides_and_gates(&installation)?;
    let tested = test()?;
    ensure!(tested.succeeded, "{}{}", tested.stdout, tested.stderr);
    for area in [
        "configuration",
        "resources",
        "rights",
        "leader",
        "certificate",
        "namespaces",
        "nodes",
    ] {
        let fine = format!("ok       {area}");
        ensure!(tested.stdout.contains(&fine), "{}{}", tested.stdout, tested.stderr);
    }

    let uninstall = documented("sh", "helm -n edgeward-system uninstall")?;
    let released = chart.during_hook(&home, uninstall, "edgeward-uninstall", |kubeconfig, args| {
        let released = fixture.command_as(kubeconfig, args)?;
        // `release` reads a pod again only if it has changed since it was listed. None has, but a pod that is named is also
        // read.
        let domain = format!("--domain={DOMAIN}");
        let named = fixture.command_as(kubeconfig, &["release", "gated", "-n", &fixture.namespace, &domain])?;
        ensure!(named.stdout.contains("/gated already free\n"), "{named:?}");
        // The replica runs until the Deployment is deleted, which is next.
        drop(replica);
        Ok(released)
    })?;
    let expected = format!(
        "mutatingwebhookconfiguration zz-edgeward deleted\n{}/gated released\n1 released, 0 already free, 0 failed: ",
        fixture.namespace
    );
    ensure!(released.stdout.starts_with(&expected), "{released:?}");
    ensure!(gates(fixture, "gated")? == Value::Null, "{}", gates(fixture, "gated")?);
    drop(home);
    // The objects that were kept are adopted into the same release again.
    chart.run("helm install edgeward edgeward/deploy/helm/edgeward --namespace edgeward-system --values mine.yaml --dry-run=server")?;
    definitions_are_kept_until_they_are_deleted(fixture)?;
    is_as_it_was(fixture, &ground.before)
}

pub(crate) struct Chart<'s, 'run> {
    pub(crate) fixture: &'s Fixture<'run>,
    pub(crate) helm: Helm,
    pub(crate) source: Source,
}

impl Chart<'_, '_> {
    fn write_values(&self, nodes: &Nodes<'_>) -> Result<()> {
        let mut values = self.values(nodes)?;
        values["domain"] = json!(DOMAIN);
        values["nodeSelector"] = json!({HOME: "true"});
        self.write(&values)
    }

    /// mine.yaml as documented, with the test's certificate and sites.
    pub(crate) fn values(&self, nodes: &Nodes<'_>) -> Result<Value> {
        let mut values: Value = serde_saphyr::from_str(documented("yaml", "repository: IMAGE")?)?;
        values["certificates"] = json!({"source": self.source.name()});
        if self.source == Source::Files {
            let pem = |file: &str| fs::read_to_string(self.fixture.dir.join("edgeward/certs/files").join(file));
            let files = json!({"ca": pem("ca.crt")?, "certificate": pem("tls.crt")?, "key": pem("tls.key")?});
            values["certificates"]["files"] = files;
        }
        values["config"] = json!({"sites": nodes.config()["sites"]});
        values["image"] = json!({"repository": "registry.example/edgeward"});
        Ok(values)
    }

    /// Writes the values where the documented commands read them.
    pub(crate) fn write(&self, values: &Value) -> Result<()> {
        Ok(fs::write(self.fixture.dir.join("mine.yaml"), values.to_string())?)
    }

    /// A script that uses the test's `helm`, and the program under test as `edgeward`.
    fn script(&self, script: &str) -> String {
        let home = self.fixture.dir.join("helm");
        let (folder, home) = (self.helm.folder().display(), home.display());
        format!(
            "export PATH=\"{folder}:$PATH\" HELM_CACHE_HOME={home} HELM_CONFIG_HOME={home} HELM_DATA_HOME={home}\n{script}"
        )
    }

    pub(crate) fn run(&self, script: &str) -> Result<String> {
        self.fixture.shell(&self.script(script))
    }

    /// Installs as documented. Installing again replaces no pod.
    fn install(&self) -> Result<()> {
        let notes = self.run(documented("sh", "helm install edgeward")?)?;
        let opt_in = format!("kubectl label namespace NAMESPACE scheduling.{DOMAIN}/managed=true\n");
        ensure!(notes.contains(&opt_in), "{notes}");
        let upgrade = documented("sh", "helm upgrade edgeward")?;
        self.run(upgrade)?;
        let deployment = self.fixture.kubectl_in(NAMESPACE).get("deployment", "edgeward")?;
        ensure!(deployment["metadata"]["generation"] == 1, "{deployment:#}");
        ensure!(
            deployment["spec"]["template"]["spec"]["nodeSelector"][HOME] == "true",
            "{deployment:#}"
        );
        self.configure_and_roll_back()?;
        self.fixture.kubectl.wait_until_established(&DEFINITIONS)
    }

    /// Changes the configuration and rolls back. Each configuration is a ConfigMap of its own, which exists.
    fn configure_and_roll_back(&self) -> Result<()> {
        let kubectl = self.fixture.kubectl_in(NAMESPACE);
        let before = config_map(&kubectl)?;
        let changed = documented("sh", "helm upgrade edgeward")?.trim_end();
        self.run(&format!("{changed} --set config.explain=full"))?;
        let other = config_map(&kubectl)?;
        ensure!(other != before, "{other}");
        self.run(documented("sh", "helm -n edgeward-system rollback edgeward")?)?;
        let back = config_map(&kubectl)?;
        ensure!(back == before, "{back}, and not {before}");
        for map in [&before, &other] {
            kubectl.get("configmap", map)?;
        }
        let rollout = ["rollout", "status", "deployment", "edgeward", TIMEOUT];
        kubectl.run(&rollout, "").map(drop)
    }

    /// Runs a Helm script whose hook is the Job `name`. Meanwhile calls `run` with the Job's kubeconfig and arguments, and
    /// returns its result.
    ///
    /// No kubelet runs containers here, and kwok completes a Job's pod as soon as it has a node. So the test keeps the pod from
    /// getting a node while it runs the command itself. It uses the arguments of the Job in the cluster and the rights of its
    /// ServiceAccount. Helm waits as usual.
    fn during_hook(
        &self,
        home: &Home<'_, '_>,
        script: &str,
        name: &str,
        run: impl FnOnce(&Path, &[&str]) -> Result<Said>,
    ) -> Result<Said> {
        let kubectl = self.fixture.kubectl_in(NAMESPACE);
        home.close()?;
        let mut helm =
            self.fixture
                .kubectl
                .in_shell(&self.script(script), &self.fixture.kubeconfig(), &self.fixture.dir);
        let mut helm = helm.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let ran = eventually("the hook waits for a node", BOUND, || {
            if let Some(status) = helm.try_wait()? {
                anyhow::bail!("helm has ended: {status}");
            }
            let pods = kubectl.list("pods", &format!("job-name={name}"))?;
            ensure!(pods.len() == 1 && pods[0]["spec"]["nodeName"].is_null(), "{pods:?}");
            kubectl.get("job", name)
        })
        .and_then(|job| {
            let container = &job["spec"]["template"]["spec"]["containers"][0];
            let args = container["args"].as_array().context("arguments")?.iter();
            let args: Vec<_> = args.filter_map(Value::as_str).collect();
            run(&self.fixture.kubeconfig_of(name)?, &args)
        });
        home.open()?;
        let output = helm.wait_with_output()?;
        let ran = ran.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(ran)
    }
}

/// The node with the label. Dropping the value removes the label.
struct Home<'s, 'run>(&'s Fixture<'run>);

impl<'s, 'run> Home<'s, 'run> {
    fn of(fixture: &'s Fixture<'run>) -> Result<Self> {
        let home = Self(fixture);
        home.open()?;
        Ok(home)
    }

    fn label(&self, label: &str) -> Result<()> {
        let args = ["label", "node", EDGE_NODES[0], &format!("{HOME}{label}"), "--overwrite"];
        self.0.kubectl.run(&args, "").map(drop)
    }

    fn open(&self) -> Result<()> {
        self.label("=true")
    }

    /// Cordons the node. Running pods stay, and no new ones start.
    fn close(&self) -> Result<()> {
        self.label("-")
    }
}

impl Drop for Home<'_, '_> {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            eprintln!("{error:#}");
        }
    }
}

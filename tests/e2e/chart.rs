//! Installed by Helm as `docs/operations.md` says, tested, upgraded and uninstalled: a pod is decided in between, and nothing
//! is left.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::control_plane::EDGE_NODES;
use crate::fleet_command::command;
use crate::install::{Ground, Installation, Source, check_out, documented, gates, is_as_it_was};
use crate::kubectl::Said;
use crate::patience::{BOUND, TIMEOUT, eventually};
use crate::program::Helm;
use crate::rights::NAMESPACE;
use crate::scene::Scene;
use crate::stage::Stage;

/// Under a domain of its own, which one value brings everywhere.
const DOMAIN: &str = "acme.dev";

/// Label of the one node on which edgeward and the hooks may run.
const HOME: &str = "edgeward.test/home";

/// As the chart is by default.
pub(crate) fn by_helm(scene: &Scene<'_>) -> Result<()> {
    install_and_uninstall(scene, Source::CertManager)
}

pub(crate) fn by_helm_self_managed(scene: &Scene<'_>) -> Result<()> {
    install_and_uninstall(scene, Source::SelfManaged)
}

pub(crate) fn by_helm_with_files(scene: &Scene<'_>) -> Result<()> {
    install_and_uninstall(scene, Source::Files)
}

fn install_and_uninstall(scene: &Scene<'_>, source: Source) -> Result<()> {
    let helm = Helm::obtain(&scene.dir)?;
    let ground = Ground::clear(scene, source, DOMAIN)?;

    check_out(scene, source)?;
    let chart = Chart { scene, helm, source };
    chart.write_values(&ground.stage)?;
    let home = Home::of(scene)?;
    chart.install()?;
    let manifest = chart.run("helm -n edgeward-system get manifest edgeward")?;
    let installation = Installation {
        scene,
        domain: DOMAIN,
        objects: serde_saphyr::from_multiple(&manifest)?,
    };
    installation.is_restricted()?;

    let test = || chart.during_hook(&home, "helm -n edgeward-system test edgeward", "edgeward-test", command);
    // The pods that serve run nowhere, so whoever is at their addresses has not their certificate, and nobody leads; all else is
    // as it should be.
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

    let replica = installation.decides_and_holds()?;
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
        let released = command(kubeconfig, args)?;
        // It reads a pod that has changed since it was listed. None has; but one that is named is read as well.
        let domain = format!("--domain={DOMAIN}");
        let named = command(kubeconfig, &["release", "held", "-n", &scene.namespace, &domain])?;
        ensure!(named.stdout.contains("/held already free\n"), "{named:?}");
        // It runs until the Deployment goes, which is next.
        drop(replica);
        Ok(released)
    })?;
    let expected = format!(
        "mutatingwebhookconfiguration zz-edgeward deleted\n{}/held released\n1 released, 0 already free, 0 failed: ",
        scene.namespace
    );
    ensure!(released.stdout.starts_with(&expected), "{released:?}");
    ensure!(gates(scene, "held")? == Value::Null, "{}", gates(scene, "held")?);
    drop(home);
    is_as_it_was(scene, &ground.before)
}

struct Chart<'s, 'run> {
    scene: &'s Scene<'run>,
    helm: Helm,
    source: Source,
}

impl Chart<'_, '_> {
    /// mine.yaml, as the documentation has it, but for the certificate and the sites, which are the trial's.
    fn write_values(&self, stage: &Stage<'_>) -> Result<()> {
        let mut values: Value = serde_saphyr::from_str(documented("yaml", "repository: IMAGE")?)?;
        values["certificates"] = json!({"source": self.source.name()});
        if self.source == Source::Files {
            let pem = |file: &str| fs::read_to_string(self.scene.dir.join("edgeward/certs/files").join(file));
            let files = json!({"ca": pem("ca.crt")?, "certificate": pem("tls.crt")?, "key": pem("tls.key")?});
            values["certificates"]["files"] = files;
        }
        values["config"] = json!({"sites": stage.config()["sites"]});
        values["image"] = json!({"repository": "registry.example/edgeward"});
        values["domain"] = json!(DOMAIN);
        values["nodeSelector"] = json!({HOME: "true"});
        Ok(fs::write(self.scene.dir.join("mine.yaml"), values.to_string())?)
    }

    /// A script whose `helm` is ours, and whose `edgeward` is the program under test.
    fn script(&self, script: &str) -> String {
        let home = self.scene.dir.join("helm");
        let (folder, home) = (self.helm.folder().display(), home.display());
        format!(
            "export PATH=\"{folder}:$PATH\" HELM_CACHE_HOME={home} HELM_CONFIG_HOME={home} HELM_DATA_HOME={home}\n{script}"
        )
    }

    fn run(&self, script: &str) -> Result<String> {
        self.scene.shell(&self.script(script))
    }

    /// By the lines of the documentation. Doing it again replaces no pod.
    fn install(&self) -> Result<()> {
        let notes = self.run(documented("sh", "helm install edgeward")?)?;
        let opt_in = format!("kubectl label namespace NAMESPACE scheduling.{DOMAIN}/managed=true\n");
        ensure!(notes.contains(&opt_in), "{notes}");
        let upgrade = documented("sh", "helm upgrade edgeward")?;
        self.run(upgrade)?;
        let deployment = self.scene.kubectl_in(NAMESPACE).get("deployment", "edgeward")?;
        ensure!(deployment["metadata"]["generation"] == 1, "{deployment:#}");
        ensure!(
            deployment["spec"]["template"]["spec"]["nodeSelector"][HOME] == "true",
            "{deployment:#}"
        );
        let names = ["crd/sites.edgeward.io", "crd/slopolicies.edgeward.io"];
        let args = ["wait", "--for=condition=Established", TIMEOUT];
        self.scene.kubectl.run(&[&args[..], &names[..]].concat(), "").map(drop)
    }

    /// Runs a script of Helm's that runs the Job `name` as a hook, and meanwhile `run` with the kubeconfig and the arguments
    /// of that Job; returns what that does.
    ///
    /// No kubelet runs containers here: kwok calls a Job's pod completed as soon as it has a node. So it is kept from having
    /// one while the trial runs its command, with the arguments of the Job as it is in the cluster and the rights of its
    /// ServiceAccount, and Helm waits as it would.
    fn during_hook(
        &self,
        home: &Home<'_, '_>,
        script: &str,
        name: &str,
        run: impl FnOnce(&Path, &[&str]) -> Result<Said>,
    ) -> Result<Said> {
        let kubectl = self.scene.kubectl_in(NAMESPACE);
        home.close()?;
        let mut helm = self
            .scene
            .kubectl
            .in_shell(&self.script(script), &self.scene.kubeconfig(), &self.scene.dir);
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
            run(&self.scene.kubeconfig_of(name)?, &args)
        });
        home.open()?;
        let output = helm.wait_with_output()?;
        let ran = ran.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(ran)
    }
}

/// The node that has the label. Dropped, it has not.
struct Home<'s, 'run>(&'s Scene<'run>);

impl<'s, 'run> Home<'s, 'run> {
    fn of(scene: &'s Scene<'run>) -> Result<Self> {
        let home = Self(scene);
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

    /// Pods that run stay; none comes.
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

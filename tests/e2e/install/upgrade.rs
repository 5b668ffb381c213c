//! Upgrade from an earlier version with Helm, and rollback, while pods are created.

use edgeward_harness::balancer::Balancer;
use edgeward_harness::checkout::xtask;
use edgeward_harness::documentation::{documented, documented_under};
use edgeward_harness::helm::Helm;
use edgeward_harness::installation::{Installation, Replica};
use edgeward_harness::installed_replicas::{endpoint_slice, remove_endpoint};
use edgeward_harness::load::restarts::gone;
use edgeward_harness::load::{Load, Pace, under_load};
use edgeward_harness::prelude::*;

use crate::install::chart::Chart;
use crate::install::{Ground, Source, check_out, check_out_of, config_map, gates, is_as_it_was};

/// The name of the ConfigMap in the earlier version.
const EARLIER_MAP: &str = "edgeward-config";

e2e! { "install::upgraded_and_rolled_back", Cluster, upgraded_and_rolled_back }
/// Two replicas of one version are replaced by two of the other, each when the next is ready. Meanwhile both versions decide in
/// parallel. One of the old replicas restarts when the new configuration, which it cannot read, is already there. Each version
/// releases pods that the other has gated.
fn upgraded_and_rolled_back(fixture: &Fixture<'_>) -> Result<()> {
    let Some(earlier) = xtask("earlier")? else {
        println!(
            "install::upgraded_and_rolled_back: skipped, this clone has no history to build the earlier version from"
        );
        return Ok(());
    };
    let earlier_program = earlier.join("edgeward");
    let helm = Helm::obtain(&fixture.dir)?;
    let ground = Ground::clear(fixture, Source::Files, "example.io")?;
    let balancer = Balancer::open(fixture)?;
    let chart = Chart {
        fixture,
        helm,
        source: Source::Files,
    };

    check_out_of(&earlier, fixture, Source::Files)?;
    lead_to(fixture, balancer.port())?;
    let mut values = chart.values(&ground.nodes)?;
    // A longer timeout for a busy machine.
    values["webhook"] = json!({"timeoutSeconds": 30});
    values["config"]["holdLimits"] = json!({"batch": "1h"});
    chart.write(&values)?;
    chart.run(documented("sh", "helm install edgeward")?)?;
    fixture.sign_in()?;
    let old = Version::installed(&chart, &earlier_program)?;
    let mut replicas = Replicas {
        fixture,
        balancer: &balancer,
        members: vec![],
        count: 0,
    };
    for _ in 0..2 {
        replicas.add(&old)?;
    }
    let pod = |name: &str| {
        let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
        workloads::pod_of(name, slo, "700m")
    };
    eventually("the API server calls the webhook", BOUND, || {
        let answered = fixture.kubectl.dry_run(&pod("probe"))?["metadata"]["annotations"].take();
        ensure!(answered["scheduling.example.io/site"] == "edge", "{answered}");
        Ok(())
    })?;
    // There is room for one of the two pods.
    let hold = |name: &str| -> Result<()> {
        fixture.kubectl.create(&pod(name))?;
        ensure!(gates(fixture, name)? != Value::Null, "{name} is not gated");
        Ok(())
    };
    let make_room = |delete: &str, released: &str| -> Result<()> {
        let args = ["delete", "pod", delete, "--grace-period=0", "--force"];
        fixture.kubectl.run(&args, "")?;
        eventually(&format!("{released} is released"), BOUND, || {
            let pod = fixture.kubectl.get("pod", released)?;
            let reason = &pod["metadata"]["annotations"]["scheduling.example.io/reason"];
            let reason = reason.as_str().unwrap_or_default();
            let is_placed = ["edge_", "released_"].iter().any(|family| reason.starts_with(family));
            ensure!(is_placed, "{pod:#}");
            Ok(())
        })
    };
    fixture.kubectl.create(&pod("first"))?;
    hold("second")?;

    // Each replica ends with the objects that name it.
    let (mut upgraded, mut rolled_back) = (None, None);
    let report = under_load(fixture, &ground.nodes, Pace::Adaptive(20), |load| {
        fixture.shell(documented_under("## Upgrade", "sh", "annotate configmap")?)?;
        fs::remove_dir_all(fixture.dir.join("edgeward/deploy"))?;
        fs::remove_dir_all(fixture.dir.join("edgeward/webhook"))?;
        check_out(fixture, Source::Files)?;
        lead_to(fixture, balancer.port())?;
        // The earlier version refuses a setting that it does not know.
        values["config"]["sitePolicy"] = json!("lowest-eta");
        chart.write(&values)?;
        chart.run(documented_under("## Upgrade", "sh", "helm upgrade edgeward")?)?;
        let new = upgraded.insert(Version::installed(&chart, fixture.program)?);
        let kubectl = fixture.kubectl_in(NAMESPACE);
        let new_map = config_map(&kubectl)?;
        replicas.restart_first(load)?;
        replicas.become_of(new, load)?;
        make_room("first", "second")?;
        hold("third")?;
        load.lasts(Duration::from_secs(1))?;

        fixture.takes_away("configmaps", &new_map);
        fixture.takes_away("performanceprofiles", "");
        fixture.takes_away("deviceclasses", "");
        chart.run(documented_under(
            "## Upgrade",
            "sh",
            "helm -n edgeward-system rollback",
        )?)?;
        for map in [EARLIER_MAP, &new_map] {
            kubectl.get("configmap", map)?;
        }
        let back = rolled_back.insert(Version::installed(&chart, &earlier_program)?);
        let args = &back.installation.object("Deployment")?["spec"]["template"]["spec"]["containers"][0]["args"];
        ensure!(args[1] == format!("--config-map={EARLIER_MAP}"), "{args}");
        replicas.become_of(back, load)?;
        make_room("second", "third")?;
        load.lasts(Duration::from_secs(1))
    })?;
    println!("load: upgrade and rollback: {report}");
    report.tabulate("an earlier version replaced by this one by Helm, and back");
    report.is_clean()?;

    let released = fixture.command(&["release", "--all", "--unregister"])?;
    ensure!(released.succeeded, "{released:?}");
    drop(replicas);
    chart.run(
        "helm -n edgeward-system uninstall edgeward --wait --no-hooks\nkubectl delete namespace edgeward-system",
    )?;
    fixture.shell(documented_under("## Upgrade", "sh", "delete crd performanceprofiles")?)?;
    is_as_it_was(fixture, &ground.before)
}

/// Makes the Service in the test's checkout lead to this port, and makes the API server call it. The change is made in the
/// chart, because Helm reverts changes in the cluster.
fn lead_to(fixture: &Fixture<'_>, port: u16) -> Result<()> {
    let change = |file: &str, change: &dyn Fn(&mut Value)| -> Result<()> {
        let file = fixture.dir.join("edgeward").join(file);
        let mut object: Value = serde_saphyr::from_str(&fs::read_to_string(&file)?)?;
        change(&mut object);
        Ok(fs::write(file, object.to_string())?)
    };
    change("deploy/base/service.yaml", &|service| {
        service["spec"]["type"] = json!("ExternalName");
        service["spec"]["externalName"] = json!("localhost");
    })?;
    change("webhook/base/mutatingwebhookconfiguration.yaml", &|configuration| {
        for entry in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            entry["clientConfig"]["service"]["port"] = json!(port);
        }
    })
}

struct Version<'s, 'run, 'p> {
    installation: Installation<'s, 'run>,
    program: &'p Path,
}

impl<'s, 'run, 'p> Version<'s, 'run, 'p> {
    fn installed(chart: &Chart<'s, 'run>, program: &'p Path) -> Result<Self> {
        let manifest = chart.run("helm -n edgeward-system get manifest edgeward")?;
        let installation = Installation {
            fixture: chart.fixture,
            domain: "example.io",
            objects: serde_saphyr::from_multiple(&manifest)?,
        };
        Ok(Self { installation, program })
    }
}

struct Replicas<'s, 'run, 'p> {
    fixture: &'s Fixture<'run>,
    balancer: &'s Balancer<'run>,
    members: Vec<Replica<'p>>,
    count: usize,
}

impl<'run: 'p, 'p> Replicas<'_, 'run, 'p> {
    fn add(&mut self, version: &Version<'_, 'run, 'p>) -> Result<()> {
        self.count += 1;
        let dir = self.fixture.dir.join(format!("replica-{}", self.count));
        let replica = version.installation.replica_of(version.program, &dir, &[])?;
        self.balancer.add(&replica.edgeward)?;
        let slice = endpoint_slice(replica.edgeward.admission().port());
        self.fixture.kubectl_in(NAMESPACE).create(&slice)?;
        self.members.push(replica);
        Ok(())
    }

    fn restart_first(&mut self, load: &Load) -> Result<()> {
        let replica = &mut self.members.first_mut().context("a replica")?.edgeward;
        replica.terminate()?;
        gone(replica)?;
        replica.start_again()?;
        self.balancer.add(replica)?;
        load.lasts(Duration::from_secs(1))
    }

    fn become_of(&mut self, version: &Version<'_, 'run, 'p>, load: &Load) -> Result<()> {
        for _ in 0..self.members.len() {
            self.add(version)?;
            load.lasts(Duration::from_secs(1))?;
            let mut old = self.members.remove(0).edgeward;
            old.terminate()?;
            gone(&mut old)?;
            remove_endpoint(self.fixture, &old)?;
        }
        load.lasts(Duration::from_secs(1))
    }
}

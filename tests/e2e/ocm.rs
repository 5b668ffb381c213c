//! Scores of the sites for a hub of Open Cluster Management. The hub is the test's own API server with OCM's definition, and
//! edgeward has exactly the rights there that the guide grants.

use edgeward_harness::documentation::documented;
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server, program};
use jiff::Timestamp;

/// The message of edgeward when it cannot write.
const FAILED: &str = "scores cannot be written to the OCM hub; retrying silently";

const DEFINITION: &str = "addonplacementscores.cluster.open-cluster-management.io";

e2e! { "ocm::hub_gets_scores_of_sites", Cluster, 95, hub_gets_scores_of_sites }
/// Scores appear once the kubeconfig is there. They fall as the RTT rises and as the edge fills, are renewed at half of their
/// validity, and expire after edgeward has stopped.
fn hub_gets_scores_of_sites(fixture: &Fixture<'_>) -> Result<()> {
    let exporter = Exporter::start(fixture.runtime.handle())?;
    let rtt = |seconds: f64| exporter.says(&[&format!("rtt{{site=\"cloud\"}} {seconds}")]);
    rtt(0.2);
    let server = Server::start(&program()?, &exporter)?;
    let (factory, at_factory) = fixture.another_namespace("factory", json!({}))?;
    let (region, at_region) = fixture.another_namespace("region", json!({}))?;
    let kubeconfig = hub(fixture, &[&factory, &region])?;
    let file = fixture.dir.join("hub.yaml");

    let nodes = Nodes::edge_and_cloud(fixture, "8")?;
    let mut config = nodes.config();
    config["rttThresholdMs"] = json!(1000);
    config["prometheus"] = json!({
        "url": format!("http://{}", server.address), "period": "1s", "timeout": "1s", "staleness": "10s",
        "queries": {"wanRttSeconds": "max by (site) (rtt)"},
    });
    let clusters = json!({"edge": factory, "cloud": region, "gone": "nowhere"});
    config["ocm"] = json!({"kubeconfig": file, "clusters": clusters, "period": "10s"});
    let mut edgeward = fixture.live_edgeward(&config)?;
    let writes = |result: &str| edgeward.count("edgeward_ocm_writes_total", &[("result", result)]);
    eventually("the missing kubeconfig is told", BOUND, || {
        ensure!(
            writes("kubeconfig")? > 0 && !edgeward.said(FAILED).is_empty(),
            "it is not"
        );
        Ok(())
    })?;
    fs::write(&file, kubeconfig.to_string())?;
    becomes(&at_factory, "wan-rtt=100 free-cpu=100 health=100")?;
    let first = becomes(&at_region, "wan-rtt=80 free-cpu=100 health=100")?;
    // Three periods from the begin of a pass, which creates the object within 10 s.
    let until = valid_until(&first)?.as_second();
    let (created, now) = (time(&first["metadata"]["creationTimestamp"])?, Timestamp::now());
    let valid_s = [until - created.as_second(), until - now.as_second()];
    ensure!(valid_s[0] >= 15 && valid_s[1] <= 30, "{valid_s:?}: {first:#}");

    rtt(0.6);
    becomes(&at_region, "wan-rtt=40 free-cpu=100 health=100")?;
    rtt(1.2);
    becomes(&at_region, "wan-rtt=0 free-cpu=100 health=50")?;
    let mut filler = fixture.in_its_domain(workloads::pod_of("filler", json!({}), "3"));
    filler["spec"]["nodeName"] = json!(format!("{}-edge-0", fixture.namespace));
    fixture.kubectl.create(&filler)?;
    let filled = becomes(&at_factory, "wan-rtt=100 free-cpu=62 health=100")?;
    eventually("equal scores are renewed", BOUND, || {
        let renewed = scores(&at_factory)?;
        ensure!(valid_until(&renewed)? > valid_until(&filled)?, "{renewed:#}");
        ensure!(renewed["status"]["scores"] == filled["status"]["scores"], "{renewed:#}");
        Ok(())
    })?;

    for result in ["refused", "unreachable"] {
        ensure!(writes(result)? == 0, "{result}");
    }
    let all = fixture.kubectl.run(
        &["get", "addonplacementscores", "--all-namespaces", "--output=name"],
        "",
    )?;
    ensure!(all.stdout.lines().count() == 2, "{}", all.stdout);

    // While edgeward runs, they never expire.
    edgeward.kill()?;
    eventually("the scores expire", BOUND, || {
        let last = scores(&at_factory)?;
        ensure!(Timestamp::now() > valid_until(&last)?, "{last:#}");
        Ok(())
    })
}

/// Installs OCM's definition, and grants what the guide grants, in the namespaces of these clusters. Returns a kubeconfig.
fn hub(fixture: &Fixture<'_>, clusters: &[&str]) -> Result<Value> {
    let kubectl = &fixture.kubectl;
    kubectl.define("ocm.yaml", DEFINITION)?;
    let manifest = documented("yaml", "addonplacementscores/status")?;
    let (home, _) = fixture.another_namespace("scores", json!({}))?;
    for cluster in clusters {
        let manifest = manifest.replace("namespace: factory", &format!("namespace: {cluster}"));
        let manifest = manifest.replace("namespace: edgeward-scores", &format!("namespace: {home}"));
        fixture.shell(&format!("kubectl apply -f - <<'END'\n{manifest}\nEND"))?;
    }
    let token = fixture.kubectl_in(&home).run(&["create", "token", "edgeward"], "")?;
    let mut kubeconfig: Value = serde_json::from_str(&fs::read_to_string(fixture.kubeconfig())?)?;
    kubeconfig["users"][0]["user"] = json!({"token": token.stdout.trim_end()});
    Ok(kubeconfig)
}

fn becomes(kubectl: &Kubectl, expected: &str) -> Result<Value> {
    eventually(&format!("the scores are {expected}"), BOUND, || {
        let found = scores(kubectl)?;
        let score = |score: &Value| format!("{}={}", score["name"].as_str().unwrap_or_default(), score["value"]);
        let all = found["status"]["scores"].as_array().context("no scores")?;
        let all: Vec<_> = all.iter().map(score).collect();
        ensure!(all.join(" ") == expected, "{found:#}");
        Ok(found)
    })
}

fn scores(kubectl: &Kubectl) -> Result<Value> {
    kubectl.get("addonplacementscores", "edgeward")
}

fn valid_until(scores: &Value) -> Result<Timestamp> {
    time(&scores["status"]["validUntil"])
}

fn time(text: &Value) -> Result<Timestamp> {
    Ok(text.as_str().context("no time")?.parse()?)
}

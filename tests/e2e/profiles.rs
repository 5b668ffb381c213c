//! Performance profiles on a real control plane, with the metrics of a real Prometheus server.

use edgeward_harness::live::{EDGE, pod};
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server, program};

use crate::commands::fleet_command;

const CLOUD: &str = "cloud: cloud_profile";

fn watts(edge: u32, cloud: u32) -> [String; 2] {
    [("edge", edge), ("cloud", cloud)].map(|(site, watts)| format!("watts{{site=\"{site}\"}} {watts}"))
}

fn profile(equation: &str) -> Value {
    json!({
        "apiVersion": "edgeward.io/v1alpha1",
        "kind": "PerformanceProfile",
        "metadata": {"name": "greenness"},
        "spec": {
            "better": "lower",
            "equation": equation,
            "metrics": [{"name": "watts", "normMin": 0, "normMax": 400, "by": "site", "promQL": "sum by (site) (watts)"}],
            "margin": 0.05,
            "dwell": "0s",
            "period": "5s",
            "staleness": "20s",
        },
    })
}

fn green(mut pod: Value) -> Value {
    pod["metadata"]["annotations"]["slo.example.io/profile"] = json!("greenness");
    pod
}

e2e! { "profiles::rank_sites_by_metrics", Cluster, rank_sites_by_metrics }
/// A profile sends the next pod to the greener site. `why` and a review of the dumped fleet say so. Nothing changes without the
/// profile, with a fault in it, with differences within the margin, or without its metrics.
fn rank_sites_by_metrics(fixture: &Fixture<'_>) -> Result<()> {
    let exporter = Exporter::start(fixture.runtime.handle())?;
    let says = |edge, cloud| {
        let lines = watts(edge, cloud);
        exporter.says(&[&lines[0], &lines[1]]);
    };
    says(300, 100);
    let mut server = Server::start(&program()?, &exporter)?;
    fixture.install_custom_resources()?;
    let nodes = Nodes::edge_and_cloud(fixture, "8")?;
    let mut config = nodes.config();
    config["prometheus"] = json!({"url": format!("http://{}", server.address)});
    let (_edgeward, _registered) = fixture.registered_live(&config)?;
    let kubectl = &fixture.kubectl;
    let becomes = |pod: &Value, expected: &str| {
        eventually(&format!("{pod} becomes {expected}"), BOUND, || {
            let found = outcome(&kubectl.dry_run(pod)?)?;
            ensure!(
                found == expected,
                "{found}\n{}",
                kubectl.get("performanceprofile", "greenness").unwrap_or_default()
            );
            Ok(())
        })
    };
    let status = |what: &str, holds: &dyn Fn(&Value) -> bool| {
        eventually(what, BOUND, || {
            let status = kubectl.get("performanceprofile", "greenness")?["status"].take();
            ensure!(holds(&status), "{status:#}");
            Ok(status)
        })
    };
    let [asks, plain] = [green(pod(fixture, "asks", 500)), pod(fixture, "plain", 500)];

    // No profile of this name exists.
    is_now(fixture, &asks, EDGE)?;
    // On a busy machine, the API server may not wait for an answer.
    eventually("the missing profile is told", BOUND, || {
        let said = kubectl.attempt(&["create", "--dry-run=server", "-f", "-"], &asks.to_string())?;
        let warning = "no PerformanceProfile greenness is in use";
        ensure!(said.stderr.contains(warning), "{said:?}");
        Ok(())
    })?;

    // The dirtier edge sends away only pods with the profile, and none whose SLO the cloud misses.
    kubectl.create(&profile("cm_normalized_watts"))?;
    becomes(&asks, CLOUD)?;
    is_now(fixture, &plain, EDGE)?;
    let mut urgent = asks.clone();
    urgent["metadata"]["name"] = json!("urgent");
    urgent["metadata"]["annotations"]["slo.example.io/latencyTargetMs"] = json!("1");
    let urgent = kubectl.dry_run(&urgent)?;
    ensure!(outcome(&urgent)?.starts_with("edge: "), "{urgent}");
    let found = status("the numbers are shown", &|status| status["preferred"] == "cloud")?;
    ensure!(found["summary"] == "cloud=0.25 edge=0.75", "{found:#}");
    ensure!(found["conditions"][0]["status"] == "True", "{found:#}");
    let table = kubectl.run(&["get", "performanceprofiles"], "")?;
    for text in ["ACCEPTED", "SCORES", "PREFERRED", "FAULT", "cloud=0.25 edge=0.75"] {
        ensure!(table.stdout.contains(text), "{table:?}");
    }
    commands_say_so(fixture, &config, &asks)?;

    // An invalid equation is reported within seconds, and the previous one stays in force.
    kubectl.run(&["apply", "-f", "-"], &profile("2 * cm_normalized_watts").to_string())?;
    let found = status("a bad equation is told", &|status| {
        status["conditions"][0]["status"] == "False"
    })?;
    let message = found["conditions"][0]["message"].as_str().unwrap_or_default();
    ensure!(
        message.ends_with("write 2.0") && found["fault"] == *message,
        "{found:#}"
    );
    is_now(fixture, &asks, CLOUD)?;
    kubectl.run(&["apply", "-f", "-"], &profile("cm_normalized_watts").to_string())?;
    status("the good one is accepted", &|status| {
        status["conditions"][0]["status"] == "True"
    })?;

    // The edge is the greener site now, but the difference is within the margin: 0.2375 and 0.25.
    says(95, 100);
    status("the edge is the greener one", &|status| {
        status["summary"] == "cloud=0.25 edge=0.238"
    })?;
    is_now(fixture, &asks, CLOUD)?;
    says(20, 100);
    becomes(&asks, EDGE)?;
    says(300, 100);
    becomes(&asks, CLOUD)?;

    // Without metrics there are no scores, and no profile decides.
    server.stop();
    becomes(&asks, EDGE)?;
    let found = status("that it is unscored is told", &|status| {
        status["summary"] == "cloud=? edge=?"
    })?;
    let fault = found["fault"].as_str().unwrap_or_default();
    ensure!(
        fault.starts_with("cloud: watts: ") && fault.contains("unreachable"),
        "{found:#}"
    );
    server.start_again()?;
    becomes(&asks, CLOUD)?;

    kubectl.run(&["delete", "performanceprofile", "greenness"], "")?;
    becomes(&asks, EDGE)
}

/// `why` names the profile and its numbers, and a review of the dumped fleet gives the API server's verdict.
fn commands_say_so(fixture: &Fixture<'_>, config: &Value, asks: &Value) -> Result<()> {
    fixture.kubectl.create(asks)?;
    let created = fixture.kubectl.get("pod", "asks")?;
    ensure!(outcome(&created)? == CLOUD, "{created}");
    let explain: Value =
        serde_json::from_str(edgeward_harness::decision::annotation(&created, "explain").context("explain")?)?;
    ensure!(
        explain["cloud"]["score"] == 0.25 && explain["edge"]["score"] == 0.75,
        "{explain}"
    );
    let namespace = format!("--namespace={}", fixture.namespace);
    let said = fleet_command::edgeward(fixture, config, &["why", "asks", &namespace])?;
    for text in [
        "its performance profile or its group prefers this cloud (cloud_profile)",
        "profile=greenness edge=0.75 cloud=0.25 margin=0.05, lower is better, cloud is preferred",
    ] {
        ensure!(said.stdout.contains(text), "{}\n{}", said.stdout, said.stderr);
    }
    let fleet = fleet_command::edgeward(fixture, config, &["fleet", "--output=yaml"])?;
    let file = fixture.dir.join("fleet.yaml");
    fs::write(&file, &fleet.stdout)?;
    let manifest = fixture.dir.join("asks.json");
    fs::write(&manifest, asks.to_string())?;
    let arguments = [
        "review",
        &format!("--filename={}", manifest.display()),
        &namespace,
        "--output=json",
        &format!("--fleet={}", file.display()),
    ];
    let said = fleet_command::edgeward(fixture, config, &arguments)?;
    let list: Value = serde_json::from_str(&said.stdout).with_context(|| said.stderr.clone())?;
    let item = &list["items"][0];
    ensure!(
        (&item["site"], &item["reason"]) == (&json!("cloud"), &json!("cloud_profile")),
        "{item:#}"
    );
    ensure!(item["profile"]["preferred"] == "cloud", "{item:#}");
    let delete = ["delete", "pod", "asks", "--grace-period=0", "--force"];
    fixture.kubectl.run(&delete, "").map(drop)
}

e2e! { "profiles::dearer_link_moves_only_pods_with_the_profile", Cluster, dearer_link_moves_only_pods_with_the_profile }
/// A profile ranks two clouds by the power of their links. Both clouds are good, so a pod without the profile stays at the one
/// that costs less.
fn dearer_link_moves_only_pods_with_the_profile(fixture: &Fixture<'_>) -> Result<()> {
    let exporter = Exporter::start(fixture.runtime.handle())?;
    let sends = |near: f64, far: f64| {
        let lines = [("near", near), ("far", far)].map(|(cloud, bytes)| {
            format!(
                "bytes{{source=\"edge\",target=\"{cloud}\"}} {bytes}\nbytes{{source=\"{cloud}\",target=\"edge\"}} 0"
            )
        });
        exporter.says(&[&lines[0], &lines[1]]);
    };
    sends(1e9, 2e9);
    let server = Server::start(&program()?, &exporter)?;
    fixture.install_custom_resources()?;
    let nodes = Nodes::new(fixture)?;
    let mut config = nodes.config();
    nodes.put_clouds(&mut config, &["near", "far"])?;
    for site in 0..3 {
        config["sites"][site]["energy"] = json!({"joulesPerGigabyte": 100});
    }
    for cloud in 1..3 {
        config["sites"][cloud]["costPerHour"] = json!(cloud);
    }
    config["sitePolicy"] = json!("lowest-cost");
    config["prometheus"] = json!({
        "url": format!("http://{}", server.address), "period": "1s", "timeout": "1s",
        "queries": {"linkBytesPerSecond": "max by (source, target) (bytes)"},
    });
    let (_edgeward, _registered) = fixture.registered_live(&config)?;
    let mut greener = profile("cm_normalized_watts");
    greener["spec"]["metrics"] = json!([{"name": "watts", "normMin": 0, "normMax": 1000, "builtIn": "link_watts"}]);
    fixture.kubectl.create(&greener)?;
    let mut plain = pod(fixture, "plain", 500);
    plain["metadata"]["annotations"]["slo.example.io/sites"] = json!("near,far");
    let asks = green(plain.clone());
    for (near, far, preferred) in [(1e9, 2e9, "near"), (4e9, 2e9, "far"), (1e9, 2e9, "near")] {
        sends(near, far);
        eventually(&format!("the pod with the profile goes to {preferred}"), BOUND, || {
            let found = fixture.kubectl.dry_run(&asks)?;
            ensure!(annotation(&found, "site") == Some(preferred), "{found}");
            let found = fixture.kubectl.dry_run(&plain)?;
            ensure!(annotation(&found, "site") == Some("near"), "{found}");
            Ok(())
        })?;
    }
    Ok(())
}

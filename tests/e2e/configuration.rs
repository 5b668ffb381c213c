//! The configuration from a ConfigMap, watched through the API.

pub(crate) mod custom_resources;
pub(crate) mod validation;

use edgeward_harness::control_plane::EDGE_NODES;
use edgeward_harness::prelude::*;

use crate::placement::fleet;

const NAME: &str = "edgeward-config";

e2e! { "configuration::last_valid_config_map_is_in_force", Nodes, last_valid_config_map_is_in_force }
/// edgeward adopts a valid change. For an invalid version it keeps the last valid one, and reports the fault by metric and
/// Event until it is repaired. After a deletion it also keeps the last valid version.
fn last_valid_config_map_is_in_force(fixture: &Fixture<'_>) -> Result<()> {
    create(fixture)?;
    let edgeward = fixture
        .edgeward_of_config_map(Some(&fleet::overloaded()), NAME)?
        .ready()?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    let decision = || -> Result<Value> {
        let pod = fixture
            .kubectl
            .dry_run(&workloads::pod("asking", workloads::latency()))?;
        Ok(pod["metadata"]["annotations"]["scheduling.example.io/decision"].clone())
    };
    let becomes = |expected: &str| {
        eventually(&format!("the decision is {expected}"), BOUND, || {
            ensure!(decision()? == expected);
            Ok(())
        })
    };
    becomes("cloud")?;

    patch(fixture, &json!({"enableOffload": "false"}))?;
    becomes("edge")?;
    ensure!(refusals(fixture)?.is_empty(), "{:?}", refusals(fixture)?);

    patch(
        fixture,
        &json!({"enableOffload": "true", "rttThresholdMs": "fast", "config.yaml": "explain: loud"}),
    )?;
    let faults = [
        "config.yaml.explain: \"loud\" is not one of off, short, full",
        "rttThresholdMs: \"fast\" is not a number from 0.001 to 60000 with at most three decimals",
    ];
    let event = refusal(fixture)?;
    ensure!(event["note"] == faults.join("\n"), "{event:#}");
    ensure!(event["type"] == "Warning", "{event:#}");
    let described = fixture.kubectl.run(&["describe", "configmap", NAME], "")?.stdout;
    ensure!(described.contains("ConfigRefused"), "{described}");
    for path in ["config.yaml.explain", "rttThresholdMs"] {
        let count = edgeward.count("edgeward_config_faults", &[("path", path)])?;
        ensure!(count == 1, "{path}: {count}");
    }
    let kept = decision()?;
    ensure!(kept == "edge", "the last good one stays: {kept}");

    patch(
        fixture,
        &json!({"rttThresholdMs": "100", "config.yaml": "explain: full"}),
    )?;
    becomes("cloud")?;
    let count = edgeward.count("edgeward_config_faults", &[])?;
    ensure!(count == 0, "{count} faults after the repair");

    fixture.kubectl.run(&["delete", "configmap", NAME], "")?;
    eventually("the deletion is noticed", BOUND, || {
        ensure!(edgeward.count("edgeward_config_reloads_total", &[("result", "unreadable")])? == 1);
        Ok(())
    })?;
    let kept = decision()?;
    ensure!(kept == "cloud", "the last good one stays: {kept}");
    create(fixture)?;
    eventually("it is read again", BOUND, || {
        ensure!(edgeward.count("edgeward_config_reloads_total", &[("result", "loaded")])? == 4);
        Ok(())
    })
}

e2e! { "configuration::start_without_valid_config_is_not_ready", Nodes, start_without_valid_config_is_not_ready }
/// Without a valid version edgeward is not ready. It writes one Event, however often it starts. A repair makes it ready.
fn start_without_valid_config_is_not_ready(fixture: &Fixture<'_>) -> Result<()> {
    let waits = |edgeward: &Edgeward<'_>, result: &str| {
        eventually("it waits for a configuration", BOUND, || {
            let count = edgeward.count("edgeward_config_reloads_total", &[("result", result)])?;
            ensure!(count == 1, "{result}: {count}");
            ensure!(edgeward.readiness()? == (503, "configuration\n".to_owned()));
            Ok(())
        })
    };
    let mut edgeward = fixture.edgeward_of_config_map(Some(&fleet::relaxed()), NAME)?;
    waits(&edgeward, "unreadable")?;
    create(fixture)?;
    edgeward = edgeward.ready()?;
    edgeward.kill()?;

    patch(fixture, &json!({"lossThresholdPct": "many"}))?;
    for _ in 0..2 {
        edgeward = fixture.edgeward_of_config_map(Some(&fleet::relaxed()), NAME)?;
        waits(&edgeward, "refused")?;
        refusal(fixture)?;
        edgeward.kill()?;
    }
    edgeward = fixture.edgeward_of_config_map(Some(&fleet::relaxed()), NAME)?;
    waits(&edgeward, "refused")?;
    patch(fixture, &json!({"lossThresholdPct": "2.0"}))?;
    edgeward.ready()?;
    let events = refusals(fixture)?;
    ensure!(events.len() == 1, "{events:#?}");
    Ok(())
}

e2e! { "configuration::late_config_starts_live_view", Nodes, late_config_starts_live_view }
/// The live view uses the first valid version, even if that comes late. The probes use the newest.
fn late_config_starts_live_view(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward_of_config_map(None, NAME)?;
    eventually("it waits for everything", BOUND, || {
        let said = edgeward.readiness()?;
        let missing = "configuration\nnodes\npods\nnamespaces\nliqo\nsites\nfirst round of WAN probes\n";
        ensure!(said == (503, missing.to_owned()), "{said:?}");
        Ok(())
    })?;
    let node = EDGE_NODES[0];
    let here = json!({"name": "here", "kind": "edge", "nodeSelector": {"kubernetes.io/hostname": node}});
    let sites = json!([here, {"name": "cloud", "kind": "cloud"}]);
    fixture.kubectl.create(&json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME},
        "data": {"config.yaml": json!({"domain": "acme.dev", "sites": sites}).to_string()},
    }))?;
    let edgeward = edgeward.ready()?;
    let pod = workloads::pod("asking", json!({"slo.acme.dev/class": "latency"}));
    let answer = edgeward.ask(&fixture.namespace, &pod)?;
    let site = &answer["response"]["auditAnnotations"]["site"];
    ensure!(site == "here", "{answer:#}");

    for endpoint in ["127.0.0.1:1", "127.0.0.1:2"] {
        patch(fixture, &json!({"cloudEndpoint": endpoint}))?;
        let probed = format!("tcp://{endpoint}");
        eventually("the endpoint is probed", BOUND, || {
            ensure!(edgeward.count("edgeward_wan_probes_total", &[("site", "cloud"), ("endpoint", &probed)])? >= 5);
            Ok(())
        })?;
    }
    Ok(())
}

/// Creates the ConfigMap of the original format. Only its namespace differs.
fn create(fixture: &Fixture<'_>) -> Result<()> {
    let mut map: Value = serde_saphyr::from_str(include_str!("../golden/config/first-design.yaml"))?;
    map["metadata"] = json!({"name": NAME});
    fixture.kubectl.create(&map).map(drop)
}

fn patch(fixture: &Fixture<'_>, data: &Value) -> Result<()> {
    fixture.kubectl.patch("configmap", NAME, &json!({"data": data}), &[])
}

/// The Event about a refused version, once there is one.
fn refusal(fixture: &Fixture<'_>) -> Result<Value> {
    eventually("an Event names the faults", BOUND, || {
        refusals(fixture)?.pop().context("there is none")
    })
}

fn refusals(fixture: &Fixture<'_>) -> Result<Vec<Value>> {
    let mut events = fixture.kubectl.list("events.events.k8s.io", "")?;
    events.retain(|event| event["reason"] == "ConfigRefused" && event["regarding"]["name"] == NAME);
    Ok(events)
}

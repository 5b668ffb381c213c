//! The cost map of a live cluster.

use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server, program};

use crate::commands::fleet_command::edgeward;

e2e! { "cost_map::prometheus_comes_before_the_hub", Nodes, prometheus_comes_before_the_hub }
/// The RTT between two clouds of Liqo is the sum of both to the edge, until Prometheus measures it. A link that is cut has a loss of
/// 100 % and no RTT. Other schedulers' definitions accept what is printed for them.
fn prometheus_comes_before_the_hub(fixture: &Fixture<'_>) -> Result<()> {
    let exporter = Exporter::start(fixture.runtime.handle())?;
    exporter.says(&["up_to_date 1"]);
    let server = Server::start(&program()?, &exporter)?;
    let nodes = Nodes::new(fixture)?;
    let mut config = nodes.config();
    config["sites"][0]["uplink"] = json!("20M");
    let sites = config["sites"].as_array_mut().context("a list")?;
    sites.truncate(1);
    for name in ["near", "far"] {
        let label = json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": name});
        let probes = [nodes.wan.probe()];
        sites.push(json!({"name": name, "kind": "liqo", "nodeSelector": label, "probes": probes}));
    }
    let queries =
        json!({"linkRttSeconds": "max by (source, target) (rtt)", "linkLossRatio": "max by (source, target) (loss)"});
    config["prometheus"] = json!({"url": format!("http://{}", server.address), "timeout": "1s", "queries": queries});
    let link = |source: &str, target: &str| -> Result<Value> {
        let said = edgeward(fixture, &config, &["cost-map", "--output=json"])?;
        let map: Value = serde_json::from_str(&said.stdout).with_context(|| said.stderr.clone())?;
        let links = map["links"].as_array().context("no links")?;
        let mut found = links
            .iter()
            .filter(|link| link["source"] == source && link["target"] == target);
        Ok(found.next().cloned().unwrap_or_default())
    };
    let hub = link("near", "far")?;
    let [near, far] = [link("edge", "near")?, link("edge", "far")?];
    ensure!(near["bandwidth"] == "20M" && near["from"]["rtt"] == "probe", "{near}");
    ensure!(
        near["jitterMs"].is_number() && near["asOf"]["jitter"].is_string(),
        "{near}"
    );
    ensure!(near["asOf"].get("bandwidth").is_none(), "{near}");
    ensure!(
        hub["rttMs"].is_number() && hub["from"]["rtt"] == "hub",
        "{hub}, {near}, {far}"
    );

    exporter.says(&[
        r#"rtt{source="near",target="far"} 0.057"#,
        r#"loss{source="near",target="far"} 0.02"#,
    ]);
    eventually("Prometheus has measured the link", BOUND, || {
        let measured = link("far", "near")?;
        ensure!(measured["rttMs"] == 57 && measured["lossPct"] == 2, "{measured}");
        ensure!(measured["from"]["rtt"] == "prometheus", "{measured}");
        ensure!(
            measured["asOf"]["rtt"].is_string() && measured["asOf"]["loss"].is_string(),
            "{measured}"
        );
        Ok(())
    })?;
    accepted_by_other_schedulers(fixture, &config)?;

    nodes.wan.close();
    let cut = link("edge", "near")?;
    ensure!(cut["lossPct"] == 100 && cut.get("rttMs").is_none(), "{cut}");
    Ok(())
}

/// Creates what `cost-map` prints for other schedulers, with unknown fields as errors.
fn accepted_by_other_schedulers(fixture: &Fixture<'_>, config: &Value) -> Result<()> {
    fixture
        .kubectl
        .define("diktyo.yaml", "networktopologies.networktopology.diktyo.x-k8s.io")?;
    define_codeco(fixture)?;
    for format in ["diktyo", "codeco"] {
        let said = edgeward(fixture, config, &["cost-map", &format!("--output={format}")])?;
        eventually("the topology is accepted", BOUND, || {
            fixture
                .kubectl
                .run(&["apply", "--validate=strict", "-f", "-"], &said.stdout)
        })?;
    }
    Ok(())
}

/// CODECO's definition is in no package registry. This one has the fields of the original and the same limits.
fn define_codeco(fixture: &Fixture<'_>) -> Result<()> {
    let quantity = json!({"type": "string", "pattern": "^[0-9]+(\\.[0-9]*)?[numkMGTPE]?$"});
    let text = json!({"type": "string"});
    let list = |properties: Value, required: Value| json!({"type": "array", "items": {"type": "object", "properties": properties, "required": required}});
    let capabilities = json!({"type": "object", "properties": {"latencyNanos": quantity, "bandWidthBits": quantity}});
    let links = json!({"source": text, "target": text, "capabilities": capabilities});
    let spec = json!({
        "networkImplementation": text, "physicalBase": text,
        "nodes": list(json!({"name": text, "type": text, "ipAddress": text, "macaddress": text}), json!([])), "links": list(links, json!(["source", "target"])),
    });
    let required = ["networkImplementation", "physicalBase"];
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec, "required": required}}});
    fixture.kubectl.create(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "networktopologies.qos-scheduler.siemens.com"},
        "spec": {
            "group": "qos-scheduler.siemens.com", "scope": "Namespaced",
            "names": {"kind": "NetworkTopology", "plural": "networktopologies", "singular": "networktopology", "listKind": "NetworkTopologyList"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    }))?;
    Ok(())
}

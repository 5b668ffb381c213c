//! edgeward's custom resources on a real API server.

use edgeward_harness::prelude::*;
use serde_json::Map;

use crate::commands::fleet_command;

fn policy(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "edgeward.io/v1alpha1", "kind": "SloPolicy", "metadata": {"name": name}, "spec": spec})
}

fn site(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "edgeward.io/v1alpha1", "kind": "Site", "metadata": {"name": name}, "spec": spec})
}

/// A valid profile with these changes to its spec and to its only metric.
fn profile(spec: Value, metric: Value) -> Value {
    let with = |mut object: Value, members: Value| {
        for (name, value) in members.as_object().into_iter().flatten() {
            object[name] = value.clone();
        }
        object
    };
    let metric = with(
        json!({"name": "cpu", "normMin": 0, "normMax": 8, "builtIn": "free_cpu"}),
        metric,
    );
    let good = json!({"better": "higher", "equation": "cm_normalized_cpu", "metrics": [metric]});
    let metadata = json!({"name": "p"});
    json!({"apiVersion": "edgeward.io/v1alpha1", "kind": "PerformanceProfile", "metadata": metadata, "spec": with(good, spec)})
}

/// A selector with this many bytes of keys and values.
fn naming(bytes: usize) -> Value {
    let expression = |key: &str, left: usize| {
        let lengths = (0..left).step_by(60).map(|at| (left - at).min(60));
        let values: Vec<_> = lengths.map(|bytes| "v".repeat(bytes)).collect();
        json!({"key": key, "operator": "In", "values": values})
    };
    let half = (bytes - "app".len() - "web".len() - "a".len() - "b".len()) / 2;
    let expressions = [expression("a", half), expression("b", bytes - 8 - half)];
    json!({"matchLabels": {"app": "web"}, "matchExpressions": expressions})
}

e2e! { "custom_resources::invalid_custom_resources_are_refused", Cluster, invalid_custom_resources_are_refused }
/// The API server accepts the definitions and valid objects. It refuses invalid objects with a message that names field and
/// value.
fn invalid_custom_resources_are_refused(fixture: &Fixture<'_>) -> Result<()> {
    fixture.install_custom_resources()?;
    let slo = |slo: Value| policy("p", &json!({"selector": {}, "slo": slo}));
    let selector = |selector: Value| policy("p", &json!({"selector": selector, "slo": {"class": "batch"}}));
    let table: Vec<Value> = serde_saphyr::from_str(include_str!("../../golden/custom-resources/refused.yaml"))?;
    let mut bad = vec![
        (
            selector(naming(4097)),
            "names more than 4096 bytes of labels and values",
        ),
        (
            site(&"s".repeat(64), &json!({"kind": "cloud"})),
            "is longer than 63 characters",
        ),
        (
            profile(json!({"equation": "1.0 + ".repeat(200) + "1.0"}), json!({})),
            "spec.equation: Too long: may not be more than 1024",
        ),
    ];
    for row in &table {
        let part = |name: &str| row.get(name).cloned();
        let object = match row
            .as_object()
            .and_then(|row| row.keys().find(|key| *key != "says"))
            .map(String::as_str)
        {
            Some("slo") => part("slo").map(slo),
            Some("selector") => part("selector").map(selector),
            Some("policy") => part("policy").map(|spec| policy("p", &spec)),
            Some("site") => part("site").map(|spec| site("s", &spec)),
            Some("profile") => part("profile").map(|spec| profile(spec, json!({}))),
            _ => part("metric").map(|metric| profile(json!({}), metric)),
        };
        bad.push((object.context("an object")?, row["says"].as_str().context("says")?));
    }
    // For a value that a rule refuses, an older API server prints only its type.
    let says_values = fixture.kubectl.minor()? >= 36;
    let mut wrong = Vec::new();
    for (object, expected) in bad {
        let said = fixture
            .kubectl
            .attempt(&["create", "--dry-run=server", "-f", "-"], &object.to_string())?;
        let mut found = said.stderr.contains(expected);
        if let (false, Some((field, fault))) = (says_values, expected.split_once(" Invalid value: ")) {
            let (_, fault) = fault.split_once(": ").unwrap_or_default();
            found = said.stderr.contains(field) && said.stderr.contains(fault);
        }
        if said.succeeded || !found {
            wrong.push(format!(
                "{object}\n  expected {expected}\n  {}{}",
                said.stdout, said.stderr
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));

    let good = [
        slo(json!({"class": "batch"})),
        slo(json!({"class": "batch", "profile": "p", "traits": "SecureRuntime, GreenEnergy?, SoftDistanceLimit=20ms"})),
        site("s", &json!({"kind": "cloud", "traits": ["SecureRuntime"]})),
        profile(json!({}), json!({})),
        selector(naming(4096)),
        policy(
            "p",
            &json!({
                "selector": {"matchLabels": {"app.kubernetes.io/name": "web", "empty": ""}, "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["a", ""]}, {"key": "x", "operator": "DoesNotExist"}]},
                "precedence": -5,
                "slo": {"class": "latency", "deadlineMs": 1, "latencyTargetMs": 31_536_000_000_i64, "priority": 10, "offloadAllowed": false},
            }),
        ),
        site("edge-of.town", &json!({"kind": "edge"})),
        site("s", &json!({"kind": "liqo", "supports": ["hostPath", "hostPort"]})),
        // A site that states its nodes is not discovered from Liqo, even with kind `liqo`.
        site(
            "s",
            &json!({"kind": "liqo", "nodeSelector": {"zone": "b"}, "tolerations": [], "supports": ["hostNetwork"]}),
        ),
        site(
            "s",
            &json!({
                "kind": "cloud", "nodeSelector": {"zone": "b"}, "tolerations": [{"key": "cloud", "value": "b", "effect": "NoSchedule"}, {"operator": "Exists"}],
                "runtimeClassName": "kata.b", "probes": ["icmp://a", "tcp://[::1]:1", "https://a/b?c"], "rttThresholdMs": 60000,
                "labels": {"region": "eu", "example.com/tier": ""}, "costPerHour": 0.041_666, "order": 3,
                "lossThresholdPct": 0.1, "speedFactor": 1.125, "supports": ["hostPID", "persistentVolumeClaim"],
            }),
        ),
    ];
    for object in good {
        fixture.kubectl.dry_run(&object)?;
    }
    Ok(())
}

fn plain(name: &str, app: &str) -> Value {
    let mut pod = workloads::pod(name, json!({}));
    pod["metadata"]["labels"] = json!({"app": app});
    pod
}

/// The pod's annotations that edgeward reads or writes, by their names.
fn annotations(pod: &Value) -> Map<String, Value> {
    let all = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let ours = all.filter_map(|(key, value)| {
        let name = ["slo.example.io/", "scheduling.example.io/"]
            .iter()
            .find_map(|prefix| key.strip_prefix(prefix))?;
        let is_stable = !["timestamp", "decision-id", "explain", "wanRttMs"].contains(&name);
        is_stable.then(|| (name.to_owned(), value.clone()))
    });
    ours.collect()
}

/// Waits until such a pod would be created with exactly these annotations of edgeward.
fn becomes(kubectl: &Kubectl, pod: &Value, expected: &Value) -> Result<()> {
    eventually(&format!("{pod} gets {expected}"), BOUND, || {
        let created = kubectl.dry_run(pod)?;
        ensure!(Value::from(annotations(&created)) == *expected);
        Ok(())
    })
}

e2e! { "custom_resources::slo_policy_decides_pod_without_slo", Cluster, slo_policy_decides_pod_without_slo }
/// Policies decide pods without an SLO from the moment the definitions exist. Annotations override single fields. Of several
/// matching policies, one applies. A pod that no policy selects, or that remains after all are deleted, passes through.
fn slo_policy_decides_pod_without_slo(fixture: &Fixture<'_>) -> Result<()> {
    fixture.remove_custom_resources()?;
    let (namespace, kubectl) = fixture.namespace_with_policies("shop")?;
    let nodes = Nodes::edge_and_cloud(fixture, "8")?;
    let mut config = nodes.config();
    for (site, region) in ["eu", "us"].into_iter().enumerate() {
        config["sites"][site]["labels"] = json!({"region": region});
    }
    let edgeward = fixture.live_edgeward(&config)?;
    let _registration = fixture.register_as(
        "zz-edgeward",
        &[&fixture.namespace, &namespace],
        &edgeward.url,
        &edgeward.ca,
    )?;

    // Without the definitions nothing changes.
    let nothing = json!({});
    let stated = json!({"class": "batch", "deadlineMs": "5000", "decision": "edge", "site": "edge", "reason": "edge_feasible_slo_met"});
    becomes(&kubectl, &workloads::pod("stated", workloads::batch()), &stated)?;
    becomes(&kubectl, &plain("web", "web"), &nothing)?;
    ensure!(edgeward.count("edgeward_watch_failures_total", &[("kind", "slopolicies")])? == 0);

    fixture.install_custom_resources()?;
    let for_web = |name: &str, precedence: i64, slo: Value| {
        policy(
            name,
            &json!({"selector": {"matchLabels": {"app": "web"}}, "precedence": precedence, "slo": slo}),
        )
    };
    kubectl.create(&for_web(
        "web",
        0,
        json!({"class": "batch", "deadlineMs": 60_000, "priority": 8}),
    ))?;
    let by_web = json!({"class": "batch", "deadlineMs": "60000", "priority": "8", "decision": "edge", "site": "edge",
        "reason": "edge_feasible_slo_met"});
    becomes(&kubectl, &plain("web", "web"), &by_web)?;
    becomes(&kubectl, &plain("api", "api"), &nothing)?;
    kubectl.create(&plain("stays", "web"))?;

    // Annotations override single fields.
    let mut own = plain("own", "web");
    own["metadata"]["annotations"] = json!({"slo.example.io/priority": "2", "slo.example.io/offloadAllowed": "false"});
    let mut by_both = by_web.clone();
    by_both["priority"] = json!("2");
    by_both["offloadAllowed"] = json!("false");
    becomes(&kubectl, &own, &by_both)?;
    let mut out = plain("out", "web");
    out["metadata"]["labels"][MANAGED] = json!("false");
    becomes(&kubectl, &out, &nothing)?;

    // The policy's sites apply in addition to the pod's, whatever the pod states.
    let abroad =
        json!({"selector": {"matchLabels": {"app": "abroad"}}, "slo": {"class": "batch", "sites": "region=us"}});
    kubectl.create(&policy("abroad", &abroad))?;
    let mut by_abroad = json!({"class": "batch", "policySites": "region=us", "decision": "cloud", "site": "cloud",
        "reason": "cloud_pinned_by_pod"});
    let mut pod = plain("abroad", "abroad");
    pod["metadata"]["annotations"] = json!({"slo.example.io/policySites": "edge"});
    becomes(&kubectl, &pod, &by_abroad)?;
    pod["metadata"]["annotations"] = json!({"slo.example.io/sites": "edge,cloud"});
    by_abroad["sites"] = json!("edge,cloud");
    becomes(&kubectl, &pod, &by_abroad)?;
    pod["metadata"]["annotations"] = json!({"slo.example.io/sites": "edge"});
    let gated = json!({"class": "batch", "policySites": "region=us", "sites": "edge", "reason": "held_site_away"});
    becomes(&kubectl, &pod, &gated)?;
    kubectl.run(&["delete", "slopolicy", "abroad"], "")?;

    // With equal precedence the first name wins, then a higher precedence wins over the name.
    kubectl.create(&for_web("first", 0, json!({"class": "throughput"})))?;
    let by_first = json!({"class": "throughput", "decision": "edge", "site": "edge", "reason": "edge_no_slo_target"});
    becomes(&kubectl, &plain("web", "web"), &by_first)?;
    kubectl.create(&for_web("strict", 10, json!({"class": "latency", "deadlineMs": 9_000})))?;
    let by_strict = json!({"class": "latency", "deadlineMs": "9000", "decision": "edge", "site": "edge", "reason": "edge_feasible_slo_met"});
    becomes(&kubectl, &plain("web", "web"), &by_strict)?;
    eventually("the policy has no fault", BOUND, || {
        ensure!(kubectl.get("slopolicy", "strict")?["status"].take() == json!({"observedGeneration": 1, "faults": []}));
        Ok(())
    })?;

    // Existing decisions stay.
    let stays = kubectl.get("pod", "stays")?;
    ensure!(Value::from(annotations(&stays)) == by_web, "{stays:#}");

    for name in ["strict", "first"] {
        kubectl.run(&["delete", "slopolicy", name], "")?;
    }
    becomes(&kubectl, &plain("web", "web"), &by_web)?;
    fixture.remove_custom_resources()?;
    becomes(&kubectl, &plain("web", "web"), &nothing)?;
    becomes(&kubectl, &workloads::pod("stated", workloads::batch()), &stated)
}

e2e! { "custom_resources::faulty_policy_keeps_last_valid_version", Cluster, faulty_policy_keeps_last_valid_version }
/// A definition without checks lets invalid policies through. Their last valid version continues to apply. In a process that
/// does not know it, only their sites apply.
fn faulty_policy_keeps_last_valid_version(fixture: &Fixture<'_>) -> Result<()> {
    fixture.install_custom_resources()?;
    let unchecked = json!([{
        "op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec",
        "value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }]);
    fixture
        .kubectl
        .patch("crd", "slopolicies.edgeward.io", &unchecked, &[])?;
    let (namespace, kubectl) = fixture.namespace_with_policies("shop")?;
    let nodes = Nodes::edge_and_cloud(fixture, "8")?;
    let mut config = nodes.config();
    for (site, region) in ["eu", "us"].into_iter().enumerate() {
        config["sites"][site]["labels"] = json!({"region": region});
    }
    let start = || {
        let edgeward = fixture.live_edgeward(&config)?;
        let registered = fixture.register_as("zz-edgeward", &[&namespace], &edgeward.url, &edgeward.ca)?;
        anyhow::Ok((edgeward, registered))
    };
    let abroad = |slo: Value| {
        policy(
            "abroad",
            &json!({"selector": {"matchLabels": {"app": "abroad"}}, "slo": slo}),
        )
    };
    let edit = |slo: Value| {
        // The API server uses the new definition shortly after it has accepted it.
        eventually("it takes the policy", BOUND, || {
            kubectl.run(&["replace", "-f", "-"], &abroad(slo.clone()).to_string())
        })
    };
    let says = |generation: u64, faults: Value| {
        eventually("the policy says what counts", BOUND, || {
            let status = kubectl.get("slopolicy", "abroad")?["status"].take();
            let is_said = status["observedGeneration"] == generation && status["faults"] == faults;
            ensure!(is_said, "{status}");
            Ok(())
        })
    };
    let priority = "spec.slo.priority: 11 is not a whole number from 0 to 10";
    let whole = json!({"class": "batch", "sites": "region=us"});
    let faulty = json!({"class": "batch", "sites": "region=us", "priority": 11});
    let mut pod = plain("abroad", "abroad");
    let placed = json!({"class": "batch", "policySites": "region=us", "decision": "cloud", "site": "cloud",
        "reason": "cloud_pinned_by_pod"});

    let running = start()?;
    kubectl.create(&abroad(whole.clone()))?;
    becomes(&kubectl, &pod, &placed)?;
    edit(faulty)?;
    says(
        2,
        json!([priority, "generation 1, the last without faults, counts meanwhile"]),
    )?;
    becomes(&kubectl, &pod, &placed)?;

    // Another process knows no earlier version. It fills in no class.
    drop(running);
    let _running = start()?;
    says(
        2,
        json!([
            priority,
            "of it, its sites, traits and neighbourhood alone count meanwhile"
        ]),
    )?;
    pod["metadata"]["annotations"] = json!({"slo.example.io/class": "batch"});
    becomes(&kubectl, &pod, &placed)?;
    edit(json!({"class": "batch", "sites": "near far"}))?;
    let sites = "spec.slo.sites: \"near far\" is not site names or a selector of site labels, at most 1024 bytes";
    says(
        3,
        json!([
            sites,
            "its sites, its traits or its precedence cannot be read, so pods that it selects are refused meanwhile"
        ]),
    )?;
    eventually("its pods are refused", BOUND, || {
        let create = ["create", "--dry-run=server", "-f", "-"];
        let said = kubectl.attempt(&create, &pod.to_string())?;
        ensure!(
            !said.succeeded && said.stderr.contains("slo.example.io/policySites"),
            "{}{}",
            said.stdout,
            said.stderr
        );
        Ok(())
    })?;
    becomes(&kubectl, &plain("other", "other"), &json!({}))?;
    edit(whole)?;
    says(4, json!([]))?;
    becomes(&kubectl, &pod, &placed)?;
    fixture.remove_custom_resources()
}

e2e! { "custom_resources::site_objects_replace_config_sites", Cluster, site_objects_replace_config_sites }
/// Sites replace the configuration's sites while edgeward runs, and no decision in between is wrong. Invalid Sites leave the
/// valid ones in use. `kubectl get sites` shows their state. Without any Sites, the configuration's sites are used again.
fn site_objects_replace_config_sites(fixture: &Fixture<'_>) -> Result<()> {
    fixture.remove_custom_resources()?;
    fixture.install_custom_resources()?;
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let (_edgeward, _registration) = fixture.registered_live(&nodes.config())?;
    let kubectl = &fixture.kubectl;
    let asked = |millicores: u32| -> Result<Value> {
        let pod = workloads::pod_of("asking", workloads::batch(), &format!("{millicores}m"));
        kubectl.dry_run(&pod)
    };
    // Until the change is visible, every answer follows the old configuration.
    let change_to = |before: [&str; 2], after: [&str; 2]| {
        let mut wrong = Vec::new();
        eventually(&format!("{after:?} are in use"), BOUND, || {
            let mut are_new = true;
            for (millicores, before, after) in [(200, before[0], after[0]), (1_200, before[1], after[1])] {
                let pod = asked(millicores)?;
                let site = &annotations(&pod)["site"];
                if site != before && site != after {
                    wrong.push(format!("{millicores} m went to {site}, neither {before} nor {after}"));
                }
                are_new &= site == after;
            }
            ensure!(are_new, "not yet");
            Ok(())
        })?;
        ensure!(wrong.is_empty(), "{wrong:?}");
        Ok(())
    };
    change_to(["edge", "cloud"], ["edge", "cloud"])?;

    kubectl.create(&json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandboxed"}, "handler": "runc"}))?;
    let mut specs = nodes.config()["sites"].clone();
    for spec in specs.as_array_mut().into_iter().flatten() {
        spec.as_object_mut().map(|spec| spec.remove("name"));
    }
    let [here, mut away] = [specs[0].take(), specs[1].take()];
    away["runtimeClassName"] = json!("sandboxed");
    kubectl.create(&site("away", &away))?;
    kubectl.create(&site("here", &here))?;
    change_to(["edge", "cloud"], ["here", "away"])?;
    let [small, large] = [asked(200)?, asked(1_200)?].map(|mut pod| pod["spec"]["runtimeClassName"].take());
    ensure!(small == Value::Null && large == "sandboxed", "{small} {large}");

    let fleet = fleet_command::edgeward(fixture, &nodes.config(), &["fleet"])?.stdout;
    let named: Vec<_> = fleet
        .lines()
        .skip(1)
        .take(2)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    ensure!(named == ["here", "away"], "{fleet}");

    let shows = |name: &str, expected: &[&str]| {
        eventually(&format!("{name} is {expected:?}"), BOUND, || {
            let said = kubectl.run(&["get", "sites"], "")?.stdout;
            let header: Vec<_> = said.lines().next().unwrap_or_default().split_whitespace().collect();
            let columns = "NAME KIND HEALTH NODES FREE-CPU FREE-MEMORY QUEUE GATED RTT-MS LOSS-PCT LAST-PROBE AGE";
            ensure!(header == columns.split(' ').collect::<Vec<_>>(), "{said}");
            let row = said.lines().find(|line| line.split_whitespace().next() == Some(name));
            let row: Vec<_> = row.unwrap_or_default().split_whitespace().collect();
            ensure!(
                row.len() > expected.len() && row[1..=expected.len()] == *expected,
                "{said}"
            );
            Ok(())
        })
    };
    shows("here", &["edge", "Ready", "1", "1", "64Gi", "0"])?;
    shows("away", &["cloud", "Ready", "1", "1000", "4Ti", "0"])?;
    let status = kubectl.get("site", "away")?["status"].take();
    ensure!(
        status["lossPct"] == 0.0 && status["rttMs"].is_number() && status["lastProbe"].is_string(),
        "{status}"
    );
    ensure!(status["observedGeneration"] == 1, "{status}");
    nodes.wan.close();
    shows("away", &["cloud", "Unreachable", "1"])?;
    nodes.wan.reopen()?;
    shows("away", &["cloud", "Ready", "1"])?;

    // With one edge too many, all stays as it was, and every Site says why.
    kubectl.create(&site(
        "there",
        &json!({"kind": "edge", "nodeSelector": {"there": "yes"}}),
    ))?;
    shows("there", &["edge", "Refused"])?;
    let reason = kubectl.get("site", "there")?["status"]["reason"].take();
    ensure!(
        reason == "refused with the others: Sites: has 2 sites of kind edge; there may be one",
        "{reason}"
    );
    change_to(["here", "away"], ["here", "away"])?;
    kubectl.run(&["delete", "site", "there"], "")?;
    shows("here", &["edge", "Ready"])?;

    fixture.remove_custom_resources()?;
    change_to(["here", "away"], ["edge", "cloud"])
}

//! Reports of neighbouring clusters. The neighbour is the test's own API server, read with the rights of `deploy/report-reader`.

use edgeward_harness::prelude::*;

e2e! { "reports::cloud_has_at_most_the_room_that_it_reports", Cluster, 90, cloud_has_at_most_the_room_that_it_reports }
/// The leader reports the edge's free room. A site that reads this report has as little room. A report counts for 30 s. One that
/// promises more changes nothing, and one without room or a trusted trait refuses the site.
fn cloud_has_at_most_the_room_that_it_reports(fixture: &Fixture<'_>) -> Result<()> {
    fixture.install_custom_resources()?;
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    fixture.allow_reports()?;
    fixture.reads_report_of(&fixture.kubectl, &fixture.kubeconfig())?;
    let mut filler = workloads::pod_of("filler", json!({}), "3");
    filler["spec"]["nodeName"] = json!(format!("{}-edge-0", fixture.namespace));
    fixture.kubectl.create(&filler)?;
    let mut config = nodes.config();
    config["explain"] = json!("full");
    config["sites"][1]["traits"] = json!(["Secure"]);
    config["sites"][1]["report"] = json!({
        "kubeconfigSecretRef": {"name": "edgeward-neighbours", "key": "near"}, "trustTraits": ["Secure"],
    });
    let asked = workloads::pod_of("asked", json!({"slo.example.io/class": "batch"}), "2");
    let mut secure = asked.clone();
    secure["metadata"]["annotations"]["slo.example.io/traits"] = json!("Secure");
    let said = |asked: &Value| -> Result<(String, String)> {
        let found = fixture.kubectl.dry_run(asked)?;
        let told = |name| annotation(&found, name).unwrap_or_default().to_owned();
        Ok((told("site"), told("explain")))
    };
    let goes_to_cloud = |what: &str| {
        eventually(what, BOUND, || {
            let (site, explain) = said(&asked)?;
            ensure!(site == "cloud", "{site}: {explain}");
            Ok(())
        })
    };
    let is_refused = |refusal: &str| {
        eventually(&format!("the cloud is refused: {refusal}"), BOUND, || {
            let (site, explain) = said(&asked)?;
            ensure!(site != "cloud" && explain.contains(refusal), "{site}: {explain}");
            Ok(())
        })
    };

    let mut with_report = config.clone();
    with_report["report"] = json!({"components": true});
    let mut writer = fixture.live_edgeward_as("writer", &with_report)?;
    let first = eventually("the edge's room is reported", BOUND, || {
        let status = fixture.kubectl.get("clusterreport", "self")?["status"].take();
        ensure!(
            status["room"][0]["cpu"] == "1" && status["room"][1].is_null(),
            "{status}"
        );
        Ok(status["generation"].as_i64())
    })?;
    eventually("the report has an age", BOUND, || {
        let age = writer.metric("edgeward_report_age_seconds", &[("site", "cloud")])?;
        ensure!(age < 30.0, "{age} s");
        Ok(())
    })?;
    let registration = fixture.register(&writer.url, &writer.ca)?;
    is_refused(r#""largestFree":{"cpu":1000,"#)?;
    eventually("an unchanged report is written again", BOUND, || {
        let status = fixture.kubectl.get("clusterreport", "self")?["status"].take();
        ensure!(status["generation"].as_i64() > first, "{status}");
        Ok(())
    })?;
    writer.kill()?;
    drop(registration);

    let reader = fixture.live_edgeward_as("reader", &config)?;
    let _registered = fixture.register(&reader.url, &reader.ca)?;
    goes_to_cloud("the last report is old")?;
    let reports = |generation: i64, status: &Value| {
        let mut status = status.clone();
        status["generation"] = json!(generation);
        let patch = json!({"status": status}).to_string();
        let args = [
            "patch",
            "clusterreport",
            "self",
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        fixture.kubectl.run(&args, "")
    };
    let much = json!([{"cpu": "6400", "memory": "25Ti", "pods": 50_000, "nodes": 100}]);
    reports(1_000, &json!({"room": [], "traits": {"all": ["Secure"]}}))?;
    is_refused(r#""source":"report""#)?;
    reports(1_001, &json!({"room": much, "traits": {"all": []}}))?;
    goes_to_cloud("the cloud reports room")?;
    // No other site has the trait, so the pod is gated.
    eventually("the cloud lacks the trait", BOUND, || {
        let found = fixture.kubectl.dry_run(&secure)?;
        let refusal = r#""lost_trait":{"source":"report","trait":"Secure"}"#;
        let explain = annotation(&found, "explain").unwrap_or_default();
        let is_gated = annotation(&found, "reason") == Some("held_site_away");
        ensure!(is_gated && explain.contains(refusal), "{found}");
        Ok(())
    })
}

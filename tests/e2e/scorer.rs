//! The learned scorer on a real control plane with two clouds.

use edgeward_decision::testkit::scorer;
use edgeward_harness::live::pod;
use edgeward_harness::prelude::*;

use crate::commands::fleet_command;

/// An edge of two cores and two clouds, and their configuration.
fn cheap_and_dear<'run>(fixture: &Fixture<'run>) -> Result<(Nodes<'run>, Value)> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "2")?;
    let mut config = nodes.config();
    nodes.put_clouds(&mut config, &["cheap", "dear"])?;
    for (cloud, cost) in [(1, 0.1), (2, 0.4)] {
        config["sites"][cloud]["costPerHour"] = json!(cost);
    }
    Ok((nodes, config))
}

e2e! { "scorer::ranks_good_clouds", Cluster, ranks_good_clouds }
/// In shadow the choice is counted and logged. Active, it decides, `why` shows the scores, and a faulty version leaves the last good
/// one in use.
fn ranks_good_clouds(fixture: &Fixture<'_>) -> Result<()> {
    let (_nodes, mut config) = cheap_and_dear(fixture)?;
    config["sitePolicy"] = json!("lowest-cost");
    let file = fixture.dir.join("scorer.json");
    let dearest = json!(scorer("costOverDearest", 4_096)).to_string();
    fs::write(&file, &dearest)?;
    config["scorer"] = json!({"mode": "shadow", "file": file});
    let large = pod(fixture, "large", 5_000);
    {
        let (edgeward, _registered) = fixture.registered_live(&config)?;
        is_now(fixture, &large, "cheap: cloud_edge_no_capacity")?;
        eventually("the other choice is told", BOUND, || {
            fixture.kubectl.dry_run(&large)?;
            let differs = edgeward.count("edgeward_scorer_choices_total", &[("result", "differs")])?;
            let said = edgeward.said("decided");
            let is_told = said.iter().any(|line| line["scorer_site"] == "dear");
            ensure!(differs > 0 && is_told, "{differs} {said:?}");
            Ok(())
        })?;
    }

    config["scorer"]["mode"] = json!("active");
    let (edgeward, _registered) = fixture.registered_live(&config)?;
    let becomes = |expected: &str| {
        eventually(&format!("the pod becomes {expected}"), BOUND, || {
            let found = outcome(&fixture.kubectl.dry_run(&large)?)?;
            ensure!(found == expected, "{found}");
            Ok(())
        })
    };
    becomes("dear: cloud_learned")?;
    let refused = || edgeward.count("edgeward_scorer_reloads_total", &[("result", "refused")]);
    ensure!(refused()? == 0, "a good version was refused");
    fs::write(&file, dearest.replace("\"margin\":0", "\"margin\":1"))?;
    eventually("the faulty version is refused", BOUND, || {
        ensure!(refused()? == 1, "{}", refused()?);
        Ok(())
    })?;
    becomes("dear: cloud_learned")?;
    fs::write(&file, json!(scorer("costOverDearest", -4_096)).to_string())?;
    becomes("cheap: cloud_learned")
}

e2e! { "scorer::why_shows_the_scores", Cluster, why_shows_the_scores }
/// The scorer of a ConfigMap decides about a pod, and `why` shows its scores.
fn why_shows_the_scores(fixture: &Fixture<'_>) -> Result<()> {
    let (_nodes, mut config) = cheap_and_dear(fixture)?;
    config["scorer"] = json!({"mode": "active", "configMap": "learned"});
    let (_edgeward, _registered) = fixture.registered_live(&config)?;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "learned", "namespace": fixture.home()?},
        "data": {"scorer.json": json!(scorer("costOverDearest", 4_096)).to_string()},
    });
    fixture.kubectl.create(&map)?;
    let large = pod(fixture, "large", 5_000);
    eventually("the scorer decides", BOUND, || {
        let found = outcome(&fixture.kubectl.dry_run(&large)?)?;
        ensure!(found == "dear: cloud_learned", "{found}");
        Ok(())
    })?;
    fixture.kubectl.create(&large)?;
    let arguments = [
        format!("--namespace={}", fixture.namespace),
        format!("--deployment={}/edgeward", fixture.home()?),
    ];
    let said = fleet_command::edgeward(fixture, &config, &["why", "large", &arguments[0], &arguments[1]])?;
    for text in [
        "the learned scorer prefers this one (cloud_learned)",
        "scorer=active cheap=0.25 dear=1, chooses dear",
    ] {
        ensure!(said.stdout.contains(text), "{}\n{}", said.stdout, said.stderr);
    }
    Ok(())
}

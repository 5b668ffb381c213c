//! Rights to pods in single namespaces, as `deploy/narrow` grants them.

use edgeward_harness::documentation::documented;
use edgeward_harness::prelude::*;

use crate::gated::{fill, goes, is_gated_for, pod};

e2e! { "confined::namespace_binding_allows_release", Cluster, namespace_binding_allows_release }
/// In a namespace with the RoleBinding from `docs/guide/install.md`, pods are released as usual. If an opted-in namespace has
/// none, `edgeward check` names it and prints a fix.
fn namespace_binding_allows_release(fixture: &Fixture<'_>) -> Result<()> {
    // Namespaces of earlier tests.
    for namespace in fixture.kubectl.list("namespaces", &format!("{MANAGED}=true"))? {
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
        if name != fixture.namespace {
            fixture
                .kubectl
                .run(&["label", "namespace", name, &format!("{MANAGED}-")], "")?;
        }
    }
    let (nodes, _) = Nodes::without_wan(fixture)?;
    let _narrow = fixture.narrow_rights()?;
    let bind = documented("sh", "create rolebinding edgeward-pods")?;
    fixture.shell(&bind.replace("shop", &fixture.namespace))?;
    let (_edgeward, _registered) = fixture.registered_live(&nodes.gating(&for_long()))?;
    fill(fixture, &nodes)?;
    fixture.kubectl.create(&pod(fixture, "waiting", 500, 5))?;
    is_gated_for(fixture, "waiting", "held_no_capacity")?;
    nodes.wan.reopen()?;
    goes(fixture, &nodes, "waiting", "cloud", "cloud_edge_no_capacity")?;

    let account = format!("system:serviceaccount:{NAMESPACE}:edgeward");
    let says = |level: &str, words: &str| -> Result<Said> {
        eventually(&format!("{level} {words}"), BOUND, || {
            let said = fixture.command(&["check", &format!("--as={account}")])?;
            let is_said = |line: &str| line.starts_with(level) && line.contains(words);
            ensure!(said.stdout.lines().any(is_said), "{}{}", said.stdout, said.stderr);
            Ok(said)
        })
    };
    let alone = format!(
        "has every right that edgeward needs, and may change pods in {} and not everywhere",
        fixture.namespace
    );
    says("ok       rights", &alone)?;
    let (other, _) = fixture.another_namespace("other", json!({MANAGED: "true"}))?;
    let words = format!("may not get, patch pods in namespace {other}: gated pods are never released");
    let said = says("FAULT    rights", &words)?;
    let fixes = said
        .stdout
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("fix: "));
    let fix = fixes
        .filter(|fix| fix.contains(" create rolebinding edgeward-pods "))
        .collect::<Vec<_>>();
    ensure!(fix.len() == 1 && fix[0].contains(&format!("-n {other} ")), "{fix:?}");
    fixture.shell(fix[0])?;
    says(
        "ok       rights",
        &format!("may change pods in {}, {other} and not everywhere", fixture.namespace),
    )
    .map(drop)
}

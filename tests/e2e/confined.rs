//! Policies confine edgeward's identity. They refuse changes that RBAC would allow and edgeward never makes, and they accept
//! its normal changes.

pub(crate) mod narrow;
mod table;

use anyhow::Error;
use edgeward_harness::clients::by_hand;
use edgeward_harness::prelude::*;
use edgeward_harness::test_webhook;
use http::Request;
use http::header::CONTENT_TYPE;
use kube::Client;

use crate::gated::{fill, goes, is_gated_for, pod};

const REFUSED: &str = "denied request: edgeward may ";

e2e! { "confined::confinement_allows_only_known_changes", Cluster, confinement_allows_only_known_changes }
/// Tries changes with edgeward's token. A policy refuses each change that edgeward never makes and accepts each change that it
/// makes, even with a webhook that labels updated objects. Cluster operators keep all their rights.
fn confinement_allows_only_known_changes(fixture: &Fixture<'_>) -> Result<()> {
    fixture.allow_self_management(&fixture.home()?)?;
    let by_hand = ByHand::new(fixture)?;
    table::pods(fixture, &by_hand)?;
    table::registration(fixture, &by_hand)?;
    evictions(fixture, &by_hand)?;
    for policy in ["pods", "registration", "evictions"] {
        eventually("its expressions are checked", BOUND, || {
            let policy = fixture
                .kubectl
                .get("validatingadmissionpolicy", &format!("edgeward-confine-{policy}"))?;
            ensure!(policy["status"]["observedGeneration"] == policy["metadata"]["generation"]);
            let checked = &policy["status"]["typeChecking"];
            ensure!(checked["expressionWarnings"].is_null(), "{checked:#}");
            Ok(())
        })?;
    }
    Ok(())
}

pub(crate) struct ByHand<'s, 'run> {
    fixture: &'s Fixture<'run>,
    client: Client,
}

impl<'s, 'run> ByHand<'s, 'run> {
    pub(crate) fn new(fixture: &'s Fixture<'run>) -> Result<Self> {
        let client = fixture.runtime.block_on(by_hand(fixture))?;
        Ok(Self { fixture, client })
    }

    /// Tries a JSON patch as a dry run on the object at this path. Returns the object that would be stored.
    pub(crate) fn patch(&self, path: &str, operations: &Value) -> Result<Value> {
        let body = operations.to_string().into_bytes();
        let request = Request::patch(format!("{path}?dryRun=All")).header(CONTENT_TYPE, "application/json-patch+json");
        self.send(request.body(body)?)
    }

    pub(crate) fn patch_pod(&self, name: &str, operations: &Value) -> Result<Value> {
        let namespace = &self.fixture.namespace;
        self.patch(&format!("/api/v1/namespaces/{namespace}/pods/{name}"), operations)
    }

    /// Tries an eviction as a dry run.
    fn evict(&self, namespace: &str, name: &str, options: &Value) -> Result<Value> {
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": options,
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction?dryRun=All");
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        self.send(request.body(body.to_string().into_bytes())?)
    }

    fn send(&self, request: Request<Vec<u8>>) -> Result<Value> {
        let sent = self.client.request(request);
        self.fixture.runtime.block_on(sent).map_err(Error::from)
    }
}

/// edgeward evicts pods of opted-in namespaces alone, and none without its uid.
fn evictions(fixture: &Fixture<'_>, by_hand: &ByHand<'_, '_>) -> Result<()> {
    let (other, others) = fixture.another_namespace("other", json!({}))?;
    for (namespace, kubectl, words) in [
        (&fixture.namespace, &fixture.kubectl, None),
        (&other, &others, Some("evict pods of opted-in namespaces alone")),
    ] {
        let pod = kubectl.create(&workloads::pod("evicted", json!({})))?;
        let uid = json!({"preconditions": {"uid": pod["metadata"]["uid"]}});
        let tried = by_hand.evict(namespace, "evicted", &uid);
        match words {
            Some(words) => is_refused(tried, words)?,
            None => {
                tried.context("an eviction as edgeward sends it")?;
                is_refused(
                    by_hand.evict(namespace, "evicted", &json!({})),
                    "evict no pod without its uid",
                )?;
            }
        }
    }
    Ok(())
}

/// Fails unless a policy refused the request with these words.
pub(crate) fn is_refused(tried: Result<Value>, words: &str) -> Result<()> {
    let words = format!("{REFUSED}{words}");
    match tried {
        Err(error) if error.to_string().contains(&words) => Ok(()),
        other => anyhow::bail!("not {words}: {other:?}"),
    }
}

e2e! { "confined::release_succeeds_with_labelling_webhook", Domain, release_succeeds_with_labelling_webhook }
/// A webhook labels and annotates every updated pod. One pod loses its gate because its namespace opts out, and another is
/// released. Both carry the webhook's additions.
fn release_succeeds_with_labelling_webhook(fixture: &Fixture<'_>) -> Result<()> {
    let (nodes, _) = Nodes::without_wan(fixture)?;
    let (edgeward, _registered) = fixture.registered_live(&nodes.gating(&for_long()))?;
    fill(fixture, &nodes)?;
    let webhook = fixture.test_webhook(test_webhook::labels)?;
    let _labels = webhook.register_for_updates(&fixture.kubectl, &fixture.namespace)?;
    eventually("the API server calls the webhook", BOUND, || {
        let args = ["label", "pod", "filler", "tried=now", "--dry-run=server"];
        fixture.kubectl.run(&args, "")?;
        ensure!(!webhook.seen().is_empty(), "it was not called");
        Ok(())
    })?;
    let is_labelled = |name: &str| {
        let metadata = fixture.kubectl.get("pod", name)?["metadata"].take();
        for map in ["labels", "annotations"] {
            ensure!(metadata[map]["seen-by"] == "test", "{metadata:#}");
        }
        anyhow::Ok(())
    };

    // This pod states its SLO only in annotations.
    let mut let_go = pod(fixture, "let-go", 500, 5);
    if let Some(metadata) = let_go["metadata"].as_object_mut() {
        metadata.remove("labels");
    }
    fixture.kubectl.create(&let_go)?;
    is_gated_for(fixture, "let-go", "held_no_capacity")?;
    let managed = fixture.key(MANAGED);
    let leaves = format!("{managed}-");
    fixture
        .kubectl
        .run(&["label", "namespace", &fixture.namespace, &leaves], "")?;
    eventually("it is let go", BOUND, || {
        let pod = fixture.kubectl.get("pod", "let-go")?;
        ensure!(!is_gated(&pod) && annotation(&pod, "site").is_none(), "{pod:#}");
        Ok(())
    })?;
    is_labelled("let-go")?;

    let returns = format!("{managed}=true");
    fixture
        .kubectl
        .run(&["label", "namespace", &fixture.namespace, &returns], "")?;
    eventually("its pods are gated again", BOUND, || {
        let tried = fixture.kubectl.dry_run(&pod(fixture, "tried", 500, 5))?;
        ensure!(is_gated(&tried), "{tried:#}");
        Ok(())
    })?;
    fixture.kubectl.create(&pod(fixture, "released", 500, 5))?;
    is_gated_for(fixture, "released", "held_no_capacity")?;
    nodes.wan.reopen()?;
    goes(fixture, &nodes, "released", "cloud", "cloud_edge_no_capacity")?;
    is_labelled("released")?;
    let refused = [("result", "refused")];
    ensure!(edgeward.count("edgeward_gated_pod_changes_total", &refused)? == 0);
    Ok(())
}

/// With edgeward installed under this domain, a policy for that domain refuses a change to a gated pod and accepts its release.
pub(crate) fn is_confined(fixture: &Fixture<'_>, gated: &str, domain: &str) -> Result<()> {
    let by_hand = ByHand::new(fixture)?;
    eventually("the policies are in force", BOUND, || {
        let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "other"}]);
        is_refused(by_hand.patch_pod(gated, &image), "change nothing of a pod's spec but")
    })?;
    let decision = format!("/metadata/annotations/scheduling.{domain}~1");
    let release = json!([
        {"op": "add", "path": format!("{decision}decision"), "value": "edge"},
        {"op": "replace", "path": format!("{decision}reason"), "value": "edge_no_slo_target"},
        {"op": "add", "path": "/spec/nodeSelector", "value": {"node.role/edge": "true"}},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]);
    by_hand.patch_pod(gated, &release).map(drop)
}

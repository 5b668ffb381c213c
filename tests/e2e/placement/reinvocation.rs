//! A second webhook that injects a sidecar. Configurations run in the order of their names.

use anyhow::{Context, Result, ensure};
use edgeward_harness::fixture::Fixture;
use edgeward_harness::{test_webhook, workloads};
use serde_json::{Value, json};

use crate::placement::fleet;

/// Time in the cloud as the explanation has it: 0.5 ms for each of the pod's 200 millicores, 20, and twice the RTT of 25.
const ETA_ALONE: u64 = 170;
/// The sidecar asks for 50 millicores more.
const ETA_WITH_SIDECAR: u64 = 195;

/// The injector runs after edgeward, so the API server shows edgeward the pod again; the decision stands.
pub(crate) fn after_a_later_injector(fixture: &Fixture<'_>) -> Result<()> {
    let asked = create_with_injector(fixture, "zzz-mesh", &workloads::pod("meshed", workloads::latency()))?;
    ensure!(
        asked
            == Asked {
                rounds: vec![(0, true), (1, false)],
                repeated: 1,
                eta: ETA_ALONE
            },
        "{asked:?}"
    );
    Ok(())
}

/// The injector runs before edgeward, which decides once, on the pod that has the sidecar.
pub(crate) fn not_after_an_earlier_injector(fixture: &Fixture<'_>) -> Result<()> {
    let mut pod = workloads::pod("meshed", workloads::latency());
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    let asked = create_with_injector(fixture, "mesh", &pod)?;
    ensure!(
        asked
            == Asked {
                rounds: vec![(0, true)],
                repeated: 0,
                eta: ETA_WITH_SIDECAR
            },
        "{asked:?}"
    );
    Ok(())
}

/// The same where the service account's token is mounted. The API server's own plugins run a second time when a webhook
/// has changed the pod, the token is then mounted into the sidecar too, and because of that change every webhook is
/// asked again: the order of names does not spare edgeward the second call.
pub(crate) fn after_the_token_was_mounted(fixture: &Fixture<'_>) -> Result<()> {
    let asked = create_with_injector(fixture, "mesh", &workloads::pod("meshed", workloads::latency()))?;
    ensure!(
        asked
            == Asked {
                rounds: vec![(0, true), (1, false)],
                repeated: 1,
                eta: ETA_WITH_SIDECAR
            },
        "{asked:?}"
    );
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Asked {
    /// The rounds in which the API server called edgeward, and whether that changed the pod.
    rounds: Vec<(u32, bool)>,
    /// How often edgeward knew the pod for one that it had decided.
    repeated: u64,
    /// Time in the cloud, ms, in the explanation that was stored.
    eta: u64,
}

/// Creates a pod that both webhooks change, the injector under this name.
fn create_with_injector(fixture: &Fixture<'_>, name: &str, pod: &Value) -> Result<Asked> {
    let edgeward = fixture.edgeward(&fleet::overloaded())?;
    let ours = fixture.register(&edgeward.url, &edgeward.ca)?;
    let injector = fixture.test_webhook(test_webhook::injects_a_sidecar)?;
    let _injecting = fixture.register_as(name, &[&fixture.namespace], &injector.url, &injector.ca)?;
    let repeated = || edgeward.count("edgeward_reviews_total", &[("reason", "passthrough_reinvocation")]);
    let before = repeated()?;

    let stored = fixture.kubectl.create(pod)?;
    let containers = stored["spec"]["containers"].as_array().map(Vec::len);
    ensure!(containers == Some(2), "{stored:#}");
    let annotation = |name: &str| stored["metadata"]["annotations"][format!("scheduling.example.io/{name}")].as_str();
    ensure!(annotation("decision") == Some("cloud"), "{stored:#}");
    ensure!(annotation("reason") == Some("cloud_edge_no_capacity"), "{stored:#}");
    ensure!(
        stored["spec"]["nodeSelector"] == json!({"node.role/cloud": "true"}),
        "{stored:#}"
    );

    // An injector that ran later was shown the first decision: it is the one that was stored.
    for shown in injector
        .seen()
        .iter()
        .filter(|request| request["object"]["metadata"]["name"] == "meshed")
    {
        let id = shown["object"]["metadata"]["annotations"]["scheduling.example.io/decision-id"].as_str();
        ensure!(
            id.is_none() || id == annotation("decision-id"),
            "{id:?} became {:?}",
            annotation("decision-id")
        );
    }
    let creation = fixture.creation_of(&fixture.namespace, "meshed")?;
    ensure!(creation.annotation("decision") == Some("cloud"), "{creation:?}");

    let explanation: Value = serde_json::from_str(annotation("explain").context("no explanation")?)?;
    Ok(Asked {
        rounds: creation.rounds(&ours.name),
        repeated: repeated()? - before,
        eta: explanation["cloud"]["eta"]
            .as_u64()
            .with_context(|| explanation.to_string())?,
    })
}

//! The configuration as a ConfigMap of the original format, and as a mounted file that changes under a running server.

use edgeward::testkit::read_settings;
use edgeward_decision::config::Config;
use edgeward_decision::model::endpoint::Endpoint;
use edgeward_harness::prelude::*;
use edgeward_harness::volume::Volume;

use crate::client::{Client, eventually, get};
use crate::process::Process;

#[test]
fn first_design_config_map_is_still_read() {
    let path = workspace().join("tests/golden/config/first-design.yaml");
    let mut expected = Config::default();
    let cloud = expected.sites.iter_mut().find(|site| site.name == "cloud").unwrap();
    let endpoint = Endpoint::parse("https://cloud.example.com:6443").unwrap();
    Arc::make_mut(cloud).probes.push(endpoint);
    // The values are the defaults, which the tests of `config::map` tell apart.
    assert_eq!(read_settings(&path).unwrap(), expected);
}

/// A pod with an invalid SLO. The configuration says whether it is refused.
fn invalid_pod() -> String {
    let annotations = json!({"slo.example.io/class": "quick"});
    let pod = json!({"metadata": {"name": "camera", "annotations": annotations}, "spec": {"containers": []}});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let request = json!({"uid": "u", "resource": resource, "operation": "CREATE", "namespace": "shop", "object": pod});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

async fn is_denied(client: &Client) -> bool {
    let mut connection = client.connect().await.expect("handshake");
    let answered = connection.post_to("/mutate", &invalid_pod()).await.expect("answered");
    let answer: Value = serde_json::from_str(&answered.body).expect("JSON");
    !answer["response"]["allowed"].as_bool().expect("a verdict")
}

#[tokio::test]
async fn mounted_config_map_change_applies_without_restart() {
    let mut volume = Volume::new().unwrap();
    volume.swap(&[("config.yaml", "")]).unwrap();
    let directory = volume.path("").display().to_string();
    let mut process = Process::start_with(&["--config", &directory]);
    let client = process.client();
    let counted = async |line: &str| {
        eventually(line, async || {
            get(process.health, "/metrics")
                .await
                .expect("answered")
                .body
                .contains(line)
        })
        .await;
    };
    assert!(!is_denied(&client).await);

    volume
        .swap(&[("config.yaml", "invalidSlo: deny"), ("rttThresholdMs", "80")])
        .unwrap();
    eventually("it is denied", async || is_denied(&client).await).await;

    volume
        .swap(&[("config.yaml", "invalidSlo: perhaps"), ("rttThresholdMs", "fast")])
        .unwrap();
    counted("edgeward_config_faults{path=\"config.yaml.invalidSlo\"} 1\n").await;
    counted("edgeward_config_faults{path=\"rttThresholdMs\"} 1\n").await;
    assert!(is_denied(&client).await, "the last good one stays");

    volume.swap(&[("config.yaml", "domain: acme.dev")]).unwrap();
    counted("edgeward_config_faults{path=\"domain\"} 1\n").await;
    assert!(is_denied(&client).await, "the last good one stays");

    volume
        .swap(&[("config.yaml", "invalidSlo: warn"), ("pollingIntervalMs", "5000\n")])
        .unwrap();
    eventually("it is repaired", async || !is_denied(&client).await).await;
    eventually("no fault is counted", async || {
        let page = get(process.health, "/metrics").await.expect("answered").body;
        !page.contains("edgeward_config_faults{")
    })
    .await;

    drop(client);
    // The first signal drains the server, the second one ends it.
    process.signal("TERM");
    eventually("it drains", async || {
        get(process.health, "/readyz").await.expect("answered").status == 503
    })
    .await;
    process.signal("TERM");
    let log = process.log.take().expect("a log").map_while(Result::ok);
    let log: Vec<Value> = log.filter_map(|line| serde_json::from_str(&line).ok()).collect();
    let refused = log
        .iter()
        .filter(|line| line["message"] == "configuration refused; the last good one stays");
    let refused: Vec<&str> = refused.filter_map(|line| line["error"].as_str()).collect();
    assert_eq!(refused.len(), 2, "{log:?}");
    assert!(
        refused[0].contains("config.yaml.invalidSlo: \"perhaps\"") && refused[0].contains("rttThresholdMs: \"fast\""),
        "{}",
        refused[0]
    );
    let notice = "configuration: pollingIntervalMs: has no effect: a webhook does not poll";
    assert!(log.iter().any(|line| line["message"] == notice), "{log:?}");
}

//! Values that contradict each other, or that nobody knows.

use anyhow::{Result, bail, ensure};
use edgeward_harness::chart;
use serde_json::{Value, json};

use crate::Tools;
use crate::rendered::least;

pub(crate) fn wrong_values_are_named(tools: &Tools) -> Result<()> {
    let ca = "-----BEGIN CERTIFICATE-----\n";
    let files = |files: Value| json!({"certificates": {"source": "files", "files": files}});
    // What is given besides, and words that the refusal has.
    let wrong = [
        (json!({"replica": 3}), "'replica'"),
        (json!({"image": {"repo": "x"}}), "'repo'"),
        (json!({"config": {"rttThreshold": 80}}), "'rttThreshold'"),
        (json!({"config": {"explain": false}}), "/config/explain"),
        (
            json!({"config": {"sites": [{"name": "e", "kind": "moon"}]}}),
            "/config/sites/0/kind",
        ),
        (
            json!({"config": {"holdLimits": {"latency": 30}}}),
            "/config/holdLimits/latency",
        ),
        (
            json!({"config": {"telemetryCacheTTL": 60}}),
            "/config/telemetryCacheTTL",
        ),
        (
            json!({"networkPolicy": {"admissionFrom": [{"cidr": "10.0.0.0/8"}]}}),
            "'cidr'",
        ),
        (
            json!({"networkPolicy": {"metricsFrom": [{"ipBlock": {"cidr": "10.0.0.1"}}]}}),
            "/networkPolicy/metricsFrom/0/ipBlock/cidr",
        ),
        (json!({"replicas": 0}), "/replicas"),
        (json!({"rights": {"namespaces": ["Shop"]}}), "/rights/namespaces/0"),
        (json!({"domain": "Example"}), "/domain"),
        (json!({"webhook": {"timeoutSeconds": 31}}), "/webhook/timeoutSeconds"),
        (json!({"webhook": {"failurePolicy": "Open"}}), "/webhook/failurePolicy"),
        (json!({"certificates": {"source": "acme"}}), "/certificates/source"),
        (files(json!({"ca": "ca.crt"})), "/certificates/files/ca"),
        (
            json!({"image": {"repository": ""}}),
            "image.repository: name your image",
        ),
        (
            json!({"config": {"domain": "acme.dev"}}),
            "config.domain: \"acme.dev\" is not \"example.io\"",
        ),
        (files(json!({})), "certificates.files.ca: without it"),
        (
            files(json!({"ca": ca, "certificate": ca})),
            "certificates.files: certificate and key belong together",
        ),
        (
            files(json!({"ca": ca, "certificate": ca, "key": "tls.key"})),
            "certificates.files.key: is no private key in PEM",
        ),
        (
            json!({"certificates": {"files": {"ca": ca}}}),
            "certificates.files: would not be used, for certificates.source is cert-manager",
        ),
        (
            json!({"monitoring": {"prometheusRule": {"labels": {"release": 1}}}}),
            "/monitoring/prometheusRule/labels/release",
        ),
        (
            json!({"monitoring": {"serviceMonitor": {"enabled": true}}, "networkPolicy": {"metricsFrom": []}}),
            "monitoring.serviceMonitor: nobody could scrape",
        ),
        (
            json!({"oneNode": true, "replicas": 3}),
            "oneNode: one replica runs there, and replicas is 3",
        ),
        (json!({"ports": {"admission": 443}}), "/ports/admission"),
        (
            json!({"ports": {"health": 8443}}),
            "ports: admission and health are both 8443",
        ),
        (
            json!({"hostNetwork": true, "ports": {"admission": 10250}}),
            "ports: 10250 is kubelet's",
        ),
        (
            json!({"hostNetwork": true, "networkPolicy": {"admissionFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}}),
            "networkPolicy.admissionFrom: would not be used",
        ),
        (
            json!({"podLabels": {"app.kubernetes.io/name": "x"}}),
            "podLabels: app.kubernetes.io/name",
        ),
    ];
    for (more, words) in wrong {
        let mut values = least();
        for (name, value) in more.as_object().into_iter().flatten() {
            values[name] = value.clone();
        }
        let Err(refused) = tools.template(&values) else {
            bail!("{more} is taken");
        };
        ensure!(format!("{refused:#}").contains(words), "{more}: {refused:#}");
    }
    let Err(refused) = tools.template_of(&chart::folder(), "default", &least()) else {
        bail!("the namespace default is taken");
    };
    ensure!(format!("{refused:#}").contains("namespace default: "), "{refused:#}");
    ensure!(
        format!("{refused:#}").contains("-f deploy/base/namespace.yaml"),
        "{refused:#}"
    );
    Ok(())
}

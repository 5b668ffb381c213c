//! Schemas of the texts that documents of edgeward share. See [`mod@edgeward_kube::texts`].

use edgeward_kube::constraints::{LABEL_VALUE, SUBDOMAIN};
use edgeward_kube::texts::NAMESPACE;
use schemars::JsonSchema;

use crate::model::{slo, traits};

edgeward_kube::texts! {
    ClusterId: "the id of a cluster: lower-case letters, digits and `-`, at most 63", NAMESPACE, 63;
    ConfigMapName: "the name of a ConfigMap: lower-case letters, digits, `-` and `.`", SUBDOMAIN, 253;
    Domain: "a DNS domain, at most 200 characters", SUBDOMAIN, 200;
    IpAddress: "an IP address", "^([0-9]+([.][0-9]+){3}|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]+|[0-9A-Fa-f:]+::)$", 45;
    ManagedCluster: "the name of a ManagedCluster: lower-case letters, digits and `-`, at most 63", NAMESPACE, 63;
    ProfileName: slo::PROFILE_NAME, SUBDOMAIN, 63;
    PromQl: "PromQL, at most 4096 bytes", "[^ \\t\\r\\n]", 4_096;
    SecretKey: "a key of a Secret: letters, digits, `-`, `_` and `.`, at most 253", "^[-._a-zA-Z0-9]+$", 253;
    SecretName: "the name of a Secret: lower-case letters, digits, `-` and `.`", SUBDOMAIN, 253;
    SiteName: "a site name: letters, digits, `-`, `_` and `.`, at most 63", &LABEL_VALUE.replace(")?$", ")$"), 63;
    TraitName: traits::NAME, traits::FORM, 63;
}

/// Schema of a time that something must last, up to a day. Only `with` attributes of schemars name it.
#[derive(JsonSchema)]
#[schemars(
    title = "a duration from 0s to 24h, such as 60s or 1m30s",
    extend("pattern" = "^([0-9]+(ms|s|m|h))+$", "maxLength" = 32, "x-duration" = ["0s", "24h"])
)]
pub struct Dwell(#[expect(dead_code, reason = "only its schema is used")] String);

//! Schemas of the texts that documents of edgeward share. See [`mod@edgeward_kube::texts`].

use edgeward_kube::constraints::{LABEL_VALUE, SUBDOMAIN};
use edgeward_kube::texts::NAMESPACE;

use crate::model::{slo, traits};

edgeward_kube::texts! {
    Domain: "a DNS domain, at most 200 characters", SUBDOMAIN, 200;
    ManagedCluster: "the name of a ManagedCluster: lower-case letters, digits and `-`, at most 63", NAMESPACE, 63;
    ProfileName: slo::PROFILE_NAME, SUBDOMAIN, 63;
    PromQl: "PromQL, at most 4096 bytes", "[^ \\t\\r\\n]", 4_096;
    SiteName: "a site name: letters, digits, `-`, `_` and `.`, at most 63", &LABEL_VALUE.replace(")?$", ")$"), 63;
    TraitName: traits::NAME, traits::FORM, 63;
}

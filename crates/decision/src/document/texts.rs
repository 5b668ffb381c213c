//! Schemas of the texts that documents of edgeward share. See [`edgeward_kube::texts`].

use edgeward_kube::constraints::SUBDOMAIN;

use crate::model::{slo, traits};

edgeward_kube::texts! {
    ProfileName: slo::PROFILE_NAME, SUBDOMAIN, 63;
    PromQl: "PromQL, at most 4096 bytes", "[^ \\t\\r\\n]", 4_096;
    TraitName: traits::NAME, traits::FORM, 63;
}

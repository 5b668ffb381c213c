//! Workloads, and what their annotations say of each other.

use std::collections::BTreeMap;

use edgeward_decision::keys::Keys;
use edgeward_decision::model::group::{NEAR, Near, Within};
use edgeward_decision::model::link::Bandwidth;
use edgeward_kube::resources::{EGRESS, INGRESS};
use serde_json::{Map, Value};

use super::field::{Field, dns_label};
use crate::cli::findings::Findings;

/// A workload.
#[derive(Debug)]
pub(super) struct Part {
    /// Where it is in the file, for findings.
    pub(super) place: String,
    pub(super) namespace: Option<String>,
    pub(super) group: String,
    pub(super) component: String,
    /// The Deployment or patch. Its pod template has no annotations of edgeward's yet.
    pub(super) manifest: Value,
    /// Annotations under edgeward's prefix that have nothing to do with other workloads.
    pub(super) own: BTreeMap<&'static str, String>,
    /// By component: whether the limit is optional, and the limit. So the smaller is the stricter.
    near: BTreeMap<String, (bool, Within)>,
    egress: u64,
    ingress: u64,
}

impl Part {
    pub(super) fn new(place: &Field<'_>, namespace: Option<String>, group: String, component: String) -> Self {
        Self {
            place: place.place.clone(),
            namespace,
            group,
            component,
            manifest: Value::Null,
            own: BTreeMap::new(),
            near: BTreeMap::new(),
            egress: 0,
            ingress: 0,
        }
    }

    fn annotations(&self, keys: &Keys, findings: &mut Findings) -> Map<String, Value> {
        let mut annotations = Map::new();
        let mut own = self.own.clone();
        own.insert("group", self.group.clone());
        own.insert("component", self.component.clone());
        let near = self.near.iter().map(|(component, (is_optional, within))| {
            let (component, within, is_optional) = (component.as_str().into(), *within, *is_optional);
            let near = Near {
                component,
                within,
                is_optional,
            };
            near.to_string()
        });
        let near = near.collect::<Vec<_>>().join(", ");
        if Near::parse_list(&near).is_some() {
            own.insert("near", near);
        } else if !near.is_empty() {
            findings.lost(&format!("{}: near {near:?} is not {NEAR}", self.place));
        }
        for (name, value) in own {
            annotations.insert(format!("{}{name}", keys.slo_prefix), value.into());
        }
        for (name, bits) in [(EGRESS, self.egress), (INGRESS, self.ingress)] {
            if bits > 0 {
                let bits = Bandwidth(bits.min(Bandwidth::MOST));
                annotations.insert(name.to_owned(), String::from(bits).into());
            }
        }
        annotations
    }
}

/// The workloads of a file.
#[derive(Debug, Default)]
pub(super) struct Parts(Vec<Part>);

impl Parts {
    /// Adds a workload and returns its index. Reports a second one of this name.
    pub(super) fn add(&mut self, part: Part, findings: &mut Findings) -> Option<usize> {
        if self.position(&part, &part.component).is_some() {
            let Part {
                place,
                component,
                group,
                ..
            } = part;
            findings.lost(&format!("{place}: {component} is in group {group} already"));
            return None;
        }
        let identity = |part: &Part| {
            (
                part.namespace.clone(),
                part.manifest["kind"].clone(),
                part.manifest["metadata"]["name"].clone(),
            )
        };
        if self.0.iter().any(|other| identity(other) == identity(&part)) {
            let Part { place, manifest, .. } = part;
            findings.lost(&format!(
                "{place}: another part has {} {} already",
                manifest["kind"], manifest["metadata"]["name"]
            ));
            return None;
        }
        self.0.push(part);
        Some(self.0.len() - 1)
    }

    fn position(&self, by: &Part, component: &str) -> Option<usize> {
        let is_same_group = |part: &Part| part.namespace == by.namespace && part.group == by.group;
        let mut parts = self.0.iter();
        parts.position(|part| is_same_group(part) && part.component == component)
    }

    /// Finds the workload that `from` names in this field. Reports an unknown name.
    pub(super) fn find(&self, from: usize, name: &str, field: &Field<'_>, findings: &mut Findings) -> Option<usize> {
        let to = self.position(&self.0[from], &dns_label(name));
        if to.is_none() {
            let group = &self.0[from].group;
            findings.lost(&format!(
                "{}: {name:?} is not in group {group} of this namespace and file",
                field.place
            ));
        }
        to
    }

    /// The namespace of a workload.
    pub(super) fn namespace(&self, at: usize) -> Option<&String> {
        self.0[at].namespace.as_ref()
    }

    /// The component of a workload.
    pub(super) fn component(&self, at: usize) -> &str {
        &self.0[at].component
    }

    /// Limits the distance between two workloads. Of several limits the required ones count, and of these the smallest.
    pub(super) fn limit(&mut self, from: usize, to: usize, is_optional: bool, within: Within) {
        let component = self.0[to].component.clone();
        let limit = self.0[from].near.entry(component).or_insert((is_optional, within));
        *limit = (*limit).min((is_optional, within));
    }

    /// Adds traffic from one workload to another, in bits per second.
    pub(super) fn add_traffic(&mut self, from: usize, to: usize, bits: u64) {
        let egress = &mut self.0[from].egress;
        *egress = egress.saturating_add(bits);
        let ingress = &mut self.0[to].ingress;
        *ingress = ingress.saturating_add(bits);
    }

    /// The manifests with all annotations.
    pub(super) fn manifests(self, keys: &Keys, findings: &mut Findings) -> Vec<Value> {
        let complete = |mut part: Part| {
            let annotations = part.annotations(keys, findings);
            let metadata = &mut part.manifest["spec"]["template"]["metadata"];
            for (name, value) in annotations {
                if !metadata["annotations"][&name].is_null() {
                    findings.lost(&format!("{}: its annotation {name} is replaced", part.place));
                }
                metadata["annotations"][name] = value;
            }
            part.manifest
        };
        self.0.into_iter().map(complete).collect()
    }
}

//! Claims, volumes and classes in a fleet file.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::document::Field;
use crate::model::constraints::{Requirement, Term};
use crate::model::volumes::{ClaimRecord, ClassRecord, LIQO_PROVISIONER, Volumes};
use crate::wire::stated;

const WAITS: &str = "WaitForFirstConsumer";

/// The lists of claims, volumes and classes; `None` where none of them is there: then nothing is known of any.
pub(super) fn read([claims, volumes, classes]: [&Field<'_>; 3]) -> Option<Volumes> {
    let is_known = [claims, volumes, classes].iter().any(|field| field.is_present());
    let mut known = Volumes::default();
    for field in claims.list().into_iter().flatten() {
        claim(&field, &mut known);
    }
    for field in volumes.list().into_iter().flatten() {
        let Some([name, terms]) = field.object(["name", "nodeSelectorTerms"]) else {
            continue;
        };
        let terms = terms.list().map(|list| list.iter().filter_map(term).collect());
        if let (Some(name), Some(terms)) = (name.required().non_empty_string(), terms) {
            known.volumes.insert(name.into(), Arc::new(terms));
        }
    }
    for field in classes.list().into_iter().flatten() {
        let Some([name, provisioner, mode]) = field.object(["name", "provisioner", "volumeBindingMode"]) else {
            continue;
        };
        let provisioner = provisioner.string().unwrap_or_default();
        let mode = mode
            .word(&[(WAITS, WAITS), ("Immediate", "Immediate")])
            .unwrap_or_default();
        if let Some(name) = name.required().non_empty_string() {
            known.classes.insert(name.into(), ClassRecord::new(provisioner, mode));
        }
    }
    is_known.then_some(known)
}

fn claim(field: &Field<'_>, known: &mut Volumes) -> Option<()> {
    let [namespace, name, volume, class, selected, phase] = field.object([
        "namespace",
        "name",
        "volumeName",
        "storageClassName",
        "selectedNode",
        "phase",
    ])?;
    let text = |field: &Field<'_>| field.non_empty_string().map(Arc::<str>::from);
    let phases = [("Pending", false), ("Bound", false), ("Lost", true)];
    let record = ClaimRecord {
        volume: text(&volume),
        class: text(&class),
        selected_node: text(&selected),
        lost: phase.word(&phases).unwrap_or(false),
    };
    let namespace = namespace.required().non_empty_string();
    let name = name.required().non_empty_string()?;
    known
        .claims
        .entry(namespace?.into())
        .or_default()
        .insert(name.into(), record);
    Some(())
}

fn term(field: &Field<'_>) -> Option<Term<'static>> {
    let [expressions, fields] = field.object(["matchExpressions", "matchFields"])?;
    type Build = fn(Cow<'static, str>, Cow<'static, str>, Vec<Cow<'static, str>>) -> Requirement<'static>;
    let requirements = |field: &Field<'_>, build: Build| {
        let list = field.list().into_iter().flatten();
        list.filter_map(|field| {
            let [key, operator, values] = field.object(["key", "operator", "values"])?;
            let owned = |text: &str| Cow::Owned(text.to_owned());
            let values = values.list().into_iter().flatten();
            let values = values.filter_map(|value| value.string().map(owned)).collect();
            let operator = operator.required().string().map(owned);
            Some(build(key.required().string().map(owned)?, operator?, values))
        })
        .collect()
    };
    Some(Term {
        expressions: requirements(&expressions, Requirement::on_label),
        fields: requirements(&fields, Requirement::on_field),
    })
}

/// What is known of them under these three names; of watches that are behind, which decide about no pod that arrives, nothing.
pub(super) fn write(known: &Volumes) -> [(&'static str, Value); 3] {
    let claims = known.claims.iter().flat_map(|(namespace, claims)| {
        claims.iter().map(move |(name, claim)| {
            let text = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
            let [volume, class, selected] = [&claim.volume, &claim.class, &claim.selected_node].map(text);
            stated([
                ("namespace", namespace),
                ("name", name),
                ("volumeName", &volume),
                ("storageClassName", &class),
                ("selectedNode", &selected),
                ("phase", if claim.lost { "Lost" } else { "" }),
            ])
        })
    });
    let volumes = known.volumes.iter().map(|(name, terms)| {
        let terms: Value = terms.iter().map(self::written).collect();
        json!({"name": &**name, "nodeSelectorTerms": terms})
    });
    let classes = known.classes.iter().map(|(name, class)| {
        stated([
            ("name", name),
            ("provisioner", if class.is_liqo { LIQO_PROVISIONER } else { "" }),
            ("volumeBindingMode", if class.waits { WAITS } else { "Immediate" }),
        ])
    });
    [
        ("persistentVolumeClaims", claims.collect()),
        ("persistentVolumes", volumes.collect()),
        ("storageClasses", classes.collect()),
    ]
}

fn written(term: &Term<'_>) -> Value {
    let requirement = |requirement: &Requirement<'_>| {
        let (key, operator, values) = requirement.parts();
        let mut written = json!({"key": key, "operator": operator});
        if !values.is_empty() {
            written["values"] = json!(values);
        }
        written
    };
    let lists = [("matchExpressions", &term.expressions), ("matchFields", &term.fields)];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    lists
        .map(|(name, list)| (name.to_owned(), list.iter().map(requirement).collect::<Value>()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    const NAMES: [&str; 3] = ["persistentVolumeClaims", "persistentVolumes", "storageClasses"];

    fn load(document: &Value) -> Result<Option<Volumes>, Vec<String>> {
        let read = document::read(document, |root| {
            let [claims, volumes, classes] = root.object(NAMES)?;
            Some(read([&claims, &volumes, &classes]))
        });
        read.map_err(|faults| faults.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_written_reads_as_the_same() {
        let document = json!({
            "persistentVolumeClaims": [
                {"namespace": "a", "name": "x", "volumeName": "pv", "storageClassName": "liqo"},
                {"namespace": "a", "name": "y", "phase": "Lost"},
                {"namespace": "b", "name": "x"},
            ],
            "persistentVolumes": [{"name": "pv", "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}, {"key": "k", "operator": "Exists"}]},
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
            ]}],
            "storageClasses": [
                {"name": "liqo", "provisioner": "liqo.io/storage", "volumeBindingMode": "WaitForFirstConsumer"},
                {"name": "other", "volumeBindingMode": "Immediate"},
            ],
        });
        let known = load(&document).unwrap().unwrap();
        let written: Value = write(&known)
            .into_iter()
            .map(|(name, list)| (name.to_owned(), list))
            .collect();
        assert_eq!(written, document);
        assert_eq!(load(&json!({})).unwrap(), None);
        let nothing = NAMES.map(|name| (name.to_owned(), json!([])));
        assert_eq!(load(&nothing.into_iter().collect()).unwrap(), Some(Volumes::default()));
    }

    #[test]
    fn every_fault_is_named() {
        let document = json!({
            "persistentVolumeClaims": [{"name": "x", "phase": "Gone"}],
            "persistentVolumes": [{"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone"}]}]}],
            "storageClasses": [{"name": "x", "volumeBindingMode": "Later"}],
        });
        assert_eq!(
            load(&document).unwrap_err(),
            [
                "persistentVolumeClaims[0].phase: \"Gone\" is not one of Pending, Bound, Lost",
                "persistentVolumeClaims[0].namespace: is missing",
                "persistentVolumes[0].nodeSelectorTerms[0].matchExpressions[0].operator: is missing",
                "persistentVolumes[0].name: is missing",
                "storageClasses[0].volumeBindingMode: \"Later\" is not one of WaitForFirstConsumer, Immediate",
            ]
        );
    }
}

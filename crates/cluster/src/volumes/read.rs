//! The only reader of PersistentVolumeClaims, PersistentVolumes and StorageClasses: JSON in, the fields that a decision
//! needs out.

use std::sync::Arc;

use serde_json::Value;

use edgeward_decision::model::volumes::{ClaimRecord, ClassRecord};
use edgeward_kube::constraints::{NodeSelector, VolumeAffinity};
use edgeward_kube::excerpt::LONGEST_NAME;

/// Annotation with the node for which kube-scheduler wants a volume created.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Maximum length of the JSON text of a volume's node affinity, in bytes. A volume with a longer text has no known
/// location.
const MAX_AFFINITY: usize = 4096;

/// Reads a PersistentVolumeClaim.
///
/// # Errors
/// The text is not JSON.
pub fn read_claim(json: &str) -> Result<ClaimRecord, serde_json::Error> {
    let claim: Value = serde_json::from_str(json)?;
    let spec = &claim["spec"];
    Ok(ClaimRecord {
        volume: name(&spec["volumeName"]),
        class: name(&spec["storageClassName"]),
        selected_node: name(&claim["metadata"]["annotations"][SELECTED_NODE]),
        lost: claim["status"]["phase"] == "Lost",
    })
}

/// Reads the required node affinity of a PersistentVolume. Returns `None` if it has none, or if the text is longer than
/// 4 KiB.
///
/// # Errors
/// The text is not JSON, or the affinity has another form.
pub fn read_affinity(json: &str) -> Result<Option<VolumeAffinity>, serde_json::Error> {
    let volume: Value = serde_json::from_str(json)?;
    let required = volume["spec"]["nodeAffinity"]["required"].to_string();
    if required == "null" || required.len() > MAX_AFFINITY {
        return Ok(None);
    }
    let selector: NodeSelector = serde_json::from_str(&required)?;
    Ok(Some(Arc::new(selector.terms())))
}

/// Reads a StorageClass.
///
/// # Errors
/// The text is not JSON.
pub fn read_class(json: &str) -> Result<ClassRecord, serde_json::Error> {
    let class: Value = serde_json::from_str(json)?;
    let [provisioner, mode] = ["provisioner", "volumeBindingMode"].map(|field| class[field].as_str());
    Ok(ClassRecord::new(
        provisioner.unwrap_or_default(),
        mode.unwrap_or_default(),
    ))
}

fn name(text: &Value) -> Option<Arc<str>> {
    let text = text.as_str()?;
    (1..=LONGEST_NAME).contains(&text.len()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claim_record_has_volume_class_and_loss() {
        let read = |json: &str| read_claim(json).unwrap();
        let bound = read(
            r#"{"metadata": {"name": "data"}, "spec": {"volumeName": "pv-1", "storageClassName": "liqo", "accessModes": []},
                "status": {"phase": "Bound"}}"#,
        );
        assert_eq!(bound.volume.as_deref(), Some("pv-1"));
        assert_eq!((bound.class.as_deref(), bound.lost), (Some("liqo"), false));
        assert!(read(r#"{"spec": {"volumeName": "pv-1"}, "status": {"phase": "Lost"}}"#).lost);
        let annotations = json!({"volume.kubernetes.io/selected-node": "far-0", "other": "x"});
        let selected = read(&json!({"metadata": {"annotations": annotations}}).to_string());
        assert_eq!(selected.selected_node.as_deref(), Some("far-0"));
        assert_eq!(
            read(r#"{"spec": {"volumeName": "", "storageClassName": null}, "status": null}"#),
            ClaimRecord::default()
        );
    }

    #[test]
    fn volume_is_read_as_its_node_affinity() {
        let volume = json!({"metadata": {"name": "pv-1"}, "spec": {"hostPath": {"path": "/x"}, "nodeAffinity": {"required":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
                                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}});
        let terms = read_affinity(&volume.to_string()).unwrap().unwrap();
        let matches = |name: &str, zone: &str| terms[0].matches(name, &[("zone", zone)].into_iter().collect());
        assert_eq!(
            [matches("n", "b"), matches("n", "c"), matches("m", "b")],
            [true, false, false]
        );
        for without in [
            json!({}),
            json!({"spec": {"nodeAffinity": null}}),
            json!({"spec": {"nodeAffinity": {}}}),
        ] {
            assert_eq!(read_affinity(&without.to_string()).unwrap(), None);
        }
    }

    #[test]
    fn oversized_volume_affinity_is_dropped() {
        let of = |values: Vec<String>| {
            let requirement = json!({"key": "zone", "operator": "In", "values": values});
            let terms = json!([{"matchExpressions": [requirement]}]);
            json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}).to_string()
        };
        assert_eq!(read_affinity(&of(vec!["x".repeat(1 << 20)])).unwrap(), None);
        assert_eq!(read_affinity(&of(vec!["x".to_owned(); 1 << 18])).unwrap(), None);
        assert!(read_affinity(&of(vec!["x".to_owned(); 9])).unwrap().is_some());
    }

    #[test]
    fn storage_class_is_liqo_by_its_provisioner() {
        let read = |json: &str| read_class(json).unwrap();
        let liqo = read(r#"{"provisioner": "liqo.io/storage", "volumeBindingMode": "WaitForFirstConsumer"}"#);
        assert!(liqo.is_liqo && liqo.waits);
        assert_eq!(
            read(r#"{"provisioner": "x", "volumeBindingMode": "Immediate"}"#),
            ClassRecord::default()
        );
    }
}

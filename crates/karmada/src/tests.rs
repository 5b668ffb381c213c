use std::collections::BTreeMap;
use std::convert::Infallible;

use prost::Message as _;
use prost::bytes::Bytes;
use serde_json::json;
use tonic::Code;

use super::*;
use crate::messages::{
    NodeClaim, NodeSelector, NodeSelectorTerm, Quantity, ReplicaRequirements, Requirement, Toleration,
};

/// The part of `ReplicaRequirements` and `NodeClaim` that Karmada 1.19 writes: serialised messages as bytes.
#[derive(Clone, PartialEq, Message)]
struct Written {
    #[prost(message, optional, tag = "1")]
    claim: Option<WrittenClaim>,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(btree_map = "string, bytes", tag = "5")]
    request: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct WrittenClaim {
    #[prost(btree_map = "string, string", tag = "2")]
    selector: BTreeMap<String, String>,
    #[prost(bytes = "vec", tag = "4")]
    affinity: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "5")]
    tolerations: Vec<Vec<u8>>,
}

fn affinity() -> NodeSelector {
    let zones = Requirement {
        key: "zone".to_owned(),
        operator: "NotIn".to_owned(),
        values: vec!["a".to_owned(), "b".to_owned()],
    };
    let term = NodeSelectorTerm {
        match_expressions: vec![zones],
        match_fields: vec![],
    };
    NodeSelector {
        node_selector_terms: vec![term],
    }
}

fn toleration() -> Toleration {
    Toleration {
        key: "gpu".to_owned(),
        operator: "Exists".to_owned(),
        ..Toleration::default()
    }
}

fn amount() -> Quantity {
    Quantity {
        text: "500m".to_owned(),
    }
}

fn selector() -> BTreeMap<String, String> {
    [("arch".to_owned(), "arm64".to_owned())].into()
}

/// The manifest of the pods above.
fn manifest() -> Value {
    let required = json!({"nodeSelectorTerms": [{
        "matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a", "b"]}], "matchFields": [],
    }]});
    json!({
        "metadata": {"namespace": "shop"},
        "spec": {
            "containers": [{"name": "replica", "resources": {"requests": {"cpu": "500m"}}}],
            "nodeSelector": {"arch": "arm64"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        },
    })
}

/// What Karmada wrote until 1.17.
fn old() -> ReplicaRequirements {
    ReplicaRequirements {
        claim: Some(NodeClaim {
            old_affinity: Some(affinity()),
            selector: selector(),
            old_tolerations: vec![toleration()],
            ..NodeClaim::default()
        }),
        old_request: [("cpu".to_owned(), amount())].into(),
        namespace: "shop".to_owned(),
        ..ReplicaRequirements::default()
    }
}

/// What Karmada writes since 1.19.
fn new() -> ReplicaRequirements {
    let written = Written {
        claim: Some(WrittenClaim {
            selector: selector(),
            affinity: affinity().encode_to_vec(),
            tolerations: vec![toleration().encode_to_vec()],
        }),
        namespace: "shop".to_owned(),
        request: [("cpu".to_owned(), amount().encode_to_vec())].into(),
    };
    ReplicaRequirements::decode(&*written.encode_to_vec()).unwrap()
}

#[test]
fn old_and_new_fields_are_read_alike() {
    let mut both = new();
    both.old_request = old().old_request;
    let claim = both.claim.as_mut().unwrap();
    (claim.old_affinity, claim.old_tolerations) = (Some(affinity()), vec![toleration()]);
    for requirements in [old(), new(), both] {
        let asked = MaxAvailableReplicasRequest {
            cluster: "edge".to_owned(),
            requirements: Some(requirements),
            assumed: vec![],
        };
        let set = vec![Pods {
            manifest: manifest(),
            count: 1,
        }];
        let cluster = "edge".to_owned();
        assert_eq!(
            replicas(asked).unwrap(),
            Question {
                cluster,
                coming: vec![],
                set
            }
        );
    }
}

#[test]
fn components_are_one_set_beside_assumed_workloads() {
    let component = |replicas| Component {
        name: "worker".to_owned(),
        replicas,
        requirements: Some(old().into()),
    };
    let asked = |replicas| MaxAvailableComponentSetsRequest {
        cluster: "edge".to_owned(),
        components: vec![component(replicas), component(0)],
        namespace: "shop".to_owned(),
        assumed: vec![messages::AssumedWorkload {
            components: vec![component(3)],
        }],
    };
    let counts = |pods: &[Pods]| pods.iter().map(|pods| pods.count).collect::<Vec<_>>();
    let question = component_sets(asked(2)).unwrap();
    assert_eq!((counts(&question.coming), counts(&question.set)), (vec![3], vec![2, 0]));
    assert_eq!(question.coming[0].manifest, manifest());
    let refused = |replicas| component_sets(asked(replicas)).unwrap_err().message().to_owned();
    assert_eq!(refused(-1), "component \"worker\": replicas is -1");
}

/// A body in one frame.
struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

/// The status in the head of the answer to this call; `None` if it is in the trailer.
async fn status(method: &str, count: Result<u32, Status>) -> Option<Code> {
    let message = MaxAvailableReplicasRequest::default().encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    let call = Request::post(format!("{SERVICE}{method}")).header("content-type", "application/grpc");
    let call = call.body(Whole(Some(frame.into()))).unwrap();
    let answer = answer(call, |_| std::future::ready(count.clone())).await;
    answer
        .headers()
        .get("grpc-status")
        .map(|code| Code::from_bytes(code.as_bytes()))
}

#[tokio::test]
async fn method_that_counts_nothing_is_not_implemented() {
    assert_eq!(status("MaxAvailableReplicas", Ok(7)).await, None);
    let stale = Status::unavailable("stale");
    assert_eq!(
        status("MaxAvailableReplicas", Err(stale)).await,
        Some(Code::Unavailable)
    );
    assert_eq!(
        status("GetUnschedulableReplicas", Ok(7)).await,
        Some(Code::Unimplemented)
    );
}

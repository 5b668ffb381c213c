//! Karmada's scheduler-estimator: from a gRPC call to manifests of pods, and from a number to the answer. It has no transport.

#![allow(unreachable_pub, reason = "`pub` means: for the other modules")]

mod messages;

use http::{Request, Response};
use http_body::Body;
use messages::{
    Component, ComponentRequirements, Count, MaxAvailableComponentSetsRequest, MaxAvailableReplicasRequest,
};
use prost::Message;
use serde_json::Value;
pub use tonic::Status;
use tonic::body::Body as Answer;
use tonic::server::Grpc;
use tonic_prost::ProstCodec;

/// Path of the service. The method follows.
const SERVICE: &str = "/github.com.karmada_io.karmada.pkg.estimator.service.Estimator/";

/// The most bytes of a call.
const MAX_CALL: usize = 256 << 10;

/// A number of pods that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Pods {
    /// Their manifest: namespace, request, node selector, node affinity and tolerations.
    pub manifest: Value,
    /// How many there are.
    pub count: u32,
}

/// Asks how often `set` fits into the cluster at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Karmada's name of the cluster.
    pub cluster: String,
    /// Pods that are assigned to the cluster and do not have a node yet.
    pub coming: Vec<Pods>,
    /// Pods that are wanted together.
    pub set: Vec<Pods>,
}

/// Answers a call with what `count` says: the number of sets, or why it is not known. Karmada ignores the estimator then.
pub async fn answer<B, F>(call: Request<B>, count: impl Fn(Question) -> F) -> Response<Answer>
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    F: Future<Output = Result<u32, Status>>,
{
    match call.uri().path().strip_prefix(SERVICE) {
        Some("MaxAvailableReplicas") => unary(call, replicas, count).await,
        Some("MaxAvailableComponentSets") => unary(call, component_sets, count).await,
        _ => Status::unimplemented("the estimator of edgeward only counts what fits").into_http(),
    }
}

async fn unary<R, B, F>(
    call: Request<B>,
    read: fn(R) -> Result<Question, Status>,
    count: impl Fn(Question) -> F,
) -> Response<Answer>
where
    R: Message + Default + 'static,
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    F: Future<Output = Result<u32, Status>>,
{
    let service = tower::service_fn(|asked: tonic::Request<R>| {
        let counted = read(asked.into_inner()).map(&count);
        async {
            let count = i32::try_from(counted?.await?).unwrap_or(i32::MAX);
            Ok::<_, Status>(tonic::Response::new(Count { count }))
        }
    });
    let mut grpc = Grpc::new(ProstCodec::<Count, R>::default()).max_decoding_message_size(MAX_CALL);
    grpc.unary(service, call).await
}

fn replicas(asked: MaxAvailableReplicasRequest) -> Result<Question, Status> {
    let requirements = asked.requirements.unwrap_or_default();
    let namespace = requirements.namespace.clone();
    let component = Component {
        requirements: Some(requirements.into()),
        replicas: 1,
        ..Component::default()
    };
    component_sets(MaxAvailableComponentSetsRequest {
        cluster: asked.cluster,
        components: vec![component],
        namespace,
        assumed: asked.assumed,
    })
}

fn component_sets(asked: MaxAvailableComponentSetsRequest) -> Result<Question, Status> {
    let pods = |component: Component| {
        let (name, replicas) = (component.name, component.replicas);
        let count = u32::try_from(replicas)
            .map_err(|_| Status::invalid_argument(format!("component {name:?}: replicas is {replicas}")))?;
        let requirements: ComponentRequirements = component.requirements.unwrap_or_default();
        let manifest = requirements.pod(&asked.namespace);
        Ok(Pods { manifest, count })
    };
    let coming = asked.assumed.into_iter().flat_map(|assumed| assumed.components);
    let coming = coming.map(pods).collect::<Result<_, Status>>()?;
    let set = asked
        .components
        .into_iter()
        .map(pods)
        .collect::<Result<Vec<_>, Status>>()?;
    Ok(Question {
        cluster: asked.cluster,
        coming,
        set,
    })
}

#[cfg(test)]
mod tests;

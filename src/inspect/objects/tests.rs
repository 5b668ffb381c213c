use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use super::*;

/// A cluster with Liqo, for an operator who may not list this kind.
fn cluster(forbidden: &'static str) -> Connection {
    let resources = [
        "foreignclusters",
        "virtualnodes",
        "namespaceoffloadings",
        "namespacemaps",
        "connections",
    ];
    let answer = move |request: Request<Body>| async move {
        let path = request.uri().path();
        let (code, answer) = match path.rsplit('/').next().unwrap() {
            "v1beta1" => {
                let resource =
                    |name| json!({"name": name, "singularName": "", "namespaced": true, "kind": "", "verbs": []});
                (200, json!({"groupVersion": "", "resources": resources.map(resource)}))
            }
            kind if forbidden == "all" || kind == forbidden => {
                let message = format!("{kind} is forbidden");
                let status =
                    json!({"kind": "Status", "status": "Failure", "message": message, "reason": "", "code": 403});
                (403, status)
            }
            "virtualnodes" => {
                let node = json!({"metadata": {"name": "far", "namespace": "n"}, "spec": {"clusterID": "far"}});
                (200, json!({"metadata": {}, "items": [node]}))
            }
            _ => (200, json!({"metadata": {}, "items": []})),
        };
        let body = Body::from(answer.to_string().into_bytes());
        anyhow::Ok(Response::builder().status(code).body(body)?)
    };
    let service = tower::service_fn(move |request| Box::pin(answer(request)));
    Connection::to(Client::new(service, "default"), "test".to_owned())
}

#[tokio::test]
async fn forbidden_liqo_kind_leaves_other_kinds_readable() {
    let config = &mut Config::default();
    for forbidden in [
        "connections",
        "foreignclusters",
        "namespacemaps",
        "namespaceoffloadings",
    ] {
        let found = liqo(&cluster(forbidden), config).await;
        let kinds: Vec<_> = found.unreadable.iter().map(|(kind, _)| &**kind).collect();
        assert_eq!(kinds, [forbidden]);
        assert!(!found.is_known(forbidden) && found.is_known("virtualnodes"));
        let error = found.unreadable[0].1.to_string();
        assert!(
            error.contains(&format!("cannot list {forbidden}: {forbidden} is forbidden")),
            "{error}"
        );
        let objects = found.objects.unwrap();
        assert_eq!(objects.clusters().len(), 1);
        assert_eq!(
            objects.are_namespaces_known,
            !forbidden.starts_with("namespace"),
            "{forbidden}"
        );
    }
    let found = liqo(&cluster("all"), config).await;
    assert_eq!((found.objects.is_none(), found.unreadable.len()), (true, 5));
}

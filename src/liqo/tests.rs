use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::client::Body;
use serde_json::json;

use super::*;
use crate::watch::objects::PERIOD;

/// All kinds are listed, except for the offloadings, which have this standing.
fn kinds(offloadings: Standing) -> Kinds {
    Kinds {
        foreign_clusters: Seen::without_objects(Standing::Listed),
        virtual_nodes: Seen::without_objects(Standing::Listed),
        maps: Seen::without_objects(Standing::Listed),
        offloadings: Seen::without_objects(offloadings),
        ..Kinds::default()
    }
}

/// Whether Liqo is in use, and whether its namespaces are known; `None` while nothing is known.
fn found(kinds: &Kinds, enabled: Enabled, was_on: bool) -> Option<Option<bool>> {
    let objects = kinds.objects(enabled, was_on, false)?;
    Some(objects.map(|objects| objects.are_namespaces_known))
}

#[test]
fn liqo_is_in_use_if_its_objects_are_readable() {
    use Enabled::{Always, Auto, Never};
    let pending = Kinds::default();
    assert_eq!(
        [Auto, Always, Never].map(|enabled| found(&pending, enabled, false)),
        [None, None, Some(None)]
    );
    let listed = kinds(Standing::Listed);
    assert_eq!(found(&listed, Auto, false), Some(Some(true)));
    assert_eq!(found(&listed, Never, false), Some(None));

    let forbidden = kinds(Standing::Forbidden);
    assert_eq!(found(&forbidden, Auto, false), Some(None));
    // The rights were withdrawn.
    assert_eq!(found(&forbidden, Auto, true), Some(Some(false)));
    assert_eq!(found(&forbidden, Always, false), Some(Some(false)));

    let not_installed = kinds(Standing::NotInstalled);
    assert_eq!(found(&not_installed, Auto, true), Some(None));
    assert_eq!(found(&not_installed, Always, true), Some(Some(false)));
}

#[test]
fn pending_liqo_kind_is_given_up_after_timeout() {
    let kinds = kinds(Standing::Pending);
    assert!(kinds.objects(Enabled::Auto, false, false).is_none());
    assert!(kinds.objects(Enabled::Auto, false, true).unwrap().is_none());
    let always = kinds.objects(Enabled::Always, false, true).unwrap();
    assert!(always.is_some_and(|objects| !objects.are_namespaces_known));
}

#[test]
fn unreadable_liqo_object_is_ignored() {
    let node = |name: &str, cluster: Option<&str>| {
        let read = cluster.and_then(|id| wire::virtual_node(&format!(r#"{{"spec": {{"clusterID": "{id}"}}}}"#)));
        ((String::new(), name.to_owned()), read)
    };
    let mut kinds = kinds(Standing::Listed);
    kinds.virtual_nodes.objects = [node("a", Some("far")), node("b", None)].into();
    let objects = kinds.objects(Enabled::Auto, false, false).unwrap().unwrap();
    assert_eq!(objects.virtual_nodes.len(), 1);
}

/// An API server with or without Liqo's CRDs, and the paths of the requests to it.
#[derive(Default)]
struct Server {
    is_installed: AtomicBool,
    asked: Mutex<Vec<String>>,
}

impl Server {
    fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let answer = move |request: http::Request<Body>| {
            let server = Arc::clone(&server);
            Box::pin(async move { server.answer(request.uri()).await })
        };
        Client::new(tower::service_fn(answer), "default")
    }

    async fn answer(&self, uri: &http::Uri) -> anyhow::Result<http::Response<Body>> {
        let path = uri.path();
        let is_watch = uri.query().unwrap_or_default().contains("watch=");
        self.asked.lock().unwrap().push(path.to_owned());
        // A watch without events, until it ends.
        if is_watch {
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        let is_installed = self.is_installed.load(Ordering::Relaxed);
        let resource =
            |name: &str| json!({"name": name, "singularName": "", "namespaced": true, "kind": "", "verbs": []});
        let resources = |names: &[&str]| {
            let resources: Vec<_> = names.iter().copied().map(resource).collect();
            json!({"groupVersion": "", "resources": resources})
        };
        let answer = match path {
            _ if !is_installed => {
                json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "NotFound", "code": 404})
            }
            "/apis/core.liqo.io/v1beta1" => resources(&["foreignclusters"]),
            "/apis/offloading.liqo.io/v1beta1" => resources(&["virtualnodes", "namespaceoffloadings", "namespacemaps"]),
            "/apis/networking.liqo.io/v1beta1" => resources(&["connections"]),
            _ => json!({"metadata": {"resourceVersion": "7"}, "items": []}),
        };
        let code = answer["code"].as_u64().unwrap_or(200);
        let body = if is_watch && code == 200 {
            vec![]
        } else {
            answer.to_string().into_bytes()
        };
        Ok(http::Response::builder()
            .status(u16::try_from(code)?)
            .body(Body::from(body))?)
    }

    /// The distinct paths requested since the last call.
    fn asked(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.asked.lock().unwrap()).into_iter().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn liqo_objects_are_not_requested_unless_installed() {
    let server = Arc::<Server>::default();
    let clock = Clock::start();
    let (_observer, changes) = crate::observer::Observer::new(clock, Arc::default());
    let liqo = Liqo::new(server.client(), Arc::default(), clock, changes);
    let (kinds, mut changed) = watch::channel(Kinds::default());
    let mut becomes = async |is_in_use: bool| {
        let is_known = |kinds: &Kinds| found(kinds, Enabled::Auto, false) == Some(is_in_use.then_some(true));
        drop(changed.wait_for(is_known).await);
        // Requests from before this point are answered by now.
        tokio::time::sleep(2 * PERIOD).await;
        server.asked();
        tokio::time::sleep(3 * PERIOD).await;
        server.asked()
    };
    let in_virtual_time = async {
        let versions = ["core", "offloading", "networking"].map(|group| format!("/apis/{group}.liqo.io/v1beta1"));
        let versions = BTreeSet::from(versions);
        for _ in 0..2 {
            assert_eq!(becomes(false).await, versions);
            server.is_installed.store(true, Ordering::Relaxed);
            let kinds = becomes(true).await;
            assert!(
                kinds.len() == 5 && kinds.iter().all(|path| path.contains(".liqo.io/v1beta1/")),
                "{kinds:?}"
            );
            server.is_installed.store(false, Ordering::Relaxed);
        }
        assert_eq!(becomes(false).await, versions);
    };
    tokio::select! {
        () = liqo.watch(&kinds) => unreachable!("it goes on for ever"),
        () = in_virtual_time => {}
    }
}

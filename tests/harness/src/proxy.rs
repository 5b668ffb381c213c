//! A proxy between edgeward and the API server. On command, it cuts connections and forgets watch history.

use std::cell::RefCell;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Certificate;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::control_plane::kubeconfig_of;
use crate::prelude::*;

const WATCHED: [&str; 3] = ["/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"];

/// Passes requests on to the API server, with the rights of the kubeconfig.
pub struct Proxy<'run> {
    runtime: &'run Runtime,
    address: SocketAddr,
    tls: RustlsConfig,
    ca: String,
    server: RefCell<Option<Server>>,
    upstream: Arc<Upstream>,
}

struct Server {
    handle: Handle<SocketAddr>,
    task: JoinHandle<std::io::Result<()>>,
}

/// How the API server says that a resource version is too old for a watch.
#[derive(Clone, Copy)]
pub enum Gone {
    /// The response's status is 410.
    Status,
    Event,
}

struct Upstream {
    client: reqwest::Client,
    url: Mutex<String>,
    is_silent: watch::Sender<bool>,
    gates_patches: watch::Sender<bool>,
    refuses_streams: AtomicBool,
    gone: Mutex<(Gone, BTreeSet<&'static str>)>,
}

impl<'run> Proxy<'run> {
    pub(crate) fn start(runtime: &'run Runtime, kubeconfig: &Path) -> Result<Self> {
        let authority = Authority::new()?;
        let pair = authority.server(&[])?;
        let tls = RustlsConfig::from_pem(pair.certificate.into_bytes(), pair.key.into_bytes());
        let mut proxy = Self {
            runtime,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: runtime.block_on(tls)?,
            ca: authority.certificate,
            server: RefCell::default(),
            upstream: Arc::new(Upstream::new(kubeconfig)?),
        };
        proxy.address = proxy.listen()?;
        Ok(proxy)
    }

    /// A kubeconfig for the proxy. Its clients need no credentials.
    pub fn kubeconfig(&self) -> Value {
        let ca = STANDARD.encode(&self.ca);
        let server = format!("https://{}", self.address);
        kubeconfig_of(json!({"server": server, "certificate-authority-data": ca}), json!({}))
    }

    pub fn cut(&self) -> Result<()> {
        let server = self.server.take().context("it is cut already")?;
        server.handle.shutdown();
        Ok(self.runtime.block_on(server.task)??)
    }

    /// Lets nothing through, without an error. Existing connections stay silent forever.
    pub fn fall_silent(&self) {
        self.upstream.is_silent.send_replace(true);
    }

    /// Holds patches back and passes everything else on. Patches that still have a client continue after [`Self::heal`].
    pub fn gate_patches(&self) {
        self.upstream.gates_patches.send_replace(true);
    }

    pub fn heal(&self) -> Result<()> {
        self.upstream.is_silent.send_replace(false);
        self.upstream.gates_patches.send_replace(false);
        if self.server.borrow().is_none() {
            self.listen()?;
        }
        Ok(())
    }

    pub fn lead_to(&self, url: &str) -> Result<()> {
        self.cut()?;
        url.clone_into(&mut lock(&self.upstream.url));
        self.heal()
    }

    /// Answers the next watch from a resource version with 410, once for each kind.
    pub fn forget_history(&self, gone: Gone) {
        *lock(&self.upstream.gone) = (gone, WATCHED.into());
    }

    /// Refuses lists as streams from now on, like API servers without the feature WatchList.
    pub fn refuse_streams(&self) {
        self.upstream.refuses_streams.store(true, Ordering::Relaxed);
    }

    pub fn all_were_told(&self) -> Result<()> {
        eventually("every kind is watched from what is gone", BOUND, || {
            let left = lock(&self.upstream.gone).1.clone();
            ensure!(left.is_empty(), "{left:?} are not");
            Ok(())
        })
    }

    fn listen(&self) -> Result<SocketAddr> {
        let app = Router::new().fallback(pass).with_state(Arc::clone(&self.upstream));
        let handle = Handle::new();
        let server = axum_server::bind_rustls(self.address, self.tls.clone()).handle(handle.clone());
        let task = self.runtime.spawn(server.serve(app.into_make_service()));
        let address = self.runtime.block_on(handle.listening());
        self.server.replace(Some(Server { handle, task }));
        address.context("the proxy does not listen")
    }
}

impl Drop for Proxy<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.handle.shutdown();
        }
    }
}

impl Upstream {
    fn new(kubeconfig: &Path) -> Result<Self> {
        let config: Value = serde_json::from_str(&fs::read_to_string(kubeconfig)?)?;
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let ca = fs::read(cluster["certificate-authority"].as_str().context("no CA")?)?;
        let bearer = format!("Bearer {}", user["token"].as_str().context("no token")?);
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([Certificate::from_pem(&ca)?])
            .default_headers(HeaderMap::from_iter([(header::AUTHORIZATION, bearer.parse()?)]));
        Ok(Self {
            client: client.build()?,
            url: Mutex::new(cluster["server"].as_str().context("no server")?.to_owned()),
            is_silent: watch::Sender::new(false),
            gates_patches: watch::Sender::new(false),
            refuses_streams: AtomicBool::new(false),
            gone: Mutex::new((Gone::Status, BTreeSet::new())),
        })
    }

    fn no_stream(&self, uri: &Uri) -> Option<Response> {
        let is_stream = uri.query()?.contains("sendInitialEvents=true");
        if !is_stream || !self.refuses_streams.load(Ordering::Relaxed) {
            return None;
        }
        let message = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden \
                       for watch unless the WatchList feature gate is enabled";
        Some(failed(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).into_response())
    }

    fn gone(&self, uri: &Uri) -> Option<Response> {
        let mut parameters = uri.query()?.split('&');
        let resumes = uri.query()?.contains("watch=true")
            && parameters.any(|pair| {
                pair.strip_prefix("resourceVersion=")
                    .is_some_and(|version| version != "0")
            });
        let (gone, kinds) = &mut *lock(&self.gone);
        if !resumes || !kinds.remove(uri.path()) {
            return None;
        }
        let (code, headers, status) = failed(StatusCode::GONE, "Expired", "too old resource version");
        let (code, body) = match gone {
            Gone::Status => (code, status),
            Gone::Event => (
                StatusCode::OK,
                format!("{{\"type\": \"ERROR\", \"object\": {}}}\n", status.trim_end()),
            ),
        };
        Some((code, headers, body).into_response())
    }
}

fn failed(code: StatusCode, reason: &str, message: &str) -> (StatusCode, [(HeaderName, &'static str); 1], String) {
    let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16()});
    (
        code,
        [(header::CONTENT_TYPE, "application/json")],
        format!("{status}\n"),
    )
}

async fn pass(
    State(upstream): State<Arc<Upstream>>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut silence = upstream.is_silent.subscribe();
    if let Some(refused) = upstream.no_stream(&uri).or_else(|| upstream.gone(&uri)) {
        return refused;
    }
    let mut gated = upstream.gates_patches.subscribe();
    if method == Method::PATCH && gated.wait_for(|holds| !holds).await.is_err() {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    headers.remove(header::HOST);
    let url = format!("{}{uri}", lock(&upstream.url));
    let request = upstream.client.request(method, url).headers(headers).body(body);
    let sent = tokio::select! {
        biased;
        () = silenced(&mut silence) => pending().await,
        sent = request.send() => sent,
    };
    let Ok(mut response) = sent else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let (status, mut headers) = (response.status(), std::mem::take(response.headers_mut()));
    // The body is streamed on.
    headers.remove(header::TRANSFER_ENCODING);
    headers.remove(header::CONTENT_LENGTH);
    let chunks = futures::stream::unfold((response, silence), |(mut response, mut silence)| async {
        let chunk = tokio::select! {
            biased;
            () = silenced(&mut silence) => pending().await,
            chunk = response.chunk() => chunk.transpose()?,
        };
        Some((chunk, (response, silence)))
    });
    (status, headers, Body::from_stream(chunks)).into_response()
}

async fn silenced(silence: &mut watch::Receiver<bool>) {
    if silence.wait_for(|is_silent| *is_silent).await.is_err() {
        pending().await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

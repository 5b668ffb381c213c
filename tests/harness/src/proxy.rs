//! A proxy between edgeward and the API server. On command, it cuts connections and lets nothing through.

use std::cell::RefCell;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
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

struct Upstream {
    client: reqwest::Client,
    url: Mutex<String>,
    is_silent: watch::Sender<bool>,
    refuses_streams: AtomicBool,
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

    pub fn heal(&self) -> Result<()> {
        self.upstream.is_silent.send_replace(false);
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

    /// Refuses lists as streams from now on, like API servers without the feature WatchList.
    pub fn refuse_streams(&self) {
        self.upstream.refuses_streams.store(true, Ordering::Relaxed);
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
            refuses_streams: AtomicBool::new(false),
        })
    }

    fn no_stream(&self, uri: &Uri) -> Option<Response> {
        let is_stream = uri.query()?.contains("sendInitialEvents=true");
        if !is_stream || !self.refuses_streams.load(Ordering::Relaxed) {
            return None;
        }
        let message = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden \
                       for watch unless the WatchList feature gate is enabled";
        let code = StatusCode::UNPROCESSABLE_ENTITY;
        let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "message": message, "reason": "Invalid", "code": code.as_u16()});
        Some((code, [(header::CONTENT_TYPE, "application/json")], status.to_string()).into_response())
    }
}

async fn pass(
    State(upstream): State<Arc<Upstream>>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut silence = upstream.is_silent.subscribe();
    if let Some(refused) = upstream.no_stream(&uri) {
        return refused;
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

//! edgeward as installed, with several replicas behind a balancer. Tests change their certificates and the trusted CAs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::tls::TlsInfo;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use crate::balancer::Balancer;
use crate::fixture::Revoked;
use crate::installation::{Installation, SECRET, WEBHOOK};
use crate::load::replicas::take_leader;
use crate::load::{Load, Pace, Report, under_load_reconnecting};
use crate::mount::Mount;
use crate::pki::Pair;
use crate::prelude::*;
use crate::registration::ENTRIES;
use crate::webhook_credentials::NAME;

pub struct InstalledReplicas<'s, 'run> {
    fixture: &'s Fixture<'run>,
    nodes: &'s Nodes<'run>,
    pace: Pace,
    pub members: Vec<Edgeward<'run>>,
    balancer: Balancer<'run>,
    _mounts: Vec<Mount>,
    installation: Installation<'s, 'run>,
    _revoked: Revoked<'run>,
}

/// Renders these folders without edgeward's custom resource definitions, which other tests install.
pub fn render(fixture: &Fixture<'_>, folders: &[&str]) -> Result<Vec<Value>> {
    let mut objects = vec![];
    for folder in folders {
        objects.extend(fixture.kubectl.render(&workspace().join(folder))?);
    }
    objects.retain(|object| object["kind"] != "CustomResourceDefinition");
    Ok(objects)
}

pub fn secret(pair: &Pair, authority: &Authority) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "data": {
            "tls.crt": STANDARD.encode(&pair.certificate), "tls.key": STANDARD.encode(&pair.key),
            "ca.crt": STANDARD.encode(&authority.certificate),
        },
    })
}

impl<'s, 'run> InstalledReplicas<'s, 'run> {
    pub fn with_files(
        fixture: &'s Fixture<'run>,
        nodes: &'s Nodes<'run>,
        pace: Pace,
        replicas: usize,
        authority: &Authority,
    ) -> Result<Self> {
        let mut objects = render(fixture, &["deploy/base", "webhook/base"])?;
        objects.push(secret(&authority.server(&[NAME])?, authority));
        let entries = objects
            .iter_mut()
            .filter_map(|object| object["webhooks"].as_array_mut());
        for entry in entries.flatten() {
            entry["clientConfig"]["caBundle"] = json!(STANDARD.encode(&authority.certificate));
        }
        Self::open(fixture, nodes, pace, replicas, objects, &[])
    }

    /// Applies these objects with the sites of these nodes, and starts `count` replicas with `more` arguments. Returns once the
    /// API server gets decisions from them.
    pub fn open(
        fixture: &'s Fixture<'run>,
        nodes: &'s Nodes<'run>,
        pace: Pace,
        replicas: usize,
        mut objects: Vec<Value>,
        more: &[&str],
    ) -> Result<Self> {
        let config = nodes.config();
        for object in &mut objects {
            match object["kind"].as_str() {
                Some("ConfigMap") => object["data"] = json!({"config.yaml": config.to_string()}),
                // Set at the start, because a Service that changes its type keeps its old endpoints.
                Some("Service") => {
                    object["spec"]["type"] = json!("ExternalName");
                    object["spec"]["externalName"] = json!("localhost");
                }
                _ => {}
            }
        }
        let _revoked = fixture.revoke()?;
        let installation = Installation::apply_objects(fixture, objects)?;
        let balancer = Balancer::open(fixture)?;
        let (mut members, mut _mounts) = (vec![], vec![]);
        for i in 0..replicas {
            let dir = fixture.dir.join(format!("replica-{i}"));
            let replica = installation.replica(&dir, more)?;
            balancer.add(&replica.edgeward)?;
            members.push(replica.edgeward);
            _mounts.extend(replica.mount);
        }
        let installed = Self {
            fixture,
            nodes,
            pace,
            members,
            balancer,
            _mounts,
            installation,
            _revoked,
        };
        installed.name_endpoints()?;
        installed.installation.lead_to(installed.balancer.port())?;
        if pace.has_long_timeout() {
            installed.installation.set_long_timeout()?;
        }
        let probe = workloads::pod("probe", workloads::latency());
        eventually("the API server calls the webhook", BOUND, || {
            let answered = fixture.kubectl.dry_run(&probe)?["metadata"]["annotations"].take();
            let decision = &answered["scheduling.example.io/decision"];
            ensure!(decision.is_string(), "{answered}");
            Ok(())
        })?;
        Ok(installed)
    }

    /// Takes the leader out of the Service, as its controller does when a replica ends. It gets no more connections.
    pub fn take_leader(&mut self) -> Result<Edgeward<'run>> {
        let leader = take_leader(&mut self.members)?;
        remove_endpoint(self.fixture, &leader)?;
        self.balancer.remove(&leader);
        self.fixture.runtime.block_on(self.balancer.connections().cut());
        Ok(leader)
    }

    /// Makes the EndpointSlices of the Service name the replicas, as their controller would.
    fn name_endpoints(&self) -> Result<()> {
        let slice = |member: &Edgeward<'_>| endpoint_slice(member.admission().port());
        let kubectl = self.fixture.kubectl_in(NAMESPACE);
        let mut members = self.members.iter();
        members.try_for_each(|member| kubectl.create(&slice(member)).map(drop))
    }

    /// Creates pods while `event` happens. The connections to the replicas are cut all the time.
    pub fn under_load(&self, event: impl FnOnce(&Load) -> Result<()>) -> Result<Report> {
        let connections = Some(self.balancer.connections());
        under_load_reconnecting(self.fixture, self.nodes, self.pace, connections, event)
    }

    pub fn put(&self, secret: &Value) -> Result<()> {
        self.fixture.kubectl_in(NAMESPACE).apply(secret).map(drop)
    }

    /// Sets the CAs that API servers trust, in PEM.
    pub fn trust(&self, authorities: &str) -> Result<()> {
        let replace = |entry| {
            let path = format!("/webhooks/{entry}/clientConfig/caBundle");
            json!({"op": "replace", "path": path, "value": STANDARD.encode(authorities)})
        };
        self.installation.patch_webhook(ENTRIES.map(replace).collect())
    }

    /// The `caBundle` of all entries of the webhook configuration, in PEM.
    pub fn ca_bundle(&self) -> Result<String> {
        let configuration = self.fixture.kubectl.get("mutatingwebhookconfiguration", WEBHOOK)?;
        let mut bundles = ENTRIES.map(|entry| &configuration["webhooks"][entry]["clientConfig"]["caBundle"]);
        let first = bundles.next().context("no entry")?;
        ensure!(bundles.all(|other| other == first), "{configuration}");
        decode(first)
    }

    /// The certificate that each replica serves, trusted or not.
    pub fn shown(&self) -> Result<Vec<Vec<u8>>> {
        // Without open connections, each request shows what is served now.
        let client = reqwest::Client::builder().no_proxy().timeout(BOUND).tls_info(true);
        let client = client.pool_max_idle_per_host(0).tls_danger_accept_invalid_certs(true);
        let client = client.build()?;
        let shown = |member: &Edgeward<'_>| -> Result<Vec<u8>> {
            let asked = client.get(format!("https://{}", member.admission()));
            let answer = self.fixture.runtime.block_on(async { asked.send().await })?;
            let info = answer.extensions().get::<TlsInfo>();
            let certificate = info.and_then(TlsInfo::peer_certificate);
            Ok(certificate.context("no certificate")?.to_vec())
        };
        self.members.iter().map(shown).collect()
    }

    pub fn is_renewed(&self, before: &[Vec<u8>]) -> Result<()> {
        eventually("each replica serves another certificate", 2 * BOUND, || {
            let shown = self.shown()?;
            ensure!(shown.iter().zip(before).all(|(now, before)| now != before), "not yet");
            Ok(())
        })
    }

    /// Waits until each replica serves a certificate from one of these CAs (PEM).
    pub fn is_of(&self, authorities: &str) -> Result<()> {
        eventually("each replica serves what is trusted", 2 * BOUND, || {
            let shown = self.shown()?;
            shown.iter().try_for_each(|certificate| vouch(authorities, certificate))
        })
    }

    /// Waits until the API server has reconnected to each replica and created pods since. Prints the number of connections.
    pub fn is_used(&self, load: &Load, what: &str) -> Result<()> {
        let opened = || self.members.iter().map(|member| self.balancer.opened(member));
        let before: Vec<_> = opened().collect();
        let connections = eventually("the API server connects to each replica", BOUND, || {
            let more: Vec<_> = opened().zip(&before).map(|(now, before)| now - before).collect();
            ensure!(more.iter().all(|more| *more > 0), "{more:?}");
            Ok(more)
        })?;
        load.lasts(Duration::from_secs(1))?;
        println!(
            "load: {what}, {:.1} s: {connections:?} connections at once",
            load.time().as_secs_f64()
        );
        Ok(())
    }

    /// Fails if an API server did not trust a served certificate. Returns the number of its connections.
    pub(crate) fn was_trusted(&self) -> Result<u64> {
        let mut connections = 0;
        for member in &self.members {
            ensure!(member.count("edgeward_tls_handshake_failures_total", &[("cause", "rejected")])? == 0);
            connections += self.balancer.opened(member);
        }
        Ok(connections)
    }
}

/// Waits until `edgeward check` prints a certificate line of this level with these words.
pub fn finds(fixture: &Fixture<'_>, level: &str, words: &str) -> Result<()> {
    eventually(&format!("{level}: {words}"), BOUND, || {
        let said = fixture.command(&["check"])?;
        let mut lines = said.stdout.lines();
        let is_found =
            lines.any(|line| line.starts_with(level) && line.contains(" certificate ") && line.contains(words));
        ensure!(is_found, "{}{}", said.stdout, said.stderr);
        Ok(())
    })
}

/// Decodes base64 text, as in a Secret.
pub fn decode(text: &Value) -> Result<String> {
    let text = text.as_str().context("nothing is there")?;
    Ok(String::from_utf8(STANDARD.decode(text)?)?)
}

/// Fails unless one of these CAs (PEM) validates the certificate for the Service.
fn vouch(authorities: &str, certificate: &[u8]) -> Result<()> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority?)?;
    }
    let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build()?;
    let certificate = CertificateDer::from(certificate);
    verifier.verify_server_cert(&certificate, &[], &ServerName::try_from(NAME)?, &[], UnixTime::now())?;
    Ok(())
}

/// Removes the EndpointSlice that names this replica.
pub fn remove_endpoint(fixture: &Fixture<'_>, replica: &Edgeward<'_>) -> Result<()> {
    let name = format!("edgeward-{}", replica.admission().port());
    let kubectl = fixture.kubectl_in(NAMESPACE);
    kubectl.run(&["delete", "endpointslice", &name], "").map(drop)
}

/// An EndpointSlice of edgeward's Service that names one local replica.
pub fn endpoint_slice(port: u16) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": format!("edgeward-{port}"), "labels": {"kubernetes.io/service-name": "edgeward"}},
        // The API server refuses loopback addresses in an EndpointSlice of type IPv4.
        "addressType": "FQDN",
        "ports": [{"name": "webhook", "port": port}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
    })
}

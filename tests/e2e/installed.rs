//! edgeward as it is installed, several replicas of it behind a balancer: what they serve, and what is trusted, changes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward::inspect::installation::Bundle;
use edgeward::tls::{Chain, shown};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::balancer::Balancer;
use crate::edgeward::Edgeward;
use crate::install::{Installation, WEBHOOK};
use crate::load::{Load, Pace, Report, under_load_connecting_anew};
use crate::mount::Mount;
use crate::patience::{BOUND, eventually};
use crate::pki::{Authority, Pair};
use crate::rights::NAMESPACE;
use crate::scene::{Revoked, Scene};
use crate::stage::Stage;
use crate::workloads;

/// What the API server asks for.
pub(crate) const NAME: &str = "edgeward.edgeward-system.svc";

/// The Secret that the Deployment mounts.
pub(crate) const SECRET: &str = "edgeward-tls";

/// What is installed, and goes with this.
pub(crate) struct Installed<'s, 'run> {
    scene: &'s Scene<'run>,
    stage: &'s Stage<'run>,
    pace: Pace,
    pub(crate) members: Vec<Edgeward<'run>>,
    balancer: Balancer<'run>,
    _mounts: Vec<Mount>,
    installation: Installation<'s, 'run>,
    _revoked: Revoked<'run>,
}

/// What these folders render to, without the definitions of our custom resources: other trials have those.
pub(crate) fn render(scene: &Scene<'_>, folders: &[&str]) -> Result<Vec<Value>> {
    let mut objects = vec![];
    for folder in folders {
        let folder = format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"));
        objects.extend(scene.kubectl.render(&folder)?);
    }
    objects.retain(|object| object["kind"] != "CustomResourceDefinition");
    Ok(objects)
}

/// The Secret of these files.
pub(crate) fn secret(pair: &Pair, authority: &Authority) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "data": {
            "tls.crt": STANDARD.encode(&pair.certificate), "tls.key": STANDARD.encode(&pair.key),
            "ca.crt": STANDARD.encode(&authority.certificate),
        },
    })
}

impl<'s, 'run> Installed<'s, 'run> {
    /// With a certificate in files, of this authority.
    pub(crate) fn with_files(
        scene: &'s Scene<'run>,
        stage: &'s Stage<'run>,
        pace: Pace,
        replicas: usize,
        authority: &Authority,
    ) -> Result<Self> {
        let mut objects = render(scene, &["deploy/base", "webhook/base"])?;
        objects.push(secret(&authority.server(&[NAME])?, authority));
        let entries = objects
            .iter_mut()
            .filter_map(|object| object["webhooks"].as_array_mut());
        for entry in entries.flatten() {
            entry["clientConfig"]["caBundle"] = json!(STANDARD.encode(&authority.certificate));
        }
        Self::open(scene, stage, pace, replicas, objects, &[])
    }

    /// These objects, with the sites of this stage, and so many replicas with more arguments than theirs. Returns when the API
    /// server has them decide.
    pub(crate) fn open(
        scene: &'s Scene<'run>,
        stage: &'s Stage<'run>,
        pace: Pace,
        replicas: usize,
        mut objects: Vec<Value>,
        more: &[&str],
    ) -> Result<Self> {
        let mut config = stage.config();
        config["replicas"] = json!(replicas);
        for object in &mut objects {
            match object["kind"].as_str() {
                Some("ConfigMap") => object["data"] = json!({"config.yaml": config.to_string()}),
                // From the start, for it would keep the endpoints that it had as another.
                Some("Service") => {
                    object["spec"]["type"] = json!("ExternalName");
                    object["spec"]["externalName"] = json!("localhost");
                }
                _ => {}
            }
        }
        let _revoked = scene.revoke()?;
        let installation = Installation::apply_objects(scene, objects)?;
        let balancer = Balancer::open(scene)?;
        let (mut members, mut _mounts) = (vec![], vec![]);
        for i in 0..replicas {
            let dir = scene.dir.join(format!("replica-{i}"));
            let replica = installation.replica(&dir, more)?;
            balancer.add(&replica.edgeward)?;
            members.push(replica.edgeward);
            _mounts.extend(replica.mount);
        }
        let installed = Self {
            scene,
            stage,
            pace,
            members,
            balancer,
            _mounts,
            installation,
            _revoked,
        };
        installed.name_endpoints()?;
        installed.installation.lead_to(installed.balancer.port())?;
        if pace.is_patient() {
            installed.installation.be_patient()?;
        }
        let probe = workloads::pod("probe", workloads::latency());
        eventually("the API server calls the webhook", BOUND, || {
            let answered = scene.kubectl.dry_run(&probe)?["metadata"]["annotations"].take();
            let decision = &answered["scheduling.example.io/decision"];
            ensure!(decision.is_string(), "{answered}");
            Ok(())
        })?;
        Ok(installed)
    }

    /// Has the EndpointSlices of the Service name the replicas, as they would.
    fn name_endpoints(&self) -> Result<()> {
        let slice = |member: &Edgeward<'_>| endpoint_slice(member.admission().port());
        let kubectl = self.scene.kubectl_in(NAMESPACE);
        let mut members = self.members.iter();
        members.try_for_each(|member| kubectl.create(&slice(member)).map(drop))
    }

    /// Creates pods while `event` happens, the connections to the replicas cut all the time.
    pub(crate) fn under_load(&self, event: impl FnOnce(&Load) -> Result<()>) -> Result<Report> {
        under_load_connecting_anew(self.scene, self.stage, self.pace, &self.balancer, event)
    }

    /// Puts another pair where the replicas have theirs from.
    pub(crate) fn put(&self, secret: &Value) -> Result<()> {
        self.scene.kubectl_in(NAMESPACE).apply(secret).map(drop)
    }

    /// Has API servers trust these authorities, PEM, and no other.
    pub(crate) fn trust(&self, authorities: &str) -> Result<()> {
        let replace = |entry| {
            let path = format!("/webhooks/{entry}/clientConfig/caBundle");
            json!({"op": "replace", "path": path, "value": STANDARD.encode(authorities)})
        };
        self.installation.patch_webhook(json!([replace(0), replace(1)]))
    }

    /// What both entries of the webhook configuration have, PEM.
    pub(crate) fn ca_bundle(&self) -> Result<String> {
        let configuration = self.scene.kubectl.get("mutatingwebhookconfiguration", WEBHOOK)?;
        let [first, second] = [0, 1].map(|entry: usize| &configuration["webhooks"][entry]["clientConfig"]["caBundle"]);
        ensure!(first == second, "{first} is not {second}");
        decode(first)
    }

    /// What each replica shows whoever connects.
    pub(crate) fn shown(&self) -> Result<Vec<Chain>> {
        let shown = |member: &Edgeward<'_>| {
            let address = member.admission().to_string();
            let chain = self.scene.runtime.block_on(shown(&address, NAME));
            chain.map_err(|words| anyhow::anyhow!("{words}"))
        };
        self.members.iter().map(shown).collect()
    }

    /// Waits until each shows another than before.
    pub(crate) fn is_renewed(&self, before: &[Chain]) -> Result<()> {
        eventually("each replica serves another certificate", 2 * BOUND, || {
            let shown = self.shown()?;
            ensure!(shown.iter().zip(before).all(|(now, before)| now != before), "not yet");
            Ok(())
        })
    }

    /// Waits until each shows a certificate that these authorities, PEM, vouch for.
    pub(crate) fn is_of(&self, authorities: &str) -> Result<()> {
        eventually("each replica serves what is trusted", 2 * BOUND, || {
            let bundle = Bundle::read(authorities.as_bytes(), Timestamp::now());
            let bundle = bundle.map_err(|words| anyhow::anyhow!("caBundle {words}"))?;
            let shown = self.shown()?;
            ensure!(shown.iter().all(|chain| bundle.vouches(chain, NAME).is_ok()), "not yet");
            Ok(())
        })
    }

    /// Waits until the API server has connected to each replica anew and pods are created over that. Says how often it did.
    pub(crate) fn is_used(&self, load: &Load, what: &str) -> Result<()> {
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

    /// Fails if an API server did not trust what it was shown. Returns how often it connected.
    pub(crate) fn was_trusted(&self) -> Result<u64> {
        let mut connections = 0;
        for member in &self.members {
            let rejected = member.count("edgeward_tls_handshake_failures_total", &[("cause", "rejected")])?;
            ensure!(rejected == 0, "{rejected}");
            connections += self.balancer.opened(member);
        }
        Ok(connections)
    }
}

/// Of base64, as objects of the API have it.
pub(crate) fn decode(text: &Value) -> Result<String> {
    let text = text.as_str().context("nothing is there")?;
    Ok(String::from_utf8(STANDARD.decode(text)?)?)
}

/// An EndpointSlice of edgeward's Service that names one replica of this machine.
pub(crate) fn endpoint_slice(port: u16) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": format!("edgeward-{port}"), "labels": {"kubernetes.io/service-name": "edgeward"}},
        // Where it is an address, loopback is refused.
        "addressType": "FQDN",
        "ports": [{"name": "webhook", "port": port}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
    })
}

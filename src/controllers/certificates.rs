//! Manages the webhook's own certificates. A Secret holds the CA and the serving certificate that every replica uses.
//! The CA is also written to `caBundle` of the MutatingWebhookConfiguration. [`rotation`] chooses the next step; this
//! module carries it out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_kube::units::Now;
use futures::{StreamExt as _, stream};
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Context;
use super::pod_patch::words;
use crate::inspect::installation::endpoints;
use crate::platform::token_bucket::TokenBucket;
use crate::tls::rotation::{Certificate, Der, Lives, Published, Replica, RotationState, Step, ders};
use crate::tls::{
    Authority, Contents, Pem, Service, Stored, authorities_in, rotation, served, stored, with_authorities,
};
use crate::watch::watcher;

/// The shortest pause between two steps.
const PAUSE: Duration = Duration::from_millis(500);

/// How many writes may follow each other at that pace. After that, one write is allowed per settling time. A CA
/// rotation takes four writes.
const WRITES: u64 = 5;

/// Timeout of one step.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The largest accepted difference between our clock and the API server's.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// How many replicas are inspected concurrently.
const AT_ONCE: usize = 16;

/// Field manager of our writes.
const WRITER: &str = "edgeward";

/// Creates, publishes and rotates the certificates.
pub struct Certificates {
    /// Its client is of the cluster whose API servers call the webhook.
    pub context: Context,
    /// Service of the webhook. The certificates are issued for its name, and its EndpointSlices list the replicas.
    pub service: Service,
    /// Name of the Secret, in the namespace of the Service.
    pub secret: String,
    /// Name of the MutatingWebhookConfiguration.
    pub webhook: String,
    /// Lifetimes of the certificates.
    pub lives: Lives,
}

/// State kept between steps. A replica that becomes leader again starts without it, and so waits for the settling
/// time again.
struct State {
    published: Published,
    /// Limits writes while another writer keeps changing the same object.
    writes: TokenBucket,
    /// Reason logged last for not taking the next step, so that it is not logged again.
    hindrance: String,
}

impl State {
    /// Logs that the next step is not taken, and why, unless this was logged last.
    fn hindered(&mut self, error: String) {
        if self.hindrance != error {
            tracing::warn!(error, "the certificates are not as they should be; retrying");
            self.hindrance = error;
        }
    }
}

impl Certificates {
    /// Takes steps while this replica holds the Lease. `secret` signals a changed Secret. Returns only when its
    /// sender is gone.
    pub async fn run(self, mut secret: watch::Receiver<Option<Arc<Contents>>>) {
        let leadership = &self.context.leadership;
        while leadership.during(self.lead(&mut secret)).await.is_none() {}
    }

    /// Takes a step when the Secret or the webhook configuration changes, and once per period.
    async fn lead(&self, secret: &mut watch::Receiver<Option<Arc<Contents>>>) {
        let configurations = Api::<PartialObjectMeta<MutatingWebhookConfiguration>>::all(self.context.client.clone());
        let kind = "mutatingwebhookconfigurations";
        let metrics = Arc::clone(&self.context.metrics);
        let mut webhook = watcher::object(kind, configurations, &self.webhook, metrics);
        let mut state = State {
            published: Published::default(),
            writes: TokenBucket::new(WRITES, self.lives.settle()),
            hindrance: String::new(),
        };
        let period = Duration::from_micros(self.lives.period().0);
        loop {
            match timeout(TIMEOUT, self.advance(&mut state)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => state.hindered(format!("{error:#}")),
                Err(_) => state.hindered(format!("no answer within {} s", TIMEOUT.as_secs())),
            }
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                changed = secret.changed() => if changed.is_err() { return },
                Some(_) = webhook.next() => {}
            }
        }
    }

    fn configurations(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.context.client.clone())
    }

    /// Reads all objects and performs the next step. The watches notice what it writes.
    async fn advance(&self, state: &mut State) -> anyhow::Result<()> {
        // The reading order matters; see `RotationState::bundles`.
        let configuration = self.configurations().get_opt(&self.webhook).await;
        let configuration = configuration.map_err(cannot("get the MutatingWebhookConfiguration", &self.webhook))?;
        let secrets = Api::<Secret>::namespaced(self.context.client.clone(), &self.service.namespace);
        let secret = secrets.get_opt(&self.secret).await;
        let secret = secret.map_err(cannot("get the Secret", &self.secret))?;

        let now = self.context.clock.now();
        let mut contents = secret.clone().map(stored::contents).unwrap_or_default();
        let stored = Stored::read(&contents, &self.service, now.wall);
        let bundles = ca_bundles(configuration.as_ref()).map(|bundle| authorities_in(bundle, &self.service));
        let bundles: Vec<_> = bundles.collect();
        let (in_short, faults) = (stored.in_short(), stored.faults());
        state.published.observe(&bundles, now.moment);
        let mut rotation = RotationState {
            stored: &in_short,
            bundles: &bundles,
            settled: &state.published.settled(self.lives.settle(), now.moment),
            replicas: None,
            wall: now.wall,
        };
        let mut step = rotation.next_step();
        let replicas;
        if step == Step::InspectReplicas {
            replicas = self.inspect_replicas(&in_short, &bundles, now).await?;
            rotation.replicas = Some(&replicas);
            step = rotation.next_step();
        }
        if !self.context.leadership.is_held() {
            return Ok(());
        }

        let is_read_only = matches!(step, Step::Wait | Step::InspectReplicas | Step::Await(_));
        if !is_read_only && !state.writes.take(now.moment) {
            bail!("another writer keeps changing the certificates; edgeward now writes them less often");
        }
        let authority = || self.authority(now);
        let (done, made) = match step {
            Step::Wait | Step::InspectReplicas => {
                state.hindrance.clear();
                return Ok(());
            }
            Step::Await(replicas) => bail!(
                "an old CA stays in caBundle until all our replicas are seen with a certificate of the new one: {replicas:?}"
            ),
            Step::Bundles(wanted) => {
                let Some(configuration) = &configuration else {
                    return Ok(());
                };
                self.write_bundles(configuration, &wanted).await?;
                tracing::info!(webhook = self.webhook, cas = ?wanted.iter().map(BTreeSet::len).collect::<Vec<_>>(), "wrote caBundle");
                return Ok(());
            }
            Step::NewAuthority => ("made a CA", stored::put_authority(&mut contents, authority()?)),
            Step::NewNext => (
                "made the next CA",
                stored::put(&mut contents, stored::NEXT, authority()?),
            ),
            Step::Promote => {
                let leaf = self.leaf(stored.next.as_ref(), now)?;
                let done = "switched to the next CA and issued a certificate from it";
                (done, stored::promote(&mut contents, leaf))
            }
            Step::NewLeaf => {
                let leaf = self.leaf(stored.authority.as_ref(), now)?;
                ("made a certificate", stored::put(&mut contents, stored::LEAF, leaf))
            }
        };
        if !faults.is_empty() {
            let secret = &self.secret;
            tracing::warn!(
                secret,
                error = faults,
                "the contents of the Secret cannot be used; creating them again"
            );
        }
        // Without this check, an unusable entry would be written again and again.
        let unread = Stored::read(&contents, &self.service, now.wall).faults;
        if let Some((key, fault)) = unread.iter().find(|(key, _)| *key == made) {
            bail!("{key} was made and cannot be used: {fault}");
        }
        self.write_secret(&secrets, secret, contents).await?;
        tracing::info!(secret = self.secret, "{done}");
        Ok(())
    }

    /// Fails if our clock differs too much from the API server's. With a wrong clock, a new certificate may not be
    /// valid for other clients. A certificate that looks expired here may also still be valid elsewhere.
    fn compare_clocks(&self) -> anyhow::Result<()> {
        // Measured from the API server's answers to the reads of this step.
        let ahead = SignedDuration::from_secs(self.context.metrics.clock_difference.get());
        let side = if ahead.is_negative() { "behind" } else { "ahead of" };
        ensure!(
            ahead.abs() <= SKEW,
            "our clock is {} min {side} the API server's: a certificate made now may not be valid for others",
            ahead.abs().as_mins()
        );
        Ok(())
    }

    fn authority(&self, now: Now) -> anyhow::Result<Pem> {
        let life = SignedDuration::from_micros(self.lives.authority.signed());
        Authority::make(&self.service, now.wall, life).context("a CA cannot be made")
    }

    fn leaf(&self, of: Option<&Authority>, now: Now) -> anyhow::Result<Pem> {
        let life = SignedDuration::from_micros(self.lives.leaf.signed());
        let authority = of.context("there is no CA")?;
        let leaf = authority.issue(&[self.service.dns_name()], now.wall, life);
        leaf.context("a certificate cannot be made")
    }

    /// Inspects every endpoint of our Service, because API servers may connect to any of them.
    async fn inspect_replicas(
        &self,
        stored: &rotation::Stored,
        bundles: &[Vec<Certificate>],
        now: Now,
    ) -> anyhow::Result<Vec<Replica>> {
        let slices = Api::<EndpointSlice>::namespaced(self.context.client.clone(), &self.service.namespace);
        let ours = ListParams::default().labels(&format!("kubernetes.io/service-name={}", self.service.name));
        let slices = slices.list(&ours).await;
        let slices = slices.map_err(cannot("list EndpointSlices of", &self.service.name))?;
        let authorities = bundles.iter().flatten().chain(&stored.authority).chain(&stored.next);
        let (authorities, name) = (Vec::from_iter(ders(authorities)), self.service.dns_name());
        let look = async |(address, is_ready): (String, bool)| Replica {
            serves: served(&address, &name, &authorities, now.wall).await,
            address,
            is_ready,
        };
        let endpoints = endpoints(&slices.items);
        Ok(stream::iter(endpoints).map(look).buffered(AT_ONCE).collect().await)
    }

    /// Writes the bundles into the configuration. The API server refuses this if the configuration has changed since
    /// it was read.
    async fn write_bundles(
        &self,
        configuration: &MutatingWebhookConfiguration,
        wanted: &[BTreeSet<Der>],
    ) -> anyhow::Result<()> {
        self.compare_clocks()?;
        let version = &configuration.metadata.resource_version;
        let mut operations = vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
        for (i, (found, wanted)) in ca_bundles(Some(configuration)).zip(wanted).enumerate() {
            let bundle = with_authorities(found, wanted, &self.service);
            if bundle != found {
                let path = format!("/webhooks/{i}/clientConfig/caBundle");
                operations.push(json!({"op": "add", "path": path, "value": STANDARD.encode(bundle)}));
            }
        }
        let patch = serde_json::from_value(operations.into()).context("the patch is invalid")?;
        let patched = self
            .configurations()
            .patch(&self.webhook, &PatchParams::apply(WRITER), &Patch::Json::<()>(patch))
            .await;
        patched.map_err(cannot("patch the MutatingWebhookConfiguration", &self.webhook))?;
        Ok(())
    }

    /// Writes the Secret. The API server refuses this if the Secret has changed since it was read.
    async fn write_secret(&self, secrets: &Api<Secret>, old: Option<Secret>, contents: Contents) -> anyhow::Result<()> {
        self.compare_clocks()?;
        let data = contents.into_iter().map(|(key, value)| (key, ByteString(value)));
        let data: Option<BTreeMap<_, _>> = Some(data.collect());
        let params = PostParams {
            field_manager: Some(WRITER.to_owned()),
            ..PostParams::default()
        };
        let written = match old {
            Some(old) => secrets.replace(&self.secret, &params, &Secret { data, ..old }).await,
            None => {
                let labels = json!({"app.kubernetes.io/name": "edgeward"});
                let secret = json!({"metadata": {"name": self.secret, "labels": labels}, "data": data});
                let secret = serde_json::from_value(secret)?;
                secrets.create(&params, &secret).await
            }
        };
        written.map_err(cannot("write the Secret", &self.secret))?;
        Ok(())
    }
}

fn cannot(doing: &str, name: &str) -> impl FnOnce(kube::Error) -> anyhow::Error {
    move |error| anyhow!("cannot {doing} {name}: {}", words(error))
}

/// The `caBundle` of each webhook entry, or an empty slice for an entry without one.
fn ca_bundles(configuration: Option<&MutatingWebhookConfiguration>) -> impl Iterator<Item = &[u8]> {
    let entries = configuration.and_then(|configuration| configuration.webhooks.as_ref());
    entries.into_iter().flatten().map(|entry| {
        let bundle = entry.client_config.ca_bundle.as_ref();
        bundle.map_or(&[][..], |bundle| &bundle.0)
    })
}

#[cfg(test)]
mod tests;

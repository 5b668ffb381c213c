//! Certificates of our own: a Secret with an authority and the leaf that every replica serves, and the authority in the
//! `caBundle` of the MutatingWebhookConfiguration. [`rotation`] says what is to be done next; this does it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_core::units::Now;
use futures::StreamExt as _;
use futures::stream;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use super::lease::{Leadership, Term};
use super::pod_patch::words;
use crate::inspect::installation::host_port;
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::platform::token_bucket::TokenBucket;
use crate::sources::watcher;
use crate::tls::rotation::{Certificate, Der, Lives, Published, Replica, RotationState, Step, ders};
use crate::tls::{Authority, Contents, Pem, Service, Stored, bundle, rotation, served, stored};

/// The shortest pause between two steps.
const PAUSE: Duration = Duration::from_millis(500);

/// How many writes may follow each other at that pace, before there is one in the time to settle. A CA is followed with four.
const WRITES: u64 = 5;

/// How long one step may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How far our clock may be from the API server's.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// How many replicas are inspected at once.
const AT_ONCE: usize = 16;

/// What is said when writes are slowed down.
const CONTESTED: &str =
    "the certificates are written again and again: somebody else writes them as well; from now on more slowly";

/// Name of the port in EndpointSlices, as in `deploy/base`.
const PORT: &str = "webhook";

/// Who writes, as the API server notes it.
const WRITER: &str = "edgeward";

/// Keeps the certificates.
pub struct Certificates {
    /// Of the cluster whose API servers call us.
    pub client: Client,
    /// Our Service: who is to be trusted, and whose EndpointSlices name the replicas.
    pub service: Service,
    /// Name of the Secret, in the namespace of the Service.
    pub secret: String,
    /// Name of the MutatingWebhookConfiguration.
    pub webhook: String,
    /// How long certificates live.
    pub lives: Lives,
    /// The process's clock.
    pub clock: Clock,
    /// Where it is measured how far that is from the API server's.
    pub metrics: Arc<Metrics>,
}

/// What is known from one step to the next. Whoever leads again knows nothing, and waits longer for it.
struct Known {
    published: Published,
    /// What may be written while somebody else wants the same object otherwise.
    writes: TokenBucket,
    /// What was wrong with the Secret.
    faults: Once,
    /// What kept the next step from being taken.
    hindrance: Once,
}

/// What was said last, for it is said once.
#[derive(Default)]
struct Once(String);

impl Once {
    fn say(&mut self, words: String, tell: impl FnOnce(&str)) {
        if self.0 != words {
            tell(&words);
            self.0 = words;
        }
    }
}

/// What became of a step.
enum Outcome {
    /// Something was written.
    Wrote,
    /// Something has to come first.
    Waits,
    /// There is nothing to do.
    Rests,
}

impl Certificates {
    /// Takes step by step while the Lease is ours, for ever. `secret` tells that the Secret is another.
    pub async fn run(self, leadership: Leadership, mut secret: watch::Receiver<Option<Arc<Contents>>>) {
        loop {
            let term = leadership.acquired().await;
            tokio::select! {
                () = self.lead(&term, &mut secret) => return,
                () = term.over() => {}
            }
        }
    }

    /// Takes a step when the Secret or the webhook configuration is another, and now and then anyway.
    async fn lead(&self, term: &Term, secret: &mut watch::Receiver<Option<Arc<Contents>>>) {
        let configurations = Api::<PartialObjectMeta<MutatingWebhookConfiguration>>::all(self.client.clone());
        let mut webhook = watcher::object(configurations, &self.webhook);
        let mut known = Known {
            published: Published::default(),
            writes: TokenBucket::new(WRITES, self.lives.settle()),
            faults: Once::default(),
            hindrance: Once::default(),
        };
        let period = Duration::from_micros(self.lives.period().0);
        loop {
            let stepped = timeout(TIMEOUT, self.step(&mut known, term)).await;
            match stepped.unwrap_or_else(|_| Err(anyhow!("no answer within {} s", TIMEOUT.as_secs()))) {
                Ok(Outcome::Wrote) => {
                    while !known.writes.take(self.clock.moment()) {
                        known
                            .hindrance
                            .say(CONTESTED.to_owned(), |contested| tracing::warn!("{contested}"));
                        tokio::time::sleep(PAUSE).await;
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Ok(Outcome::Waits) => {}
                Ok(Outcome::Rests) => known.hindrance = Once::default(),
                Err(error) => known.hindrance.say(format!("{error:#}"), |error| {
                    tracing::warn!(error, "the certificates are not as they should be; tried again");
                }),
            }
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                changed = secret.changed() => if changed.is_err() { return },
                Some(changed) = webhook.next() => if let Err(error) = changed {
                    let kind = "mutatingwebhookconfigurations";
                    watcher::count_and_log(kind, error, &mut String::new(), &self.metrics);
                },
            }
        }
    }

    fn configurations(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    /// Looks at everything and does what is to be done next.
    async fn step(&self, known: &mut Known, term: &Term) -> anyhow::Result<Outcome> {
        // In this order; see `RotationState::bundles`.
        let configuration = self.configurations().get_opt(&self.webhook).await;
        let configuration = configuration
            .map_err(|error| self.failure("get the MutatingWebhookConfiguration", &self.webhook, error))?;
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.service.namespace);
        let secret = secrets.get_opt(&self.secret).await;
        let secret = secret.map_err(|error| self.failure("get the Secret", &self.secret, error))?;

        let now = self.clock.now();
        let mut contents = secret.clone().map(stored::contents).unwrap_or_default();
        let stored = Stored::read(&contents, &self.service, now.wall);
        if let Some((key, fault)) = stored.early() {
            bail!(
                "{key} of the Secret {}: {fault}; nothing is made again for that",
                self.secret
            );
        }
        known.faults.say(stored.faults(), |error| {
            if !error.is_empty() {
                tracing::warn!(
                    secret = self.secret,
                    error,
                    "what is in the Secret cannot be used, and is made again"
                );
            }
        });
        let bundles = ca_bundles(configuration.as_ref()).map(|bundle| bundle::authorities(bundle, &self.service));
        let bundles: Vec<_> = bundles.collect();
        let in_short = stored.in_short();
        known.published.observe(&in_short, &bundles, now.moment);
        let mut state = RotationState {
            stored: &in_short,
            bundles: &bundles,
            settled: &known.published.settled(self.lives.settle(), now.moment),
            abandoned: &known.published.abandoned(self.lives.settle(), now.moment),
            replicas: None,
            wall: now.wall,
        };
        let mut step = state.next_step();
        let replicas;
        if step == Step::InspectReplicas {
            replicas = self.inspect_replicas(&in_short, &bundles, now).await?;
            state.replicas = Some(&replicas);
            step = state.next_step();
        }
        if !term.is_held() {
            return Ok(Outcome::Waits);
        }

        let authority = || self.authority(now);
        let (done, made) = match step {
            Step::Wait | Step::InspectReplicas => return Ok(Outcome::Rests),
            Step::Await(replicas) => {
                known.hindrance.say(format!("{replicas:?}"), |awaited| {
                    tracing::warn!(
                        awaited,
                        "an old CA stays in caBundle until all our replicas are seen with a certificate of the new one"
                    );
                });
                return Ok(Outcome::Waits);
            }
            Step::Bundles(wanted) => {
                let Some(configuration) = &configuration else {
                    return Ok(Outcome::Rests);
                };
                self.write_bundles(configuration, &wanted).await?;
                tracing::info!(webhook = self.webhook, cas = ?wanted.iter().map(BTreeSet::len).collect::<Vec<_>>(), "wrote caBundle");
                return Ok(Outcome::Wrote);
            }
            Step::NewAuthority => ("made a CA", stored::put_authority(&mut contents, authority()?)),
            Step::NewNext => (
                "made the next CA",
                stored::put(&mut contents, stored::NEXT, authority()?),
            ),
            Step::Promote => {
                let leaf = self.leaf(stored.next.as_ref(), now)?;
                let done = "took over the next CA, and made a certificate of it";
                (done, stored::promote(&mut contents, leaf))
            }
            Step::NewLeaf => {
                let leaf = self.leaf(stored.authority.as_ref(), now)?;
                ("made a certificate", stored::put(&mut contents, stored::LEAF, leaf))
            }
        };
        // Else it would be made again and again.
        let unread = Stored::read(&contents, &self.service, now.wall).faults;
        if let Some((key, fault)) = unread.iter().find(|(key, _)| *key == made) {
            bail!("{key} was made and cannot be used: {fault}");
        }
        self.write_secret(&secrets, secret, contents).await?;
        tracing::info!(secret = self.secret, "{done}");
        Ok(Outcome::Wrote)
    }

    /// What we make by a wrong clock may be valid for nobody else, and what has expired by it may not have for others.
    fn compare_clocks(&self) -> anyhow::Result<()> {
        // Of the answers to what was read for this step.
        let ahead = SignedDuration::from_secs(self.metrics.clock_difference.get());
        let side = if ahead.is_negative() { "behind" } else { "ahead of" };
        ensure!(
            ahead.abs() <= SKEW,
            "our clock is {} min {side} the API server's: what is made by it may be valid for nobody else",
            ahead.abs().as_mins()
        );
        Ok(())
    }

    fn failure(&self, doing: &str, name: &str, error: kube::Error) -> anyhow::Error {
        anyhow::anyhow!("cannot {doing} {name}: {}", words(error))
    }

    fn authority(&self, now: Now) -> anyhow::Result<Pem> {
        let life = rotation::span(self.lives.authority);
        Authority::make(&self.service, now.wall, life).context("a CA cannot be made")
    }

    fn leaf(&self, of: Option<&Authority>, now: Now) -> anyhow::Result<Pem> {
        let life = rotation::span(self.lives.leaf);
        let authority = of.context("there is no CA")?;
        let leaf = authority.issue(&[self.service.dns_name()], now.wall, life);
        leaf.context("a certificate cannot be made")
    }

    /// Every endpoint of our Service, as API servers may be led to it.
    async fn inspect_replicas(
        &self,
        stored: &rotation::Stored,
        bundles: &[Vec<Certificate>],
        now: Now,
    ) -> anyhow::Result<Vec<Replica>> {
        let slices = Api::<EndpointSlice>::namespaced(self.client.clone(), &self.service.namespace);
        let ours = ListParams::default().labels(&format!("kubernetes.io/service-name={}", self.service.name));
        let slices = slices.list(&ours).await;
        let slices = slices.map_err(|error| self.failure("list EndpointSlices of", &self.service.name, error))?;
        let known = bundles.iter().flatten().chain(&stored.authority).chain(&stored.next);
        let (known, name) = (Vec::from_iter(ders(known)), self.service.dns_name());
        let look = async |(address, is_ready): (String, bool)| Replica {
            serves: served(&address, &name, &known, now.wall).await,
            address,
            is_ready,
        };
        let endpoints = endpoints(&slices.items);
        Ok(stream::iter(endpoints).map(look).buffered(AT_ONCE).collect().await)
    }

    /// Refused if the configuration is another by now.
    async fn write_bundles(
        &self,
        configuration: &MutatingWebhookConfiguration,
        wanted: &[BTreeSet<Der>],
    ) -> anyhow::Result<()> {
        self.compare_clocks()?;
        let version = &configuration.metadata.resource_version;
        let mut operations = vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
        for (i, (found, wanted)) in ca_bundles(Some(configuration)).zip(wanted).enumerate() {
            let bundle = bundle::with_authorities(found, wanted, &self.service);
            if bundle != found {
                let path = format!("/webhooks/{i}/clientConfig/caBundle");
                operations.push(json!({"op": "add", "path": path, "value": STANDARD.encode(bundle)}));
            }
        }
        let patch = serde_json::from_value(operations.into()).context("a patch that is none")?;
        let patched = self
            .configurations()
            .patch(&self.webhook, &PatchParams::apply(WRITER), &Patch::Json::<()>(patch))
            .await;
        patched
            .map(drop)
            .map_err(|error| self.failure("patch the MutatingWebhookConfiguration", &self.webhook, error))
    }

    /// Refused if the Secret is another by now.
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
        written
            .map(drop)
            .map_err(|error| self.failure("write the Secret", &self.secret, error))
    }
}

/// The bundle of each entry; empty where there is none.
fn ca_bundles(configuration: Option<&MutatingWebhookConfiguration>) -> impl Iterator<Item = &[u8]> {
    let entries = configuration.and_then(|configuration| configuration.webhooks.as_ref());
    entries.into_iter().flatten().map(|entry| {
        let bundle = entry.client_config.ca_bundle.as_ref();
        bundle.map_or(&[][..], |bundle| &bundle.0)
    })
}

/// `address:port` of every endpoint, and whether it is ready, as it is where that is not known. One may be in two slices
/// while it moves.
fn endpoints(slices: &[EndpointSlice]) -> BTreeMap<String, bool> {
    let mut endpoints = BTreeMap::new();
    for slice in slices {
        let ports = || slice.ports.iter().flatten();
        let named = ports().find(|port| port.name.as_deref() == Some(PORT));
        // Another Service than that of our manifests.
        let only = || ports().next().filter(|_| ports().count() == 1);
        let Some(port) = named.or_else(only).and_then(|port| port.port) else {
            continue;
        };
        for endpoint in &slice.endpoints {
            let conditions = endpoint.conditions.as_ref();
            let is_ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
            for address in &endpoint.addresses {
                *endpoints.entry(host_port(address, port)).or_default() |= is_ready;
            }
        }
    }
    endpoints
}

#[cfg(test)]
mod tests;

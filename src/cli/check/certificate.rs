//! Checks whether the API server would trust edgeward. Compares the certificates that replicas serve with `caBundle`.

use std::cmp::min;

use futures::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Service as ServiceObject;

use super::Facts;
use super::finding::Finding;
use super::leader::see_replicas;
use super::webhook::apply;
use crate::inspect::Connection;
use crate::inspect::installation::Webhook;
use crate::tls::{Bundle, Chain, Service, shown};
use crate::watch::namespaced_name::NamespacedName;

const AREA: &str = "certificate";

/// A certificate that ends within this time should have been renewed. For a short-lived one, the last quarter of its
/// life counts instead: issuers renew when a third is left.
const LATE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// What to do where nothing maintains bundle and certificate.
const BY_HAND: &str = "docs/guide/troubleshoot.md#certificate-errors has the cure for each error";

/// Number of replicas that are contacted at once.
const AT_ONCE: usize = 32;

/// The server behind a webhook.
#[derive(Clone, Default)]
pub(super) struct Behind {
    /// The name that the certificate must have.
    pub(super) name: String,
    /// The certificates that replicas serve.
    pub(super) found: Vec<Found>,
    /// The Secret that edgeward manages itself, if there is one.
    pub(super) self_managed: Option<NamespacedName>,
}

/// The certificate at an address.
#[derive(Clone)]
pub(super) struct Found {
    address: String,
    /// The chain, or why there is none.
    chain: Result<Chain, String>,
}

impl Found {
    /// Checks whether the API server trusts this certificate for `name`.
    fn judge(&self, entry: &str, name: &str, bundle: &Bundle, fix: &str, now: Timestamp) -> Finding {
        let address = &self.address;
        let chain = match &self.chain {
            Ok(chain) => chain,
            Err(words) => {
                // The API server may get another answer.
                let text =
                    format!("{address} cannot be looked at from here, so nothing is known of what it serves: {words}");
                return Finding::warning(AREA, text).fix("edgeward review --live -n NAMESPACE -f POD.yaml");
            }
        };
        let serving = match bundle.vouches(chain, name) {
            Ok(serving) => serving,
            Err(error) => {
                let text = format!(
                    "{entry}: the API server does not trust the certificate at {address} for {name}, because it {error}"
                );
                return Finding::fault(AREA, text).fix(fix);
            }
        };
        let end = serving.until;
        let text =
            format!("{entry}: the certificate at {address} is for {name}, of an authority in caBundle, until {end}");
        if end.duration_since(now) >= min(LATE, serving.life / 4) {
            return Finding::ok(AREA, text);
        }
        Finding::warning(AREA, text).fix(fix)
    }
}

/// Contacts the server behind each of edgeward's webhooks.
pub(super) async fn ask(connection: &Connection, facts: &mut Facts) {
    for webhook in facts.ours.clone().into_iter().flatten() {
        let target = webhook.target();
        if facts.behind.contains_key(&target) {
            continue;
        }
        let behind = match webhook.service() {
            Some((service, port)) => of_service(connection, &webhook, &service, port, facts).await,
            None => Ok(of_url(&target).await),
        };
        match behind {
            Ok(behind) => drop(facts.behind.insert(target, behind)),
            Err(finding) => facts.unread.push(finding),
        }
    }
}

/// Contacts the server behind a URL. The API server has checked that it has a host.
async fn of_url(url: &str) -> Behind {
    let url = url.parse::<http::Uri>().unwrap_or_default();
    let host = url.host().unwrap_or_default();
    let name = host.trim_matches(['[', ']']).to_owned();
    let address = format!("{host}:{}", url.port_u16().unwrap_or(443));
    let shown = shown(&address, &name).await;
    Behind {
        found: vec![Found { address, chain: shown }],
        name,
        self_managed: None,
    }
}

async fn of_service(
    connection: &Connection,
    webhook: &Webhook,
    service: &Service,
    port: i32,
    facts: &mut Facts,
) -> Result<Behind, Finding> {
    let unknown = |error| Finding::unknown(AREA, &error);
    let Service { namespace, name } = service;
    let found = connection.get::<ServiceObject>(namespace, name).await;
    let Some(found) = found.map_err(unknown)? else {
        let entry = &webhook.entry.name;
        let text = format!("{entry} calls the Service {namespace}/{name}, which does not exist");
        return Err(Finding::fault(AREA, text).fix(apply(&facts.found.config.keys.domain)));
    };
    let spec = found.spec.unwrap_or_default();
    let addresses = match &spec.external_name {
        Some(host) => vec![format!("{host}:{port}")],
        None => connection.endpoints(service).await.map_err(unknown)?,
    };
    if addresses.is_empty() {
        let text = format!("no replica answers: the Service {namespace}/{name} has no ready endpoint");
        facts
            .unread
            .push(Finding::fault(AREA, text).fix(see_replicas(namespace)));
    }
    let server = &service.dns_name();
    let shown = stream::iter(addresses).map(async |address| Found {
        chain: shown(&address, server).await,
        address,
    });
    let selector = spec.selector.unwrap_or_default();
    let secret = connection.self_managed(namespace, &selector).await;
    Ok(Behind {
        name: server.clone(),
        found: shown.buffered(AT_ONCE).collect().await,
        self_managed: facts.read(AREA, secret).flatten(),
    })
}

/// Checks whether the API server would trust the server of each webhook.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for webhook in facts.ours.iter().flatten() {
        for found in judge_entry(webhook, facts) {
            // A certificate that cannot be read is a finding of every webhook.
            if !findings.contains(&found) {
                findings.push(found);
            }
        }
    }
    findings
}

fn judge_entry(webhook: &Webhook, facts: &Facts) -> Vec<Finding> {
    let entry = &webhook.entry.name;
    let behind = facts.behind.get(&webhook.target());
    let fix = of_keeper(webhook, behind).unwrap_or_else(|| BY_HAND.to_owned());
    let pem = webhook.ca_bundle();
    let bundle = match Bundle::read(pem, facts.now) {
        Ok(bundle) => bundle,
        // A public CA does not sign for the name of a Service.
        Err(_) if pem.is_empty() && webhook.service().is_none() => {
            let text = format!("{entry} has no caBundle: the API server's own authorities are not known here");
            return vec![Finding::warning(AREA, text)];
        }
        Err(words) => {
            let text = format!("{entry}: caBundle {words}: the API server trusts no server");
            return vec![Finding::fault(AREA, text).fix(fix)];
        }
    };
    let Some(Behind { name, found, .. }) = behind else {
        return vec![];
    };
    let judge = |found: &Found| found.judge(entry, name, &bundle, &fix, facts.now);
    found.iter().map(judge).collect()
}

/// Returns where to look if cert-manager or edgeward's leader maintains bundle and certificate. A manual patch would be
/// overwritten, or would cost trust.
fn of_keeper(webhook: &Webhook, behind: Option<&Behind>) -> Option<String> {
    let annotations = webhook.metadata.annotations.as_ref();
    if let Some(certificate) = annotations.and_then(|all| all.get("cert-manager.io/inject-ca-from")) {
        let (namespace, name) = certificate.split_once('/').unwrap_or(("NAMESPACE", certificate));
        return Some(format!(
            "kubectl -n {namespace} get certificates,certificaterequests   # cert-manager fills caBundle in from {name}: \
             its controller and cainjector must run; `cmctl renew` has a certificate issued again"
        ));
    }
    let NamespacedName { namespace, name } = behind?.self_managed.as_ref()?;
    Some(format!(
        "kubectl -n {namespace} logs -l app.kubernetes.io/name=edgeward --prefix --tail=-1 | grep -E 'certificate|caBundle'   \
         # the leader keeps the Secret {name} and caBundle by itself: its log says what hinders it; its rights are those \
         of certs/self-managed"
    ))
}

#[cfg(test)]
mod tests;

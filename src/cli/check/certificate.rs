//! Checks whether the API server would trust edgeward. Compares the certificates that replicas serve and store with
//! `caBundle`.

use std::cmp::min;

use futures::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Secret, Service as ServiceObject};

use super::Facts;
use super::finding::Finding;
use super::leader::see_replicas;
use super::webhook::{apply, replace};
use crate::inspect::Connection;
use crate::inspect::installation::{PairSecret, Webhook};
use crate::tls::stored::contents;
use crate::tls::{Bundle, Chain, Contents, Pair, Service, VerificationError, shown};

const AREA: &str = "certificate";

/// A certificate that ends within this time should have been renewed. For a short-lived one, the last quarter of its
/// life counts instead: issuers renew when a third is left.
const LATE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Number of replicas that are contacted at once.
const AT_ONCE: usize = 32;

/// The server behind a webhook.
#[derive(Clone, Default)]
pub(super) struct Behind {
    /// The name that the certificate must have.
    pub(super) name: String,
    /// The certificates that replicas serve, and those in the Secrets that they serve from.
    pub(super) found: Vec<Found>,
    /// The Secret that edgeward manages itself, if there is one.
    pub(super) self_managed: Option<PairSecret>,
}

/// A certificate that was found.
#[derive(Clone)]
pub(super) struct Found {
    /// Where it was found: at an address, or in a Secret.
    at: String,
    /// The chain, or the finding why there is none.
    chain: Result<Chain, Finding>,
    /// The command that replaces it by hand.
    renew: String,
}

impl Found {
    /// The certificate that a server presents.
    fn shown(address: &str, name: &str, shown: Result<Chain, String>) -> Self {
        // The API server may get another answer.
        let unknown = |words| {
            let text =
                format!("{address} cannot be looked at from here, so nothing is known of what it serves: {words}");
            Finding::warning(AREA, text).fix("edgeward review --live -n NAMESPACE -f POD.yaml")
        };
        Self {
            chain: shown.map_err(unknown),
            at: format!("at {address}"),
            renew: format!("renew what --tls-cert and --tls-key name, for {name}; serve reads them again by itself"),
        }
    }

    /// The certificate that replicas serve once they have read the Secret. A replica that refused it keeps its current
    /// one.
    fn stored(PairSecret { namespace, name, .. }: &PairSecret, contents: Option<Contents>, now: Timestamp) -> Self {
        let place = format!("Secret {namespace}/{name}");
        let pair = match &contents {
            None => Err(format!("{place} does not exist: replicas have nothing to serve")),
            Some(contents) => {
                let pem = |key: &str| contents.get(key).map_or(&[][..], |pem| pem);
                Pair::from_pem(pem("tls.crt"), pem("tls.key"), now).map_err(|words| {
                    format!(
                        "{place} cannot be used, so replicas keep the certificate they have, and none starts: {words}"
                    )
                })
            }
        };
        Self {
            at: format!("in {place}"),
            chain: pair
                .map(|pair| pair.key.cert.clone())
                .map_err(|text| Finding::fault(AREA, text)),
            // The command does nothing if the files are missing.
            renew: format!(
                "kubectl -n {namespace} create secret tls {name} --cert=tls.crt --key=tls.key --dry-run=client -o yaml | \
                 kubectl -n {namespace} apply -f -"
            ),
        }
    }

    /// Checks whether the API server trusts this certificate for `name`. The fixes are to add its authority to
    /// `caBundle`, and to renew it.
    fn judge(
        &self,
        entry: &str,
        name: &str,
        bundle: &Bundle,
        now: Timestamp,
        [add_authority, renew]: [&String; 2],
    ) -> Finding {
        let at = &self.at;
        let chain = match &self.chain {
            Ok(chain) => chain,
            Err(finding) if finding.fix.is_some() => return finding.clone(),
            Err(finding) => return finding.clone().fix(renew),
        };
        let serving = match bundle.vouches(chain, name) {
            Ok(serving) => serving,
            Err(error) => {
                let text = format!(
                    "{entry}: the API server does not trust the certificate {at} for {name}, because it {error}"
                );
                // If the authority is in the bundle, another bundle does not help.
                return Finding::fault(AREA, text).fix(match error {
                    VerificationError::Certificate(_) => renew,
                    VerificationError::Authority => add_authority,
                });
            }
        };
        let end = min(serving.not_after, serving.authority_not_after);
        let text = format!("{entry}: the certificate {at} is for {name}, of an authority in caBundle, until {end}");
        if end.duration_since(now) >= min(LATE, serving.life / 4) {
            return Finding::ok(AREA, text);
        }
        // If the authority ends first, a new leaf certificate does not help.
        let is_authority = end < serving.not_after;
        Finding::warning(AREA, text).fix(if is_authority { add_authority } else { renew })
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
        found: vec![Found::shown(&address, &name, shown)],
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
    let shown =
        stream::iter(addresses).map(async |address| Found::shown(&address, server, shown(&address, server).await));
    let mut behind = Behind {
        name: server.clone(),
        found: shown.buffered(AT_ONCE).collect().await,
        self_managed: None,
    };
    let selector = spec.selector.unwrap_or_default();
    let secrets = connection.pair_secrets(namespace, &selector).await;
    for secret in facts.read(AREA, secrets).unwrap_or_default() {
        let found = connection.get::<Secret>(&secret.namespace, &secret.name).await;
        // Keys with other names are not understood.
        let is_pair = |contents: &Contents| ["tls.crt", "tls.key"].iter().any(|key| contents.contains_key(*key));
        let contents = facts.read(AREA, found).map(|found| found.map(contents));
        if let Some(contents) = contents.filter(|contents| contents.as_ref().is_none_or(is_pair)) {
            behind.found.push(Found::stored(&secret, contents, facts.now));
        }
        if secret.is_self_managed {
            behind.self_managed = Some(secret);
        }
    }
    Ok(behind)
}

/// Checks whether the API server would trust the server of each webhook, now and once replicas serve the stored
/// certificate.
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
    let of_keeper = of_keeper(webhook, behind);
    let fix = of_keeper.clone().unwrap_or_else(|| add_authority(webhook));
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
    let judge = |found: &Found| {
        let renew = of_keeper.as_ref().unwrap_or(&found.renew);
        found.judge(entry, name, &bundle, facts.now, [&fix, renew])
    };
    found.iter().map(judge).collect()
}

/// Returns the command that adds the authority in `ca.crt` to a webhook's `caBundle`. It keeps the other authorities,
/// which other servers may use. Without the file, it does nothing.
fn add_authority(webhook: &Webhook) -> String {
    let old = format!(
        "kubectl get mutatingwebhookconfiguration {} -o jsonpath='{{.webhooks[{}].clientConfig.caBundle}}'",
        webhook.configuration(),
        webhook.position
    );
    let value = "\"'$( (echo \"$old\" | base64 -d; echo; cat ca.crt) | base64 -w0)'\"";
    let set = replace(webhook, "clientConfig/caBundle", value);
    format!("test -s ca.crt && old=$({old}) && {set}")
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
    let PairSecret { namespace, name, .. } = behind?.self_managed.as_ref()?;
    Some(format!(
        "kubectl -n {namespace} logs -l app.kubernetes.io/name=edgeward --prefix --tail=-1 | grep -E 'certificate|caBundle'   \
         # the leader keeps the Secret {name} and caBundle by itself: its log says what hinders it; its rights are those \
         of certs/self-managed"
    ))
}

#[cfg(test)]
mod tests;

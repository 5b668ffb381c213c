//! Checks whether the API server would trust edgeward. Compares the certificates that replicas serve and store with
//! `caBundle`.

use std::cmp::min;

use futures::stream::{self, StreamExt as _};
use jiff::SignedDuration;
use rustls::pki_types::CertificateDer;

use super::Facts;
use super::finding::Finding;
use super::leader;
use super::webhook::{host, replace};
use crate::inspect::Connection;
use crate::inspect::installation::{PairSecret, Webhook};
use crate::tls::{self, Bundle, Chain, Contents, Pair, Service, VerificationError, shown};

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
    /// The certificate chain that each address presents, or the error.
    pub(super) shown: Vec<(String, Result<Chain, String>)>,
    /// The Secrets that replicas serve from, and their contents; `None` if the Secret does not exist.
    pub(super) stored: Vec<(PairSecret, Option<Contents>)>,
}

impl Behind {
    /// Returns the Secret that edgeward manages itself, if there is one.
    pub(super) fn self_managed(&self) -> Option<&PairSecret> {
        let mut secrets = self.stored.iter().map(|(secret, _)| secret);
        secrets.find(|secret| secret.is_self_managed)
    }
}

/// Contacts the server behind each of edgeward's webhooks.
pub(super) async fn ask(connection: &Connection, facts: &mut Facts) {
    for webhook in facts.ours.clone() {
        let target = webhook.target();
        if facts.behind.contains_key(&target) {
            continue;
        }
        let behind = match webhook.service() {
            Some((service, port)) => of_service(connection, &webhook, &service, port, facts).await,
            None => of_url(&webhook, &target).await,
        };
        match behind {
            Ok(behind) => drop(facts.behind.insert(target, behind)),
            Err(finding) => facts.unread.push(finding),
        }
    }
}

async fn of_url(webhook: &Webhook, url: &str) -> Result<Behind, Finding> {
    let Some((host, port)) = host(url) else {
        let entry = &webhook.entry.name;
        let text = format!("{entry} calls {url:?}, which is not an https:// URL with a host");
        let fix = replace(webhook, "clientConfig/url", "\"https://HOST:8443/mutate\"");
        return Err(Finding::fault(AREA, text).fix(fix));
    };
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let address = format!("{host}:{port}");
    Ok(Behind {
        shown: vec![(address.clone(), shown(&address, &name).await)],
        name,
        stored: vec![],
    })
}

async fn of_service(
    connection: &Connection,
    webhook: &Webhook,
    service: &Service,
    port: i32,
    facts: &mut Facts,
) -> Result<Behind, Finding> {
    let unknown = |error| Finding::unknown(AREA, &error);
    let Some(addresses) = connection.endpoints(service, port).await.map_err(unknown)? else {
        let (entry, Service { namespace, name }) = (&webhook.entry.name, service);
        let text = format!("{entry} calls the Service {namespace}/{name}, which does not exist");
        let fix =
            format!("kubectl -n {namespace} expose deployment edgeward --name={name} --port={port} --target-port=8443");
        return Err(Finding::fault(AREA, text).fix(fix));
    };
    let server = &service.dns_name();
    let shown = stream::iter(addresses).map(async |address| {
        let shown = shown(&address, server).await;
        (address, shown)
    });
    let mut behind = Behind {
        name: server.clone(),
        shown: shown.buffered(AT_ONCE).collect().await,
        stored: vec![],
    };
    let secrets = connection.pair_secrets(service).await;
    for secret in facts.read(AREA, secrets).unwrap_or_default() {
        let contents = connection.contents(&secret).await;
        behind
            .stored
            .extend(facts.read(AREA, contents).map(|contents| (secret, contents)));
    }
    Ok(behind)
}

/// Checks whether the API server would trust the server of each webhook, now and once replicas serve the stored
/// certificate.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for webhook in &facts.ours {
        for found in judge_entry(webhook, facts) {
            // Most findings are the same for all webhooks.
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
    let service = webhook.service();
    if webhook.ca_bundle().is_empty() {
        let text = format!("{entry} has no caBundle: the API server trusts its own authorities only");
        let finding = match service {
            // A public CA does not sign for the name of a Service.
            Some(_) => Finding::fault(AREA, text),
            None => Finding::warning(AREA, format!("{text}, which are not known here")),
        };
        return vec![finding.fix(fix)];
    }
    let bundle = match Bundle::read(webhook.ca_bundle(), facts.now) {
        Ok(bundle) => bundle,
        Err(words) => {
            let text = format!("{entry}: caBundle {words}: the API server trusts no server");
            return vec![Finding::fault(AREA, text).fix(fix)];
        }
    };
    let Some(behind) = behind else {
        return vec![];
    };
    let judge = Judge {
        bundle,
        of_keeper,
        webhook,
        behind,
        facts,
    };
    let mut findings: Vec<_> = behind.shown.iter().map(|shown| judge.answer(shown)).collect();
    if let Some((service, _)) = service {
        if findings.is_empty() {
            let text = format!("no replica answers {entry}: its Service has no ready endpoint");
            let wanted = facts.wanted.filter(|_| service.namespace == facts.home);
            findings.push(Finding::fault(AREA, text).fix(leader::start(&service.namespace, wanted)));
        }
        let stored = behind.stored.iter();
        findings.extend(stored.flat_map(|(secret, contents)| judge.stored(secret, contents.as_ref(), &service)));
    }
    findings
}

/// The inputs of the checks of one webhook.
struct Judge<'f> {
    bundle: Bundle,
    of_keeper: Option<String>,
    webhook: &'f Webhook,
    behind: &'f Behind,
    facts: &'f Facts,
}

impl Judge<'_> {
    fn fix(&self, by_hand: impl FnOnce() -> String) -> String {
        self.of_keeper.clone().unwrap_or_else(by_hand)
    }

    fn answer(&self, (address, shown): &(String, Result<Chain, String>)) -> Finding {
        match shown {
            Ok(chain) => self.chain(chain, [&format!("at {address}"), address], || {
                let name = &self.behind.name;
                format!("renew what --tls-cert and --tls-key name, for {name}; serve reads them again by itself")
            }),
            // The API server may get another answer.
            Err(words) => Finding::warning(
                AREA,
                format!("{address} cannot be looked at from here, so nothing is known of what it serves: {words}"),
            )
            .fix("edgeward review --live -n NAMESPACE -f POD.yaml"),
        }
    }

    /// Checks the certificate that replicas serve once they have read the Secret. A replica that refused it keeps its
    /// current one.
    fn stored(&self, secret: &PairSecret, contents: Option<&Contents>, service: &Service) -> Vec<Finding> {
        let PairSecret { namespace, name, .. } = secret;
        let place = format!("Secret {namespace}/{name}");
        // The command does nothing if the files are missing.
        let put = || {
            format!(
                "kubectl -n {namespace} create secret tls {name} --cert=tls.crt --key=tls.key --dry-run=client -o yaml | \
                 kubectl -n {namespace} apply -f -"
            )
        };
        let fault = |text: String| Finding::fault(AREA, text).fix(self.fix(put));
        let Some(contents) = contents else {
            return vec![fault(format!("{place} does not exist: replicas have nothing to serve"))];
        };
        let mut findings = Vec::new();
        if secret.is_self_managed {
            let faults = tls::Stored::read(contents, service, self.facts.now).faults;
            // The serving certificate is checked below.
            let of_authorities = faults.into_iter().filter(|(key, _)| *key != secret.cert);
            findings.extend(of_authorities.map(|(key, words)| {
                fault(format!(
                    "{place}: {key} cannot be used, and the leader has to make another: {words}"
                ))
            }));
        }
        let pem = |key: &String| contents.get(key).map_or(&[][..], |pem| pem);
        findings.push(
            match Pair::from_pem(pem(&secret.cert), pem(&secret.key), self.facts.now) {
                Ok(pair) => {
                    let (at, server) = (format!("in {place}"), format!("a replica that serves from {place}"));
                    self.chain(&pair.key.cert, [&at, &server], put)
                }
                Err(words) => fault(format!(
                    "{place} cannot be used, so replicas keep the certificate they have, and none starts: {words}"
                )),
            },
        );
        findings
    }

    /// Checks whether the API server trusts a chain. `at` says where it was found, and `server` who presents it.
    /// `renew` returns the command that replaces it by hand.
    fn chain(
        &self,
        chain: &[CertificateDer<'static>],
        [at, server]: [&str; 2],
        renew: impl FnOnce() -> String,
    ) -> Finding {
        let (entry, name) = (&self.webhook.entry.name, &self.behind.name);
        let another_authority = || self.fix(|| add_authority(self.webhook));
        let serving = match self.bundle.vouches(chain, name) {
            Ok(serving) => serving,
            Err(error) => {
                let text =
                    format!("{entry}: the API server does not believe {server} to be {name}: its certificate {error}");
                // If the authority is in the bundle, another bundle does not help.
                return Finding::fault(AREA, text).fix(match error {
                    VerificationError::Certificate(_) => self.fix(renew),
                    VerificationError::Authority => another_authority(),
                });
            }
        };
        let end = min(serving.not_after, serving.authority_not_after);
        if end.duration_since(self.facts.now) < min(LATE, serving.life / 4) {
            // If the authority ends first, a new leaf certificate does not help.
            let (what, fix) = match end < serving.not_after {
                true => (
                    "is of an authority in caBundle that ends before it,",
                    another_authority(),
                ),
                false => ("ends", self.fix(renew)),
            };
            return Finding::warning(AREA, format!("{entry}: that {at} {what} at {end}")).fix(fix);
        }
        let text = format!("{entry}: that {at} is for {name}, of an authority in caBundle, until {end}");
        Finding::ok(AREA, text)
    }
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
    let PairSecret { namespace, name, .. } = behind?.self_managed()?;
    Some(format!(
        "kubectl -n {namespace} logs -l app.kubernetes.io/name=edgeward --prefix --tail=-1 | grep -E 'certificate|caBundle'   \
         # the leader keeps the Secret {name} and caBundle by itself: its log says what hinders it; its rights are those \
         of certs/self-managed"
    ))
}

#[cfg(test)]
mod tests;

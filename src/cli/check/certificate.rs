//! Whether the API server would believe edgeward: what is shown behind a webhook, and what replicas serve from, compared
//! with `caBundle`.

use std::cmp::min;

use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;

use super::Installation;
use super::finding::{Finding, Judged, told};
use super::leader;
use super::webhook::{host, replace};
use crate::cli::sentence;
use crate::inspect::Connection;
use crate::inspect::installation::{Bundle, PairSecret, Target, VerificationError, Webhook};
use crate::tls::{self, Chain, Contents, Pair, Service, shown};

const AREA: &str = "certificate";

/// How long before its end a certificate should have been renewed, at most. One that lives shorter is late in the last quarter
/// of its life: issuers renew at a third.
const LATE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// How many replicas are looked at at once.
const AT_ONCE: usize = 32;

/// Who is behind a webhook.
pub(super) struct Behind {
    /// What was found at each address.
    pub(super) answers: Vec<Answer>,
    /// The Secrets that are served from.
    pub(super) stored: anyhow::Result<Vec<Stored>>,
}

/// Who answers at an address.
pub(super) struct Answer {
    pub(super) address: String,
    /// The name that the certificate must have.
    pub(super) name: String,
    pub(super) shown: Result<Chain, String>,
}

/// A Secret that replicas read their certificate from.
pub(super) struct Stored {
    pub(super) secret: PairSecret,
    /// The Service that leads to them.
    pub(super) service: Service,
    /// `Ok(None)`: there is no such Secret.
    pub(super) contents: anyhow::Result<Option<Contents>>,
}

impl Behind {
    /// The Secret that edgeward keeps itself.
    pub(super) fn self_managed(&self) -> Option<&PairSecret> {
        let mut secrets = self.stored.iter().flatten().map(|stored| &stored.secret);
        secrets.find(|secret| secret.is_self_managed)
    }
}

/// Asks who is behind a webhook, or says why there is nobody.
pub(super) async fn ask(connection: &Connection, webhook: &Webhook) -> Result<Behind, Finding> {
    let entry = &webhook.name;
    let answer = async |address: String, name: &str| Answer {
        shown: shown(&address, name).await,
        address,
        name: name.to_owned(),
    };
    let (namespace, name, port) = match &webhook.target {
        Target::Service { namespace, name, port } => (namespace, name, *port),
        Target::Url(url) => {
            let (host, port) = host(url).ok_or_else(|| {
                let text = format!("{entry} calls {url:?}, which is no https:// URL with a host");
                let fix = replace(webhook, "clientConfig/url", "\"https://HOST:8443/mutate\"");
                Finding::fault(AREA, text).fix(fix)
            })?;
            let name = host.trim_start_matches('[').trim_end_matches(']');
            return Ok(Behind {
                answers: vec![answer(format!("{host}:{port}"), name).await],
                stored: Ok(vec![]),
            });
        }
    };
    let service = Service {
        name: name.clone(),
        namespace: namespace.clone(),
    };
    let server = service.dns_name();
    let addresses = match connection.endpoints(namespace, name, port).await {
        Ok(Some(addresses)) => addresses,
        Ok(None) => {
            let text = format!("{entry} calls the Service {namespace}/{name}, which does not exist");
            let fix = format!(
                "kubectl -n {namespace} expose deployment edgeward --name={name} --port={port} --target-port=8443"
            );
            return Err(Finding::fault(AREA, text).fix(fix));
        }
        Err(error) => return Err(Finding::unknown(AREA, &error)),
    };
    let answers = stream::iter(addresses).map(|address| answer(address, &server));
    let answers = answers.buffered(AT_ONCE).collect().await;
    let stored = async |secret: PairSecret| Stored {
        contents: connection.contents(&secret).await,
        secret,
        service: service.clone(),
    };
    let stored = match connection.pair_secrets(namespace, name).await {
        Ok(secrets) => Ok(join_all(secrets.into_iter().map(stored)).await),
        Err(error) => Err(error),
    };
    Ok(Behind { answers, stored })
}

/// Whether the API server would believe who answers each of our entries, now and once replicas serve what is stored for them.
pub(super) fn judge(seen: &Installation) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (entry, behind) in seen.ours.iter().zip(&seen.behind) {
        for found in told(judge_entry(entry, behind, seen)) {
            // Entries have most in common.
            if !findings.contains(&found) {
                findings.push(found);
            }
        }
    }
    findings
}

fn judge_entry(webhook: &Webhook, behind: &Result<Behind, Finding>, seen: &Installation) -> Judged {
    let entry = &webhook.name;
    let of_keeper = of_keeper(webhook, behind.as_ref().ok());
    let fix = of_keeper.clone().unwrap_or_else(|| add_authority(webhook));
    if webhook.ca_bundle.is_empty() {
        let text = format!("{entry} has no caBundle: the API server believes its own authorities only");
        let finding = match webhook.target {
            // Nobody else signs for a name like this.
            Target::Service { .. } => Finding::fault(AREA, text),
            Target::Url(_) => Finding::warning(AREA, format!("{text}, which are not known here")),
        };
        return Err(finding.fix(fix));
    }
    let bundle = Bundle::read(&webhook.ca_bundle, seen.now).map_err(|words| {
        let text = format!("{entry}: caBundle {words}: the API server believes nobody");
        Finding::fault(AREA, text).fix(fix)
    })?;
    let Behind { answers, stored } = behind.as_ref().map_err(Clone::clone)?;
    let judge = Judge {
        bundle,
        of_keeper,
        webhook,
        now: seen.now,
    };
    let mut findings: Vec<_> = answers.iter().map(|answer| judge.answer(answer)).collect();
    if let (true, Target::Service { namespace, .. }) = (answers.is_empty(), &webhook.target) {
        let text = format!("nobody answers {entry}: its Service has no ready endpoint");
        let wanted = seen.replicas.wanted.filter(|_| *namespace == seen.home);
        findings.push(Finding::fault(AREA, text).fix(leader::start(namespace, wanted)));
    }
    match stored {
        Ok(stored) => findings.extend(stored.iter().flat_map(|stored| judge.stored(stored))),
        Err(error) => {
            let text = format!("what replicas serve from is not checked: {}", sentence(error));
            findings.push(Finding::warning(AREA, text));
        }
    }
    Ok(findings)
}

/// By what is judged.
struct Judge<'w> {
    bundle: Bundle,
    of_keeper: Option<String>,
    webhook: &'w Webhook,
    now: Timestamp,
}

impl Judge<'_> {
    fn fix(&self, by_hand: impl FnOnce() -> String) -> String {
        self.of_keeper.clone().unwrap_or_else(by_hand)
    }

    fn answer(&self, Answer { address, name, shown }: &Answer) -> Finding {
        match shown {
            Ok(chain) => {
                let renew = || {
                    format!("renew what --tls-cert and --tls-key name, for {name}; serve reads them again by itself")
                };
                self.chain(chain, name, [&format!("at {address}"), address], renew)
            }
            // The API server's own answer is another.
            Err(words) => Finding::warning(
                AREA,
                format!("{address} cannot be looked at from here, so nothing is known of what it serves: {words}"),
            )
            .fix("edgeward review --live -n NAMESPACE -f POD.yaml"),
        }
    }

    /// What replicas serve once they have read it. A replica that refused it serves on what it has.
    fn stored(&self, stored: &Stored) -> Vec<Finding> {
        let secret = &stored.secret;
        let PairSecret { namespace, name, .. } = secret;
        let place = format!("Secret {namespace}/{name}");
        // Without the files it does nothing.
        let put = || {
            format!(
                "kubectl -n {namespace} create secret tls {name} --cert=tls.crt --key=tls.key --dry-run=client -o yaml | \
                 kubectl -n {namespace} apply -f -"
            )
        };
        let fault = |text: String| Finding::fault(AREA, text).fix(self.fix(put));
        let contents = match &stored.contents {
            Ok(Some(contents)) => contents,
            Ok(None) => return vec![fault(format!("{place} does not exist: replicas have nothing to serve"))],
            Err(error) => return vec![Finding::unknown(AREA, error)],
        };
        let mut findings = Vec::new();
        if secret.is_self_managed {
            let faults = tls::Stored::read(contents, &stored.service, self.now).faults;
            // What is served is judged below.
            let of_authorities = faults.into_iter().filter(|(key, _)| *key != secret.cert);
            findings.extend(of_authorities.map(|(key, words)| {
                fault(format!(
                    "{place}: {key} cannot be used, and the leader has to make another: {words}"
                ))
            }));
        }
        let pem = |key: &String| contents.get(key).map_or(&[][..], |pem| pem);
        findings.push(match Pair::from_pem(pem(&secret.cert), pem(&secret.key), self.now) {
            Ok(pair) => {
                let (at, server) = (format!("in {place}"), format!("who serves from {place}"));
                let name = stored.service.dns_name();
                self.chain(&pair.key.cert, &name, [&at, &server], put)
            }
            Err(words) => fault(format!(
                "{place} cannot be used, so replicas keep the certificate they have, and none starts: {words}"
            )),
        });
        findings
    }

    /// Whether a chain is believed that was found `at` a place, and is shown by `server` or, if it is stored, will be. `renew` is
    /// what puts another in its place by hand.
    fn chain(
        &self,
        chain: &[CertificateDer<'static>],
        name: &str,
        [at, server]: [&str; 2],
        renew: impl FnOnce() -> String,
    ) -> Finding {
        let entry = &self.webhook.name;
        let another_authority = || self.fix(|| add_authority(self.webhook));
        let serving = match self.bundle.vouches(chain, name) {
            Ok(serving) => serving,
            Err(error) => {
                let text =
                    format!("{entry}: the API server does not believe {server} to be {name}: its certificate {error}");
                // Of an authority in the bundle, another bundle fixes nothing.
                return Finding::fault(AREA, text).fix(match error {
                    VerificationError::Certificate(_) => self.fix(renew),
                    VerificationError::Authority => another_authority(),
                });
            }
        };
        let end = min(serving.not_after, serving.authority_not_after);
        if end.duration_since(self.now) < min(LATE, serving.life / 4) {
            // Of an authority that ends before, a new leaf would help no longer.
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

/// The command that puts the authority in `ca.crt` into an entry's `caBundle`, beside what is there: others may be served by that.
/// Without the file it does nothing.
fn add_authority(webhook: &Webhook) -> String {
    let old = format!(
        "kubectl get mutatingwebhookconfiguration {} -o jsonpath='{{.webhooks[{}].clientConfig.caBundle}}'",
        webhook.configuration, webhook.position
    );
    let value = "\"'$( (echo \"$old\" | base64 -d; echo; cat ca.crt) | base64 -w0)'\"";
    let set = replace(webhook, "clientConfig/caBundle", value);
    format!("test -s ca.crt && old=$({old}) && {set}")
}

/// Where to look when bundle and certificate are not as they should be and somebody else brings them. What is patched by hand is
/// overwritten then, or costs trust.
fn of_keeper(webhook: &Webhook, behind: Option<&Behind>) -> Option<String> {
    if let Some(certificate) = &webhook.injected {
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

//! Whether the API server would believe edgeward: what is shown behind a webhook, and what replicas serve from, held
//! against `caBundle`.

use std::cmp::min;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};

use super::finding::Finding;
use super::webhook::{host, replace};
use crate::cli::sentence;
use crate::observe::Connection;
use crate::observe::installation::{Bundle, Mistrust, Mounted, PairSecret, Serving, Target, Webhook};
use crate::tls::{Chain, Pair, shown};

const AREA: &str = "certificate";

/// How long before its end a certificate should have been renewed, at most. One that lives shorter is late in the last quarter
/// of its life: issuers renew at a third.
const LATE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// How many replicas are looked at behind a Service.
const REPLICAS: usize = 8;

/// Who is behind a webhook.
pub(super) enum Behind {
    /// What was found at each address, and in each Secret that is served from, or why that is not known.
    Answers(Vec<Answer>, Result<Vec<Stored>, String>),
    /// There is no such Service.
    NoService,
    /// The URL cannot be called.
    NoUrl(String),
    /// Nobody says; why.
    Unknown(String),
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
    pub(super) secret: Mounted,
    /// The name that the certificate must have.
    pub(super) name: String,
    /// `Ok(None)`: there is no such Secret.
    pub(super) pair: Result<Option<PairSecret>, String>,
}

/// Asks who is behind a webhook.
pub(super) async fn ask(connection: &Connection, webhook: &Webhook) -> Behind {
    let answer = async |address: String, name: &str| Answer {
        shown: shown(&address, name).await,
        address,
        name: name.to_owned(),
    };
    match &webhook.target {
        Target::Url(url) => match host(url) {
            Some((host, port)) => {
                let name = host.trim_start_matches('[').trim_end_matches(']');
                Behind::Answers(vec![answer(format!("{host}:{port}"), name).await], Ok(vec![]))
            }
            None => Behind::NoUrl(url.clone()),
        },
        Target::Service { namespace, name, port } => {
            let server = format!("{name}.{namespace}.svc");
            let addresses = match connection.endpoints(namespace, name, *port).await {
                Ok(Some(addresses)) => addresses.into_iter().take(REPLICAS),
                Ok(None) => return Behind::NoService,
                Err(error) => return Behind::Unknown(format!("{error:#}")),
            };
            let answers = join_all(addresses.map(|address| answer(address, &server))).await;
            let secrets = match connection.mounted(namespace, name).await {
                Ok(secrets) => secrets,
                Err(error) => return Behind::Answers(answers, Err(sentence(&error))),
            };
            let stored = secrets.into_iter().map(async |secret| Stored {
                pair: connection.pair(&secret).await.map_err(|error| sentence(&error)),
                secret,
                name: server.clone(),
            });
            Behind::Answers(answers, Ok(join_all(stored).await))
        }
    }
}

/// Whether the API server would believe who answers, now and once replicas serve what is stored for them.
pub(super) fn judge(webhook: &Webhook, behind: &Behind, now: Timestamp) -> Vec<Finding> {
    let entry = &webhook.name;
    if webhook.ca_bundle.is_empty() {
        let text = format!("{entry} has no caBundle: the API server believes its own authorities only");
        return vec![Finding::fault(AREA, text, other_bundle(webhook))];
    }
    let bundle = match Bundle::read(&webhook.ca_bundle, now) {
        Ok(bundle) => bundle,
        Err(words) => {
            let text = format!("{entry}: caBundle {words}: the API server believes nobody");
            return vec![Finding::fault(AREA, text, other_bundle(webhook))];
        }
    };
    let (answers, stored) = match (behind, &webhook.target) {
        (Behind::Answers(answers, stored), _) => (answers, stored),
        (
            Behind::NoService,
            Target::Service {
                namespace,
                name: service,
                port,
            },
        ) => {
            let text = format!("{entry} calls the Service {namespace}/{service}, which does not exist");
            let fix = format!(
                "kubectl -n {namespace} expose deployment edgeward --name={service} --port={port} --target-port=8443"
            );
            return vec![Finding::fault(AREA, text, fix)];
        }
        (Behind::NoService, Target::Url(url)) | (Behind::NoUrl(url), _) => {
            let text = format!("{entry} calls {url:?}, which is no https:// URL with a host");
            let fix = replace(webhook, "clientConfig/url", "\"https://HOST:8443/mutate\"");
            return vec![Finding::fault(AREA, text, fix)];
        }
        (Behind::Unknown(why), _) => {
            let text = format!("who answers {entry} is not checked: {why}");
            return vec![Finding::warning(AREA, text, None)];
        }
    };
    let judge = Judge { webhook, bundle, now };
    let mut findings: Vec<_> = answers.iter().map(|answer| judge.answer(answer)).collect();
    if let (true, Target::Service { namespace, .. }) = (answers.is_empty(), &webhook.target) {
        let text = format!("nobody answers {entry}: its Service has no ready endpoint");
        let fix = format!("kubectl -n {namespace} rollout restart deployment edgeward");
        findings.push(Finding::fault(AREA, text, fix));
    }
    match stored {
        Ok(stored) => findings.extend(stored.iter().map(|stored| judge.stored(stored))),
        Err(why) => {
            let text = format!("what replicas serve from is not checked: {why}");
            findings.push(Finding::warning(AREA, text, None));
        }
    }
    findings
}

/// By what is judged.
struct Judge<'w> {
    webhook: &'w Webhook,
    bundle: Bundle,
    now: Timestamp,
}

impl Judge<'_> {
    fn answer(&self, answer: &Answer) -> Finding {
        let Answer { address, name, shown } = answer;
        let entry = &self.webhook.name;
        let renew = || match &self.webhook.injected {
            Some(_) => cert_manager(self.webhook),
            None => format!("renew what --tls-cert and --tls-key name, for {name}; serve reads them again by itself"),
        };
        let chain = match shown {
            Ok(chain) => chain,
            Err(words) => {
                let text =
                    format!("{address} cannot be looked at from here, so nothing is known of what it serves: {words}");
                // The API server's own answer.
                let ask = "edgeward review --live -n NAMESPACE -f POD.yaml".to_owned();
                return Finding::warning(AREA, text, Some(ask));
            }
        };
        match self.bundle.vouches(chain, name) {
            Ok(serving) => self.believed(serving, &format!("{entry}: that at {address}"), name, renew),
            Err(mistrust) => {
                let text = |words: &str| {
                    format!("{entry}: the API server does not believe {address} to be {name}: its certificate {words}")
                };
                match mistrust {
                    Mistrust::Authority(words) => Finding::fault(AREA, text(&words), other_bundle(self.webhook)),
                    // Of an authority in the bundle: another bundle mends nothing.
                    Mistrust::Certificate(words) => Finding::fault(AREA, text(&words), renew()),
                }
            }
        }
    }

    /// What replicas serve once they have read it. A replica that refused it serves on what it has.
    fn stored(&self, stored: &Stored) -> Finding {
        let Stored { secret, name, pair } = stored;
        let entry = &self.webhook.name;
        let Mounted {
            namespace,
            name: secret,
            ..
        } = secret;
        let place = format!("Secret {namespace}/{secret}");
        let put = || match &self.webhook.injected {
            Some(_) => cert_manager(self.webhook),
            None => stored.put(),
        };
        let pair = match pair {
            Ok(Some(pair)) => Pair::from_pem(&pair.cert, &pair.key, self.now),
            Ok(None) => {
                let text = format!("{place} does not exist: replicas that mount it do not start");
                return Finding::fault(AREA, text, put());
            }
            Err(why) => return Finding::warning(AREA, format!("what is in {place} is not checked: {why}"), None),
        };
        match pair.map(|pair| self.bundle.vouches(&pair.key.cert, name)) {
            Ok(Ok(serving)) => self.believed(serving, &format!("{entry}: that in {place}"), name, put),
            Ok(Err(Mistrust::Authority(words) | Mistrust::Certificate(words))) => {
                let text = format!(
                    "{entry}: the API server does not believe who serves from {place} to be {name}: its certificate {words}"
                );
                Finding::fault(AREA, text, put())
            }
            Err(fault) => {
                let text = format!(
                    "{place} cannot be used, so replicas keep the certificate they have, and none starts: {fault}"
                );
                Finding::fault(AREA, text, put())
            }
        }
    }

    fn believed(&self, serving: Serving, what: &str, name: &str, renew: impl FnOnce() -> String) -> Finding {
        let Serving { life, not_after } = serving;
        match not_after.duration_since(self.now) < min(LATE, life / 4) {
            true => Finding::warning(AREA, format!("{what} ends at {not_after}"), Some(renew())),
            false => Finding::ok(
                AREA,
                format!("{what} is for {name}, of an authority in caBundle, until {not_after}"),
            ),
        }
    }
}

impl Stored {
    /// The command that puts another pair in the place of this one.
    fn put(&self) -> String {
        let Mounted {
            namespace,
            name,
            cert,
            key,
        } = &self.secret;
        format!(
            "kubectl -n {namespace} patch secret {name} -p '{{\"data\": {{\"{cert}\": \"'$(base64 -w0 tls.crt)'\", \
             \"{key}\": \"'$(base64 -w0 tls.key)'\"}}}}'"
        )
    }
}

/// How the authority of what is served comes into the bundle.
fn other_bundle(webhook: &Webhook) -> String {
    match &webhook.injected {
        Some(_) => cert_manager(webhook),
        None => replace(webhook, "clientConfig/caBundle", "\"'$(base64 -w0 ca.crt)'\""),
    }
}

/// Where to look when cert-manager brings bundle and certificate.
fn cert_manager(webhook: &Webhook) -> String {
    let certificate = webhook.injected.as_deref().unwrap_or_default();
    let (namespace, name) = certificate.split_once('/').unwrap_or(("NAMESPACE", certificate));
    format!(
        "kubectl -n {namespace} get certificates,certificaterequests   # cert-manager fills caBundle in from {name}: its \
         controller and cainjector must run; `cmctl renew` has a certificate issued anew"
    )
}

#[cfg(test)]
mod tests;

//! Whether the API server would believe edgeward: what is shown behind a webhook, and what replicas serve from, held
//! against `caBundle`.

use std::cmp::min;

use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;

use super::finding::Finding;
use super::leader;
use super::webhook::{host, replace};
use crate::cli::sentence;
use crate::inspect::Connection;
use crate::inspect::installation::{Bundle, PairSecret, Serving, Target, VerificationError, Webhook};
use crate::tls::{self, Chain, Contents, Pair, Service, shown};

const AREA: &str = "certificate";

/// How long before its end a certificate should have been renewed, at most. One that lives shorter is late in the last quarter
/// of its life: issuers renew at a third.
const LATE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Before files are read for what they replace: where one is missing, `base64` prints nothing, and nobody asks how it ended.
const FILES: &str = "test -s tls.crt && test -s tls.key && ";

/// How many replicas are looked at at once.
const AT_ONCE: usize = 32;

/// Who is behind a webhook.
pub(super) enum Behind {
    /// What was found at each address, and in each Secret that is served from, or why that is not known.
    Answers(Vec<Answer>, Result<Vec<Stored>, String>),
    /// There is no such Service, of which this port is called.
    NoService(Service, i32),
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
    pub(super) secret: PairSecret,
    /// The Service that leads to them.
    pub(super) service: Service,
    /// `Ok(None)`: there is no such Secret.
    pub(super) contents: Result<Option<Contents>, String>,
}

impl Behind {
    /// Where the API server finds whoever serves, `address:port`.
    pub(super) fn addresses(&self) -> Vec<String> {
        match self {
            Self::Answers(answers, _) => answers.iter().map(|answer| answer.address.clone()).collect(),
            Self::NoService(..) | Self::NoUrl(_) | Self::Unknown(_) => vec![],
        }
    }

    /// The Secret that edgeward keeps itself.
    pub(super) fn self_managed(&self) -> Option<&PairSecret> {
        let Self::Answers(_, Ok(stored)) = self else {
            return None;
        };
        let mut secrets = stored.iter().map(|stored| &stored.secret);
        secrets.find(|secret| secret.is_self_managed)
    }
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
            let service = Service {
                name: name.clone(),
                namespace: namespace.clone(),
            };
            let server = service.dns_name();
            let addresses = match connection.endpoints(namespace, name, *port).await {
                Ok(Some(addresses)) => addresses,
                Ok(None) => return Behind::NoService(service, *port),
                Err(error) => return Behind::Unknown(format!("{error:#}")),
            };
            let answers = stream::iter(addresses).map(|address| answer(address, &server));
            let answers = answers.buffered(AT_ONCE).collect().await;
            let secrets = match connection.pair_secrets(namespace, name).await {
                Ok(secrets) => secrets,
                Err(error) => return Behind::Answers(answers, Err(sentence(&error))),
            };
            let stored = secrets.into_iter().map(async |secret| Stored {
                contents: connection.contents(&secret).await.map_err(|error| sentence(&error)),
                secret,
                service: service.clone(),
            });
            Behind::Answers(answers, Ok(join_all(stored).await))
        }
    }
}

/// What else is known of the installation.
pub(super) struct Around<'a> {
    /// edgeward's own namespace.
    pub(super) home: &'a str,
    /// How many replicas its Deployment is to have there, where that is known.
    pub(super) wanted: Option<i32>,
    pub(super) now: Timestamp,
}

/// Whether the API server would believe who answers, now and once replicas serve what is stored for them.
pub(super) fn judge(webhook: &Webhook, behind: &Behind, around: &Around<'_>) -> Vec<Finding> {
    let entry = &webhook.name;
    let now = around.now;
    let keeper = Keeper::of(webhook, behind);
    if webhook.ca_bundle.is_empty() {
        let text = format!("{entry} has no caBundle: the API server believes its own authorities only");
        let fix = keeper.fix(|| add_authority(webhook, false));
        return vec![match webhook.target {
            // Nobody else signs for a name like this.
            Target::Service { .. } => Finding::fault(AREA, text, fix),
            Target::Url(_) => Finding::warning(AREA, format!("{text}, which are not known here"), Some(fix)),
        }];
    }
    let bundle = match Bundle::read(&webhook.ca_bundle, now) {
        Ok(bundle) => bundle,
        Err(words) => {
            let text = format!("{entry}: caBundle {words}: the API server believes nobody");
            return vec![Finding::fault(AREA, text, keeper.fix(|| add_authority(webhook, false)))];
        }
    };
    let (answers, stored) = match behind {
        Behind::Answers(answers, stored) => (answers, stored),
        Behind::NoService(Service { namespace, name }, port) => {
            let text = format!("{entry} calls the Service {namespace}/{name}, which does not exist");
            let fix = format!(
                "kubectl -n {namespace} expose deployment edgeward --name={name} --port={port} --target-port=8443"
            );
            return vec![Finding::fault(AREA, text, fix)];
        }
        Behind::NoUrl(url) => {
            let text = format!("{entry} calls {url:?}, which is no https:// URL with a host");
            let fix = replace(webhook, "clientConfig/url", "\"https://HOST:8443/mutate\"");
            return vec![Finding::fault(AREA, text, fix)];
        }
        Behind::Unknown(why) => {
            let text = format!("who answers {entry} is not checked: {why}");
            return vec![Finding::warning(AREA, text, None)];
        }
    };
    let judge = Judge {
        bundle,
        keeper,
        webhook,
        now,
    };
    let mut findings: Vec<_> = answers.iter().map(|answer| judge.answer(answer)).collect();
    if let (true, Target::Service { namespace, .. }) = (answers.is_empty(), &webhook.target) {
        let text = format!("nobody answers {entry}: its Service has no ready endpoint");
        let wanted = around.wanted.filter(|_| namespace == around.home);
        let fix = leader::start(namespace, wanted);
        findings.push(Finding::fault(AREA, text, fix));
    }
    match stored {
        Ok(stored) => findings.extend(stored.iter().flat_map(|stored| judge.stored(stored))),
        Err(why) => {
            let text = format!("what replicas serve from is not checked: {why}");
            findings.push(Finding::warning(AREA, text, None));
        }
    }
    findings
}

/// By what is judged.
struct Judge<'w> {
    bundle: Bundle,
    keeper: Keeper<'w>,
    webhook: &'w Webhook,
    now: Timestamp,
}

impl Judge<'_> {
    fn answer(&self, answer: &Answer) -> Finding {
        let Answer { address, name, shown } = answer;
        match shown {
            Ok(chain) => {
                let by_hand = || {
                    format!("renew what --tls-cert and --tls-key name, for {name}; serve reads them again by itself")
                };
                let at = format!("at {address}");
                self.chain(chain, name, [&at, address], || self.keeper.fix(by_hand))
            }
            Err(words) => {
                let text =
                    format!("{address} cannot be looked at from here, so nothing is known of what it serves: {words}");
                // The API server's own answer.
                let ask = "edgeward review --live -n NAMESPACE -f POD.yaml".to_owned();
                Finding::warning(AREA, text, Some(ask))
            }
        }
    }

    /// What replicas serve once they have read it. A replica that refused it serves on what it has.
    fn stored(&self, stored: &Stored) -> Vec<Finding> {
        let secret = &stored.secret;
        let place = format!("Secret {}/{}", secret.namespace, secret.name);
        let put = || self.keeper.fix(|| stored.put());
        let contents = match &stored.contents {
            Ok(Some(contents)) => contents,
            Ok(None) => {
                let what = match secret.is_self_managed {
                    true => "no leader has made it, and replicas have nothing to serve",
                    false => "replicas that mount it do not start",
                };
                return vec![Finding::fault(AREA, format!("{place} does not exist: {what}"), put())];
            }
            Err(why) => {
                let text = format!("what is in {place} is not checked: {why}");
                return vec![Finding::warning(AREA, text, None)];
            }
        };
        let now = self.now;
        let mut findings = Vec::new();
        if secret.is_self_managed {
            let faults = tls::Stored::read(contents, &stored.service, now).faults;
            // What is served is judged below.
            let of_authorities = faults.into_iter().filter(|(key, _)| *key != secret.cert);
            findings.extend(of_authorities.map(|(key, fault)| {
                let text = format!("{place}: {key} cannot be used, and the leader has to make another: {fault}");
                Finding::fault(AREA, text, put())
            }));
        }
        let pem = |key: &String| contents.get(key).map_or(&[][..], |pem| pem);
        findings.push(match Pair::from_pem(pem(&secret.cert), pem(&secret.key), now) {
            Ok(pair) => {
                let (at, server) = (format!("in {place}"), format!("who serves from {place}"));
                let name = stored.service.dns_name();
                self.chain(&pair.key.cert, &name, [&at, &server], put)
            }
            Err(fault) => {
                let text = format!(
                    "{place} cannot be used, so replicas keep the certificate they have, and none starts: {fault}"
                );
                Finding::fault(AREA, text, put())
            }
        });
        findings
    }

    /// Whether a chain is believed that was found `at` a place, and is shown by `server` or, if it is stored, will be. `renew` is
    /// the command that puts another in its place.
    fn chain(
        &self,
        chain: &[CertificateDer<'static>],
        name: &str,
        [at, server]: [&str; 2],
        renew: impl FnOnce() -> String,
    ) -> Finding {
        let entry = &self.webhook.name;
        let error = match self.bundle.vouches(chain, name) {
            Ok(serving) => return self.believed(serving, &format!("{entry}: that {at}"), name, renew),
            Err(error) => error,
        };
        let text = format!("{entry}: the API server does not believe {server} to be {name}: its certificate {error}");
        let fix = match &error {
            // Of an authority in the bundle: another bundle fixes nothing.
            VerificationError::Certificate(_) => renew(),
            VerificationError::Authority(_) => self.keeper.fix(|| add_authority(self.webhook, true)),
        };
        Finding::fault(AREA, text, fix)
    }

    fn believed(&self, serving: Serving, what: &str, name: &str, renew: impl FnOnce() -> String) -> Finding {
        let Serving {
            life,
            not_after,
            authority_not_after,
        } = serving;
        let is_late = |end: Timestamp| end.duration_since(self.now) < min(LATE, life / 4);
        // A new leaf of it would help no longer.
        if authority_not_after < not_after && is_late(authority_not_after) {
            let text = format!("{what} is of an authority in caBundle that ends before it, at {authority_not_after}");
            let fix = self.keeper.fix(|| add_authority(self.webhook, true));
            return Finding::warning(AREA, text, Some(fix));
        }
        if is_late(not_after) {
            return Finding::warning(AREA, format!("{what} ends at {not_after}"), Some(renew()));
        }
        let end = min(not_after, authority_not_after);
        let text = format!("{what} is for {name}, of an authority in caBundle, until {end}");
        Finding::ok(AREA, text)
    }
}

impl Stored {
    /// The command that puts another pair in the place of this one. Without the files it does nothing.
    fn put(&self) -> String {
        let PairSecret {
            namespace,
            name,
            cert,
            key,
            ..
        } = &self.secret;
        if let Ok(None) = self.contents {
            return format!(
                "{FILES}kubectl -n {namespace} create secret generic {name} --type=kubernetes.io/tls --from-file={cert}=tls.crt \
                 --from-file={key}=tls.key"
            );
        }
        format!(
            "{FILES}kubectl -n {namespace} patch secret {name} -p '{{\"data\": {{\"{cert}\": \"'$(base64 -w0 tls.crt)'\", \
             \"{key}\": \"'$(base64 -w0 tls.key)'\"}}}}'"
        )
    }
}

/// The command that puts the authority in `ca.crt` into an entry's `caBundle`. It `keeps` what is there, because others may be
/// served by that. Without the file it does nothing.
fn add_authority(webhook: &Webhook, keeps: bool) -> String {
    let (old, value) = match keeps {
        true => (
            format!(
                "old=$(kubectl get mutatingwebhookconfiguration {} -o jsonpath='{{.webhooks[{}].clientConfig.caBundle}}') && ",
                webhook.configuration, webhook.position
            ),
            "\"'$( (echo \"$old\" | base64 -d; echo; cat ca.crt) | base64 -w0)'\"",
        ),
        false => (String::new(), "\"'$(base64 -w0 ca.crt)'\""),
    };
    format!(
        "test -s ca.crt && {old}{}",
        replace(webhook, "clientConfig/caBundle", value)
    )
}

/// Who brings bundle and certificate. What is patched by hand under a keeper is overwritten, or costs trust.
enum Keeper<'w> {
    /// cert-manager, from this Certificate (`namespace/name`).
    CertManager(&'w str),
    /// The leader, in this Secret.
    Leader(&'w PairSecret),
    Nobody,
    /// How replicas are started is not known.
    Unknown,
}

impl<'w> Keeper<'w> {
    fn of(webhook: &'w Webhook, behind: &'w Behind) -> Self {
        match (&webhook.injected, behind.self_managed(), behind) {
            (Some(certificate), ..) => Self::CertManager(certificate),
            (None, Some(secret), _) => Self::Leader(secret),
            (None, None, Behind::Answers(_, Ok(_)) | Behind::NoUrl(_)) => Self::Nobody,
            (None, None, _) => Self::Unknown,
        }
    }

    /// Where to look when they are not as they should be, and what to do where they are nobody's.
    fn fix(&self, by_hand: impl FnOnce() -> String) -> String {
        match self {
            Self::CertManager(certificate) => {
                let (namespace, name) = certificate.split_once('/').unwrap_or(("NAMESPACE", certificate));
                format!(
                    "kubectl -n {namespace} get certificates,certificaterequests   # cert-manager fills caBundle in from {name}: \
                     its controller and cainjector must run; `cmctl renew` has a certificate issued again"
                )
            }
            Self::Leader(PairSecret { namespace, name, .. }) => format!(
                "kubectl -n {namespace} logs -l app.kubernetes.io/name=edgeward --prefix --tail=-1 | grep -E 'certificate|caBundle'   \
                 # the leader keeps the Secret {name} and caBundle by itself: its log says what hinders it; its rights are those \
                 of certs/self-managed"
            ),
            Self::Nobody => by_hand(),
            Self::Unknown => format!("{}   # not with `serve --self-managed`: its leader does it", by_hand()),
        }
    }
}

#[cfg(test)]
mod tests;

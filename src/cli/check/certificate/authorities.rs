//! Where the authority of a certificate is to be had, and how it comes into `caBundle`.

use rustls::pki_types::CertificateDer;

use super::super::webhook::replace;
use super::{Around, Behind, Stored};
use crate::inspect::installation::{Bundle, PairSecret, Webhook};
use crate::tls::Pair;

/// The authority in a Secret, and in a file.
const AUTHORITY: &str = "ca.crt";

/// Where an authority is to be had that an entry's bundle lacks.
pub(super) struct Authorities<'w> {
    pub(super) webhook: &'w Webhook,
    pub(super) behind: &'w Behind,
    pub(super) around: &'w Around<'w>,
}

impl Authorities<'_> {
    /// The command that prints, as base64, PEM that vouches for this chain: from the Secret of replicas, or from another entry.
    pub(super) fn of(&self, chain: &[CertificateDer<'static>], name: &str) -> Option<String> {
        let vouches = |pem: &[u8]| {
            let bundle = Bundle::read(pem, self.around.now);
            bundle.is_ok_and(|bundle| bundle.vouches(chain, name).is_ok())
        };
        let has_it = |stored: &&Stored| {
            let contents = stored.contents.as_ref().ok().and_then(Option::as_ref);
            contents
                .and_then(|contents| contents.get(AUTHORITY))
                .is_some_and(|pem| vouches(pem))
        };
        let of_secret = self.stored().find(has_it).map(|stored| {
            let PairSecret { namespace, name, .. } = &stored.secret;
            format!("kubectl -n {namespace} get secret {name} -o jsonpath='{{.data.ca\\.crt}}'")
        });
        let mut others = self.around.ours.iter();
        let other = others.find(|other| other.position != self.webhook.position && vouches(&other.ca_bundle));
        of_secret.or_else(|| other.map(get_bundle))
    }

    /// [`Self::add`] for whatever is shown or stored, where no bundle is worth keeping.
    pub(super) fn known(&self) -> String {
        let Behind::Answers(answers, _) = self.behind else {
            return self.add(None, false);
        };
        let shown = answers.iter().filter_map(|answer| {
            let chain = answer.shown.as_ref().ok()?;
            self.of(chain, &answer.name)
        });
        let stored = self.stored().filter_map(|stored| {
            let PairSecret { cert, key, .. } = &stored.secret;
            let contents = stored.contents.as_ref().ok()?.as_ref()?;
            let pair = Pair::from_pem(contents.get(cert)?, contents.get(key)?, self.around.now).ok()?;
            self.of(&pair.key.cert, &stored.service.dns_name())
        });
        self.add(shown.chain(stored).next(), false)
    }

    fn stored(&self) -> impl Iterator<Item = &Stored> {
        let stored = match self.behind {
            Behind::Answers(_, Ok(stored)) => &stored[..],
            _ => &[],
        };
        stored.iter()
    }

    /// The command that puts an authority into the bundle: what `source` prints, or else a file. It `keeps` what is there, for
    /// others may be served by that, and does nothing where there is no authority to be had.
    pub(super) fn add(&self, source: Option<String>, keeps: bool) -> String {
        let source = source.unwrap_or_else(|| format!("base64 -w0 {AUTHORITY}"));
        let (old, value) = match keeps {
            true => (
                format!("old=$({}) && ", get_bundle(self.webhook)),
                "\"'$( (echo \"$old\" | base64 -d; echo; echo \"$ca\" | base64 -d) | base64 -w0)'\"",
            ),
            false => (String::new(), "\"'$ca'\""),
        };
        format!(
            "ca=$({source}) && test -n \"$ca\" && {old}{}",
            replace(self.webhook, "clientConfig/caBundle", value)
        )
    }
}

/// The command that prints the bundle of an entry.
fn get_bundle(webhook: &Webhook) -> String {
    let Webhook {
        configuration,
        position,
        ..
    } = webhook;
    format!(
        "kubectl get mutatingwebhookconfiguration {configuration} -o jsonpath='{{.webhooks[{position}].clientConfig.caBundle}}'"
    )
}

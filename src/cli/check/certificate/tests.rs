use std::ops::Range;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use super::super::finding::Level;
use super::*;
use crate::testkit::service;
use crate::tls;

const NAME: &str = "edgeward.edgeward-system.svc";

fn now() -> Timestamp {
    Facts::example().now
}

/// Makes a certificate valid for these hours from now.
fn set_validity(params: &mut CertificateParams, hours: Range<i64>) {
    let at = |hours: i64| {
        let second = now().as_second() + hours * 3600;
        date_time_ymd(1970, 1, 1) + Duration::from_secs(second.try_into().unwrap())
    };
    (params.not_before, params.not_after) = (at(hours.start), at(hours.end));
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(hours: Range<i64>) -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    set_validity(&mut params, hours);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// An authority that is valid now.
fn trusted() -> Authority {
    authority(-1..8760)
}

/// A certificate for `name` and its key, valid for these hours from now.
struct Leaf {
    chain: Chain,
    cert: String,
    key: String,
}

fn leaf(authority: &Authority, name: &str, hours: Range<i64>) -> Leaf {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    set_validity(&mut params, hours);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    Leaf {
        chain: vec![certificate.der().clone()],
        cert: certificate.pem(),
        key: key.serialize_pem(),
    }
}

fn shows(leaf: &Leaf) -> Behind {
    answers(Ok(leaf.chain.clone()))
}

fn answers(shown: Result<Chain, String>) -> Behind {
    Behind {
        name: NAME.into(),
        found: vec![Found::shown("10.0.0.1:8443", NAME, shown)],
        self_managed: None,
    }
}

fn webhook(bundle: &str) -> Webhook {
    Webhook::changed("pods.edgeward.io", 0, |entry| {
        entry.client_config.ca_bundle = Some(k8s_openapi::ByteString(bundle.into()));
    })
}

fn judge(webhook: &Webhook, behind: &Behind) -> Vec<Finding> {
    super::judge(&Facts {
        ours: Some(vec![webhook.clone()]),
        behind: [(webhook.target(), behind.clone())].into(),
        ..Facts::example()
    })
}

/// Returns the only finding about the certificate.
fn finding(webhook: &Webhook, behind: &Behind) -> Finding {
    let mut findings = judge(webhook, behind);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = findings.pop().unwrap();
    assert!(finding.level != Level::Fault || finding.fix.is_some(), "{finding:?}");
    finding
}

fn found(bundle: &str, behind: &Behind) -> (Level, String) {
    let finding = finding(&webhook(bundle), behind);
    (finding.level, finding.text)
}

#[test]
fn served_certificate_is_verified_against_ca_bundle() {
    let ours = trusted();
    let good = shows(&leaf(&ours, NAME, -24..24 * 60));
    assert_eq!(
        found(&ours.pem(), &good),
        (
            Level::Ok,
            "pods.edgeward.io: the certificate at 10.0.0.1:8443 is for edgeward.edgeward-system.svc, of an authority in \
             caBundle, until 2027-01-20T12:00:00Z"
                .into()
        )
    );
    let fault = |bundle: &str, behind: &Behind| {
        let (level, text) = found(bundle, behind);
        assert_eq!(level, Level::Fault, "{text}");
        text
    };
    let untrusting = "pods.edgeward.io: the API server does not trust the certificate at 10.0.0.1:8443 for \
                      edgeward.edgeward-system.svc, because it ";
    for bundle in ["", "pem"] {
        assert_eq!(
            fault(bundle, &good),
            "pods.edgeward.io: caBundle holds no certificate: the API server trusts no server"
        );
    }
    assert_eq!(
        fault(&trusted().pem(), &good),
        format!("{untrusting}is signed by no authority in caBundle")
    );
    let expired = shows(&leaf(&ours, NAME, -24..-12));
    assert_eq!(
        fault(&ours.pem(), &expired),
        format!("{untrusting}expired at 2026-11-21T00:00:00Z")
    );
    // A server that does not answer is not reported as good.
    let (level, text) = found(&ours.pem(), &answers(Err("timed out".into())));
    assert_eq!(level, Level::Warning);
    assert!(
        text.starts_with("10.0.0.1:8443 cannot be looked at from here"),
        "{text}"
    );
}

/// The issuer does not matter: a certificate this close to its end should have been renewed.
#[test]
fn certificate_or_authority_near_expiry_is_a_warning() {
    let ours = trusted();
    let level = |hours| found(&ours.pem(), &shows(&leaf(&ours, NAME, hours))).0;
    const DAY: i64 = 24;
    assert_eq!(level(-300 * DAY..15 * DAY), Level::Ok);
    assert_eq!(level(-300 * DAY..13 * DAY), Level::Warning);
    // A certificate with a life of one day: first a third of it is left, then less than a quarter.
    assert_eq!(level(-16..8), Level::Ok);
    assert_eq!(level(-19..5), Level::Warning);

    // The authority may end first.
    let ours = authority(-1..13 * DAY);
    let long = shows(&leaf(&ours, NAME, -300 * DAY..60 * DAY));
    let (level, text) = found(&ours.pem(), &long);
    assert!(
        level == Level::Warning && text.ends_with("until 2026-12-04T12:00:00Z"),
        "{text}"
    );
    let ours = authority(-1..15 * DAY);
    let (level, text) = found(&ours.pem(), &shows(&leaf(&ours, NAME, -300 * DAY..60 * DAY)));
    assert!(
        level == Level::Ok && text.ends_with("until 2026-12-06T12:00:00Z"),
        "{text}"
    );
}

/// A server behind a URL may have a certificate from a public CA.
#[test]
fn url_webhook_without_ca_bundle_is_only_a_warning() {
    let mut webhook = webhook("");
    webhook.entry.client_config.service = None;
    webhook.entry.client_config.url = Some("https://edgeward.example.com/mutate".into());
    let good = shows(&leaf(&trusted(), NAME, -24..24 * 60));
    assert_eq!(finding(&webhook, &good).level, Level::Warning);
}

/// No fix is a manual patch, whatever is wrong: it would remove what the leader needs.
#[test]
fn self_managed_certificate_fix_never_patches_ca_bundle() {
    let service = service();
    let life = |days: i64| SignedDuration::from_hours(24 * days);
    let ca = tls::Authority::make(&service, now(), life(3650)).unwrap();
    let (certificate, key) = (ca.certificate.as_bytes(), ca.key.as_bytes());
    let authority = tls::Authority::read(certificate, key, &service, now()).unwrap();
    let pair = authority.issue(&[service.dns_name()], now(), life(90)).unwrap();
    let mut contents = Contents::new();
    tls::stored::put_authority(&mut contents, ca.clone());
    tls::stored::put(&mut contents, tls::stored::LEAF, pair);
    let judged = |bundle: &str, contents: Option<&Contents>| {
        let secret = PairSecret {
            name: "edgeward-certificates".into(),
            is_self_managed: true,
            ..secret()
        };
        let behind = Behind {
            name: NAME.into(),
            found: vec![Found::stored(&secret, contents.cloned(), now())],
            self_managed: Some(secret),
        };
        let findings = judge(&webhook(bundle), &behind);
        for found in &findings {
            let is_by_leader = |fix: &String| fix.contains("certs/self-managed") && !fix.contains("patch");
            assert!(found.fix.iter().all(is_by_leader), "{found:?}");
        }
        let texts = findings.into_iter().map(|found| (found.level, found.text));
        texts.collect::<Vec<_>>()
    };
    let good = judged(&ca.certificate, Some(&contents));
    assert!(matches!(&good[..], [(Level::Ok, _)]), "{good:?}");
    for bundle in ["", "pem"] {
        let found = judged(bundle, Some(&contents));
        assert!(matches!(&found[..], [(Level::Fault, _)]), "{found:?}");
    }
    let missing = judged(&ca.certificate, None);
    assert_eq!(
        missing,
        [(
            Level::Fault,
            "Secret edgeward-system/edgeward-certificates does not exist: replicas have nothing to serve".to_owned()
        )]
    );
    contents.remove("tls.crt");
    let found = judged(&ca.certificate, Some(&contents));
    assert!(
        matches!(&found[..], [(Level::Fault, text)] if text.contains("cannot be used, so replicas keep")),
        "{found:?}"
    );
}

fn patch(value: &str) -> String {
    format!(
        "kubectl patch mutatingwebhookconfiguration zz-edgeward --type=json -p '[{{\"op\": \"add\", \"path\": \
         \"/webhooks/0/clientConfig/caBundle\", \"value\": \"'{value}'\"}}]'"
    )
}

fn secret() -> PairSecret {
    PairSecret {
        namespace: "edgeward-system".into(),
        name: "edgeward-tls".into(),
        is_self_managed: false,
    }
}

#[test]
fn fix_patches_ca_bundle_unless_expired_or_injected() {
    let ours = trusted();
    let good = shows(&leaf(&ours, NAME, -24..24 * 60));
    let fix = |webhook: &Webhook, behind: &Behind| finding(webhook, behind).fix.unwrap();
    let old = "kubectl get mutatingwebhookconfiguration zz-edgeward -o jsonpath='{.webhooks[0].clientConfig.caBundle}'";
    let both = "$( (echo \"$old\" | base64 -d; echo; cat ca.crt) | base64 -w0)";
    let more = format!("test -s ca.crt && old=$({old}) && {}", patch(both));
    let foreign = webhook(&trusted().pem());
    assert_eq!(fix(&foreign, &good), more);
    assert_eq!(fix(&webhook("pem"), &good), more);
    let expired = shows(&leaf(&ours, NAME, -24..-12));
    assert_eq!(
        fix(&webhook(&ours.pem()), &expired),
        "renew what --tls-cert and --tls-key name, for edgeward.edgeward-system.svc; serve reads them again by itself"
    );
    // cert-manager fills caBundle in, so a fix must not patch it.
    let injected = |mut webhook: Webhook| {
        let from = "cert-manager.io/inject-ca-from".to_owned();
        webhook.metadata.annotations = Some([(from, "edgeward-system/edgeward-ca".to_owned())].into());
        webhook
    };
    let cert_manager = "kubectl -n edgeward-system get certificates,certificaterequests   # cert-manager fills caBundle in from \
                        edgeward-ca: its controller and cainjector must run; `cmctl renew` has a certificate issued again";
    for webhook in [foreign, webhook(""), webhook("pem")] {
        assert_eq!(fix(&injected(webhook), &good), cert_manager);
    }
    assert_eq!(fix(&injected(webhook(&ours.pem())), &expired), cert_manager);
}

#[test]
fn stored_certificate_is_checked_as_replicas_would_load_it() {
    let ours = trusted();
    let good = leaf(&ours, NAME, -24..24 * 60);
    let judged = |pair: Option<(&str, &str)>| {
        let contents = |(cert, key): (&str, &str)| {
            Contents::from([("tls.crt".into(), cert.into()), ("tls.key".into(), key.into())])
        };
        let mut behind = shows(&good);
        behind.found.push(Found::stored(&secret(), pair.map(contents), now()));
        let mut findings = judge(&webhook(&ours.pem()), &behind);
        // The certificate that is served is still good.
        assert_eq!(findings.len(), 2, "{findings:#?}");
        assert_eq!(findings[0].level, Level::Ok);
        findings.pop().unwrap()
    };
    let good_one = judged(Some((&good.cert, &good.key)));
    assert_eq!(good_one.level, Level::Ok);
    assert!(
        good_one
            .text
            .starts_with("pods.edgeward.io: the certificate in Secret edgeward-system/edgeward-tls is for edgeward."),
        "{}",
        good_one.text
    );

    let foreign = leaf(&trusted(), NAME, -24..24 * 60);
    let refused = "Secret edgeward-system/edgeward-tls cannot be used, so replicas keep the certificate they have, and none \
                   starts: the private key does not belong to";
    let put = "kubectl -n edgeward-system create secret tls edgeward-tls --cert=tls.crt --key=tls.key --dry-run=client -o yaml | \
               kubectl -n edgeward-system apply -f -";
    let found = judged(Some((&good.cert, &foreign.key)));
    assert!(
        found.level == Level::Fault && found.text.starts_with(refused),
        "{found:?}"
    );
    assert_eq!(found.fix.as_deref(), Some(put));
    let found = judged(Some((&foreign.cert, &foreign.key)));
    assert_eq!(
        found.text,
        "pods.edgeward.io: the API server does not trust the certificate in Secret edgeward-system/edgeward-tls for \
         edgeward.edgeward-system.svc, because it is signed by no authority in caBundle"
    );
    assert!(found.fix.unwrap().starts_with("test -s ca.crt && "));
    let missing = judged(None);
    assert_eq!(
        (missing.level, &*missing.text),
        (
            Level::Fault,
            "Secret edgeward-system/edgeward-tls does not exist: replicas have nothing to serve"
        )
    );
    assert_eq!(missing.fix.as_deref(), Some(put));
}

use std::ops::Range;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use super::super::finding::Level;
use super::*;

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

/// A replica with a certificate of this authority, valid for these hours from now.
fn shows(authority: &Authority, hours: Range<i64>) -> Behind {
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    set_validity(&mut params, hours);
    let certificate = params.signed_by(&KeyPair::generate().unwrap(), authority).unwrap();
    answers(Ok(vec![certificate.der().clone()]))
}

fn answers(shown: Result<Chain, String>) -> Behind {
    Behind {
        name: NAME.into(),
        found: vec![Found {
            address: "10.0.0.1:8443".into(),
            chain: shown,
        }],
        self_managed: None,
    }
}

fn webhook(bundle: &str) -> Webhook {
    Webhook::changed("pods.edgeward.io", |entry| {
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
    let good = shows(&ours, -24..24 * 60);
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
    let expired = shows(&ours, -24..-12);
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
    let level = |hours| found(&ours.pem(), &shows(&ours, hours)).0;
    const DAY: i64 = 24;
    assert_eq!(level(-300 * DAY..15 * DAY), Level::Ok);
    assert_eq!(level(-300 * DAY..13 * DAY), Level::Warning);
    // A certificate with a life of one day: first a third of it is left, then less than a quarter.
    assert_eq!(level(-16..8), Level::Ok);
    assert_eq!(level(-19..5), Level::Warning);

    // The authority may end first.
    let ours = authority(-1..13 * DAY);
    let long = shows(&ours, -300 * DAY..60 * DAY);
    let (level, text) = found(&ours.pem(), &long);
    assert!(
        level == Level::Warning && text.ends_with("until 2026-12-04T12:00:00Z"),
        "{text}"
    );
    let ours = authority(-1..15 * DAY);
    let (level, text) = found(&ours.pem(), &shows(&ours, -300 * DAY..60 * DAY));
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
    let good = shows(&trusted(), -24..24 * 60);
    assert_eq!(finding(&webhook, &good).level, Level::Warning);
}

/// A patch by hand would remove what the leader needs.
#[test]
fn self_managed_certificate_fix_is_left_to_the_leader() {
    let ours = trusted();
    for (bundle, hours) in [
        ("", -1..24),
        ("pem", -1..24),
        (&*trusted().pem(), -1..24),
        (&*ours.pem(), -2..-1),
    ] {
        let behind = Behind {
            self_managed: Some(NamespacedName::parse("edgeward-certificates", "edgeward-system")),
            ..shows(&ours, hours)
        };
        let found = finding(&webhook(bundle), &behind);
        let fix = found.fix.unwrap();
        assert!(
            found.level == Level::Fault && fix.contains("certs/self-managed"),
            "{fix}"
        );
    }
}

#[test]
fn fix_is_left_to_cert_manager_if_it_injects() {
    let ours = trusted();
    let good = shows(&ours, -24..24 * 60);
    let fix = |webhook: &Webhook, behind: &Behind| finding(webhook, behind).fix.unwrap();
    let foreign = webhook(&trusted().pem());
    assert_eq!(fix(&foreign, &good), BY_HAND);
    assert_eq!(fix(&webhook("pem"), &good), BY_HAND);
    let expired = shows(&ours, -24..-12);
    assert_eq!(fix(&webhook(&ours.pem()), &expired), BY_HAND);
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

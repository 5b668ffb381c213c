use jiff::{SignedDuration, Timestamp};

use super::rotation::{Der, Serves};
use super::*;
use crate::testkit::{Log, service};

/// A new authority, and its leaf with a lifetime of one hour.
fn issued(now: Timestamp) -> (Authority, Pem) {
    let pem = Authority::make(&service(), now, SignedDuration::from_hours(24)).unwrap();
    let authority = Authority::read(pem.certificate.as_bytes(), pem.key.as_bytes(), &service(), now).unwrap();
    let leaf = authority
        .issue(&[service().dns_name()], now, SignedDuration::from_hours(1))
        .unwrap();
    (authority, leaf)
}

fn pair(leaf: &Pem, now: Timestamp) -> Pair {
    Pair::from_pem(leaf.certificate.as_bytes(), leaf.key.as_bytes(), now).unwrap()
}

/// A server whose Secret is not known yet.
async fn awaited() -> Certificates {
    let contents = watch::Sender::default().subscribe();
    let source = Source::Secret {
        contents,
        service: service(),
    };
    let loaded = Certificates::load(&source, None, Clock::start(), Arc::default()).await;
    loaded.unwrap()
}

#[tokio::test]
async fn expired_served_certificate_is_logged_as_error() {
    let log = Log::default();
    let to = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || to.clone()).finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    for (age, is_over) in [(SignedDuration::ZERO, false), (SignedDuration::from_hours(2), true)] {
        let made = Timestamp::now().checked_sub(age).unwrap();
        let mut certificates = awaited().await;
        certificates.take_over(pair(&issued(made).1, made));
        certificates.check_ends();
        let text = log.text();
        assert_eq!(
            text.contains("ERROR") && text.contains("past its end"),
            is_over,
            "{text}"
        );
    }
}

/// How a client that knows these authorities classifies a server with this leaf.
async fn seen(leaf: Option<&Pem>, made: Timestamp, known: &[&Authority], name: &str) -> Serves {
    let mut certificates = awaited().await;
    if let Some(leaf) = leaf {
        certificates.take_over(pair(leaf, made));
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = tokio_rustls::TlsAcceptor::from(certificates.settings.get_inner());
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream).await.ok()
    });
    let known: Vec<Der> = known.iter().map(|known| Arc::clone(&known.certificate.der)).collect();
    let seen = served(&address, name, &known, Timestamp::now()).await;
    serving.abort();
    seen
}

#[tokio::test]
async fn served_leaf_is_classified_by_its_authority() {
    let now = Timestamp::now();
    let name = service().dns_name();
    let ((ours, leaf), (other, _)) = (issued(now), issued(now));
    let of_ours = Serves::LeafOf(Arc::clone(&ours.certificate.der));
    assert_eq!(seen(Some(&leaf), now, &[&other, &ours], &name).await, of_ours);
    assert_eq!(seen(Some(&leaf), now, &[&other], &name).await, Serves::Other);
    assert_eq!(seen(Some(&leaf), now, &[], &name).await, Serves::Other);
    assert_eq!(
        seen(Some(&leaf), now, &[&ours], "other.example.svc").await,
        Serves::Other
    );
    let early = now.checked_sub(SignedDuration::from_hours(2)).unwrap();
    let (old, over) = issued(early);
    assert_eq!(seen(Some(&over), early, &[&old], &name).await, Serves::Other);
    assert_eq!(seen(None, now, &[&ours], &name).await, Serves::Nothing);
}

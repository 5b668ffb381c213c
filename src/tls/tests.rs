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

#[tokio::test]
async fn expired_served_certificate_is_logged_as_error() {
    let log = Log::default();
    let to = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || to.clone()).finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    let clock = Clock::start();
    for (age, is_over) in [(SignedDuration::ZERO, false), (SignedDuration::from_hours(2), true)] {
        let made = clock.wall().checked_sub(age).unwrap();
        let current = Current::new(clock, Arc::default()).unwrap();
        current.pair.store(Some(Arc::new(pair(&issued(made).1, made))));
        // It logs at once, then waits for a minute.
        let waited = tokio::time::timeout(Duration::from_millis(10), watch_ends(&current)).await;
        assert!(waited.is_err());
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
    let (secret, contents) = watch::channel(None);
    let source = Source::Secret {
        contents,
        service: service(),
        settle: Micros(0),
    };
    let certificates = Certificates::load(&source, None, Clock::start(), Arc::default())
        .await
        .unwrap();
    if let Some(leaf) = leaf {
        certificates.current.take_over(pair(leaf, made), "loaded");
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = tokio_rustls::TlsAcceptor::from(certificates.settings().get_inner());
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream).await.ok()
    });
    let known: Vec<Der> = known.iter().map(|known| Arc::clone(&known.certificate.der)).collect();
    let seen = served(&address, name, &known, Timestamp::now()).await;
    serving.abort();
    drop(secret);
    seen
}

#[test]
fn leaf_of_unsettled_authority_waits_while_another_is_served() {
    let clock = Clock::start();
    let start = clock.now();
    let after = |seconds| start.at(start.moment.after(Micros::from_secs(seconds)));
    let made = || {
        let (authority, leaf) = issued(start.wall);
        let leaf = Some(pair(&leaf, start.wall));
        Stored {
            authority: Some(authority),
            leaf,
            ..Stored::default()
        }
    };
    let current = Current::new(clock, Arc::default()).unwrap();
    let mut authorities = Authorities {
        settle: Micros::from_secs(60),
        since: Since::default(),
        serving: None,
    };
    let mut wait = |stored: &Stored, seconds| authorities.wait(stored, &current, after(seconds));
    let [first, mut second, mut third] = [made(), made(), made()];
    assert_eq!(wait(&first, 0), None, "there is none yet");
    let ends = first.leaf.as_ref().unwrap().certificate.ends;
    current.take_over(first.leaf.unwrap(), "loaded");
    assert_eq!(wait(&second, 1), Some(Duration::from_secs(60)));
    assert_eq!(wait(&second, 31), Some(Duration::from_secs(30)));
    assert_eq!(wait(&second, 61), None, "API servers have had their time");
    // The authority was stored as `next` before, as in a rotation.
    let leaf = third.leaf.take();
    second.next = third.authority.take();
    assert_eq!(wait(&second, 62), None);
    third.authority = second.next.take();
    third.leaf = leaf;
    assert_eq!(wait(&third, 123), None);
    // The wait ends with the current certificate.
    let left = u64::try_from(ends.duration_since(start.wall).as_secs()).unwrap();
    assert!(wait(&made(), left - 10).unwrap() < Duration::from_secs(11));
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

use std::fs;
use std::net::Ipv4Addr;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use serde_json::json;
use tempfile::TempDir;

use super::*;

type Authority = CertifiedIssuer<'static, KeyPair>;

const REPLY: &[u8] = br#"{"version": 1, "offers": []}"#;

fn authority() -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate with this URI name, its key, and the authorities that it trusts.
fn write(dir: &Path, authority: &Authority, uri: &str, trusted: &[&Authority]) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let trusted: String = trusted.iter().map(|authority| authority.pem()).collect();
    for (name, text) in [
        ("tls.crt", certificate.pem()),
        ("tls.key", key.serialize_pem()),
        ("ca.crt", trusted),
    ] {
        fs::write(dir.join(name), text).unwrap();
    }
}

async fn member(authority: &Authority, uri: &str) -> (TempDir, Membership) {
    let dir = TempDir::new().unwrap();
    write(dir.path(), authority, uri, &[authority]);
    let membership = Membership::open(dir.path(), Clock::start()).await.unwrap();
    (dir, membership)
}

fn settings_of(membership: &Membership, denied: &str) -> Arc<Settings> {
    let written = json!({"address": "192.0.2.1", "allowedCidrs": ["192.0.2.0/24"], "ownCidrs": [], "denied": [denied]});
    let settings: config::Peers = serde_json::from_value(written).unwrap();
    Arc::new(membership.settings(&settings))
}

/// A cluster that answers at a port.
struct Answering {
    port: u16,
    tls: RustlsConfig,
    membership: Membership,
    _dir: TempDir,
}

impl Answering {
    /// Answers every request of up to 9 bytes with a valid reply, and longer ones with one that is too long.
    async fn start(authority: &Authority, denied: &str) -> Self {
        let (dir, membership) = member(authority, "spiffe://edge.test/cluster/home").await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tls = RustlsConfig::from_config(Arc::clone(&membership.member.load().server));
        let (sender, mut asked) = mpsc::channel::<Asked>(WAITING);
        let report = Report {
            time: "2026-11-30T08:00:00Z".to_owned(),
            ..Report::default()
        };
        let (_, report) = watch::channel(Some(Arc::new(report)));
        let metrics = Arc::new(Metrics::new());
        let serving = server::serve(
            listener,
            tls.clone(),
            settings_of(&membership, denied),
            sender,
            report,
            metrics,
        );
        tokio::spawn(serving);
        tokio::spawn(async move {
            while let Some(asked) = asked.recv().await {
                let reply = if asked.request.len() < 10 {
                    REPLY.to_vec()
                } else {
                    vec![b' '; 16 * 1024 + 1]
                };
                asked.reply.send(Some(reply)).unwrap();
            }
        });
        Self {
            port,
            tls,
            membership,
            _dir: dir,
        }
    }

    /// Asks as this member.
    async fn asked_by(&self, membership: &Membership, denied: &str, bytes: usize) -> Result<Answer, String> {
        let client = Client {
            member: Arc::clone(&membership.member),
            settings: settings_of(membership, denied),
            port: self.port,
            clock: Clock::start(),
        };
        let asking = client.ask(Ipv4Addr::LOCALHOST.into(), vec![b' '; bytes]);
        asking.await.map_err(|error| format!("{error:#}"))
    }
}

#[tokio::test]
async fn only_members_of_the_federation_get_an_answer() {
    let authority = authority();
    let answering = Answering::start(&authority, "denied").await;
    let (_near, near) = member(&authority, "spiffe://edge.test/cluster/near").await;
    let answer = answering.asked_by(&near, "other", 1).await.unwrap();
    assert_eq!((answer.id.as_str(), &*answer.reply), ("home", REPLY));
    assert!(answer.report.unwrap().is_some());
    let error = answering.asked_by(&near, "home", 1).await.err().unwrap();
    assert!(
        error.contains("is not the name of a peer"),
        "the asking cluster denies the other: {error}"
    );

    for (uri, authority) in [
        ("spiffe://edge.test/cluster/denied", &authority),
        ("spiffe://other.test/cluster/near", &authority),
        ("spiffe://edge.test/cluster/home", &authority),
        ("spiffe://edge.test/cluster/near", &self::authority()),
    ] {
        let (_dir, stranger) = member(authority, uri).await;
        assert!(answering.asked_by(&stranger, "other", 1).await.is_err(), "{uri}");
    }
}

#[tokio::test]
async fn messages_and_reports_are_limited() {
    let authority = authority();
    let answering = Answering::start(&authority, "denied").await;
    let (_near, near) = member(&authority, "spiffe://edge.test/cluster/near").await;
    let ask = |bytes| answering.asked_by(&near, "other", bytes);
    assert_eq!(
        ask(16 * 1024 + 1).await.err().unwrap(),
        "it answered with 429 Too Many Requests"
    );
    assert!(ask(10).await.is_err(), "the reply is too long");
    assert!(ask(1).await.unwrap().report.unwrap().is_some());
    let again = ask(1).await.unwrap().report.unwrap_err().to_string();
    assert_eq!(again, "it answered with 429 Too Many Requests");
}

#[tokio::test]
async fn new_certificate_counts_for_the_same_cluster() {
    let (old, new) = (authority(), authority());
    let answering = Answering::start(&old, "denied").await;
    let (_near, near) = member(&old, "spiffe://edge.test/cluster/near").await;
    answering.asked_by(&near, "other", 1).await.unwrap();

    let load = |uri: &str, authority: &Authority, trusted: &[&Authority]| {
        let dir = TempDir::new().unwrap();
        write(dir.path(), authority, uri, trusted);
        let files = ["tls.crt", "tls.key", "ca.crt"].map(|name| dir.path().join(name));
        let contents = files.map(|path| Content {
            bytes: fs::read(&path).unwrap(),
            path,
        });
        let own = &answering.membership;
        let loaded = super::load(&own.id, &own.domain, &own.member, &contents, Clock::start());
        answering
            .tls
            .reload_from_config(Arc::clone(&answering.membership.member.load().server));
        loaded
    };
    let error = load("spiffe://edge.test/cluster/other", &new, &[&new]).unwrap_err();
    assert!(
        error.to_string().contains("cannot change while edgeward runs"),
        "{error}"
    );
    load("spiffe://edge.test/cluster/home", &old, &[&old, &new]).unwrap();
    answering.asked_by(&near, "other", 1).await.unwrap();
    load("spiffe://edge.test/cluster/home", &old, &[&new]).unwrap();
    let error = answering.asked_by(&near, "other", 1).await;
    assert!(error.is_err(), "the authority of the asking cluster was removed");
}

//! The Secret in which replicas share edgeward's own certificates.
//!
//! | keys | content |
//! |---|---|
//! | `ca.crt`, `ca.key` | the authority that signs |
//! | `tls.crt`, `tls.key` | the leaf that every replica serves |
//! | `next-ca.crt`, `next-ca.key` | the next authority, during a rotation |

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::sync::watch;

use super::authority::{Authority, Pem, Service};
use super::pair::Pair;
use super::rotation;
use super::verification::vouches;
use crate::instruments::metrics::Metrics;
use crate::watch::watcher;

/// The data of a Secret, by key.
pub type Contents = BTreeMap<String, Vec<u8>>;

/// What is in this Secret.
pub fn contents(secret: Secret) -> Contents {
    let data = secret.data.into_iter().flatten();
    data.map(|(key, value)| (key, value.0)).collect()
}

/// Sends the contents of the Secret whenever they change. Never returns. Sends nothing before the Secret first
/// exists, and empty contents once it is gone. If the API server does not answer, the last contents stay. A failure
/// is logged, counted and retried after a pause.
pub async fn follow(
    client: Client,
    namespace: String,
    name: String,
    contents: watch::Sender<Option<Arc<Contents>>>,
    metrics: Arc<Metrics>,
) {
    let secrets = Api::<Secret>::namespaced(client, &namespace);
    let mut secrets = watcher::object("secrets", secrets, &name, metrics);
    while let Some(secret) = secrets.next().await {
        let now = secret.map_or_else(Contents::new, self::contents);
        contents.send_if_modified(|known| {
            let has_changed = known.as_ref().map_or(!now.is_empty(), |known| **known != now);
            if has_changed {
                *known = Some(Arc::new(now));
            }
            has_changed
        });
    }
}

const AUTHORITY: [&str; 2] = ["ca.crt", "ca.key"];
/// Keys of the next authority.
pub const NEXT: [&str; 2] = ["next-ca.crt", "next-ca.key"];
/// Keys of the leaf, which the current authority signed.
pub const LEAF: [&str; 2] = ["tls.crt", "tls.key"];

/// The usable certificates of a Secret, and why the others are unusable.
#[derive(Debug, Default)]
pub struct Stored {
    /// The authority that signs.
    pub authority: Option<Authority>,
    /// The authority that will replace it.
    pub next: Option<Authority>,
    /// The leaf to serve: for our Service's name, signed by `authority`.
    pub leaf: Option<Pair>,
    /// Unusable certificates, by their key in the Secret.
    pub faults: Vec<(&'static str, anyhow::Error)>,
}

impl Stored {
    /// Reads a Secret. A missing certificate is not a fault.
    pub fn read(contents: &Contents, service: &Service, now: Timestamp) -> Self {
        let mut stored = Self::default();
        let authority = |[certificate, key]: [&[u8]; 2]| Authority::read(certificate, key, service, now);
        stored.authority = stored.take(contents, AUTHORITY, authority);
        stored.next = stored.take(contents, NEXT, authority);
        let signer = stored.authority.as_ref().map(|authority| authority.certificate.clone());
        stored.leaf = stored.take(contents, LEAF, |[certificate, key]| {
            let pair = Pair::from_pem(certificate, key, now)?;
            // Without an authority, the leaf is refused as unverified.
            let signer = signer.map(|signer| signer.der).unwrap_or_default();
            let vouched = vouches(&signer, &pair.key.cert, &service.dns_name(), now);
            vouched
                .map_err(|error| anyhow!("the certificate is not one that {} vouches for: {error}", AUTHORITY[0]))?;
            Ok(pair)
        });
        stored
    }

    fn take<T>(
        &mut self,
        contents: &Contents,
        [certificate, key]: [&'static str; 2],
        read: impl FnOnce([&[u8]; 2]) -> anyhow::Result<T>,
    ) -> Option<T> {
        let half = |present, missing| Err(anyhow!("{present} is there and {missing} is not"));
        let result = match [certificate, key].map(|key| contents.get(key)) {
            [Some(certificate), Some(key)] => read([certificate, key]),
            [Some(_), None] => half(certificate, key),
            [None, Some(_)] => half(key, certificate),
            [None, None] => return None,
        };
        result.map_err(|fault| self.faults.push((certificate, fault))).ok()
    }

    /// All faults as one text; empty if there is none.
    pub fn faults(&self) -> String {
        let faults = self.faults.iter().map(|(key, fault)| format!("{key}: {fault}"));
        faults.collect::<Vec<_>>().join("; ")
    }

    /// The certificates without keys, as [`rotation::RotationState`] needs them.
    pub fn in_short(&self) -> rotation::Stored {
        let certificate = |authority: &Authority| authority.certificate.clone();
        rotation::Stored {
            authority: self.authority.as_ref().map(certificate),
            next: self.next.as_ref().map(certificate),
            leaf: self.leaf.as_ref().map(|pair| pair.certificate.clone()),
        }
    }
}

/// Stores a certificate and its key. Returns the key of the certificate in the Secret.
pub fn put(contents: &mut Contents, [certificate, key]: [&'static str; 2], pem: Pem) -> &'static str {
    contents.insert(certificate.to_owned(), pem.certificate.into_bytes());
    contents.insert(key.to_owned(), pem.key.into_bytes());
    certificate
}

/// Stores a new authority and removes the next one and the leaf. Returns the key of the authority's certificate in the
/// Secret.
pub fn put_authority(contents: &mut Contents, authority: Pem) -> &'static str {
    contents.retain(|key, _| !NEXT.contains(&&**key) && !LEAF.contains(&&**key));
    put(contents, AUTHORITY, authority)
}

/// Makes the next authority the signing one and stores its leaf. Returns the key of the leaf's certificate in the
/// Secret.
pub fn promote(contents: &mut Contents, leaf: Pem) -> &'static str {
    for (from, to) in NEXT.into_iter().zip(AUTHORITY) {
        if let Some(value) = contents.remove(from) {
            contents.insert(to.to_owned(), value);
        }
    }
    put(contents, LEAF, leaf)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::testkit::service;

    const LIFE: SignedDuration = SignedDuration::from_hours(24);

    fn now() -> Timestamp {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }

    fn read(contents: &Contents) -> Stored {
        Stored::read(contents, &service(), now())
    }

    fn authority() -> Pem {
        Authority::make(&service(), now(), LIFE).unwrap()
    }

    fn leaf_of(authority: &Authority) -> Pem {
        authority.issue(&[service().dns_name()], now(), LIFE).unwrap()
    }

    /// Which of authority, next and leaf are usable, and the faults.
    fn shown(contents: &Contents) -> ([bool; 3], String) {
        let stored = read(contents);
        let there = [stored.authority.is_some(), stored.next.is_some(), stored.leaf.is_some()];
        let faults = stored.faults.iter().map(|(key, fault)| format!("{key}: {fault}\n"));
        (there, faults.collect())
    }

    #[test]
    fn stored_rotation_steps_are_read_back() {
        let mut contents = Contents::from([("note".to_owned(), b"of somebody else".to_vec())]);
        assert_eq!(shown(&contents), ([false; 3], String::new()));
        put_authority(&mut contents, authority());
        assert_eq!(shown(&contents), ([true, false, false], String::new()));
        let leaf = leaf_of(read(&contents).authority.as_ref().unwrap());
        put(&mut contents, LEAF, leaf);
        assert_eq!(shown(&contents), ([true, false, true], String::new()));
        put(&mut contents, NEXT, authority());
        assert_eq!(shown(&contents), ([true, true, true], String::new()));
        let next = read(&contents).next.unwrap();
        promote(&mut contents, leaf_of(&next));
        assert_eq!(shown(&contents), ([true, false, true], String::new()));
        assert_eq!(read(&contents).in_short().authority, Some(next.certificate));
        put_authority(&mut contents, authority());
        assert_eq!(shown(&contents), ([true, false, false], String::new()));
        assert!(contents.contains_key("note"));
    }

    #[test]
    fn unusable_stored_certificate_is_reported_by_its_key() {
        let mut good = Contents::new();
        put_authority(&mut good, authority());
        let signer = read(&good).authority.unwrap();
        put(&mut good, LEAF, leaf_of(&signer));
        let with = |key: &str, value: Option<&str>| {
            let mut contents = good.clone();
            match value {
                Some(value) => drop(contents.insert(key.to_owned(), value.as_bytes().to_vec())),
                None => drop(contents.remove(key)),
            }
            shown(&contents)
        };
        let (there, faults) = with("tls.crt", Some("rubbish"));
        assert_eq!(there, [true, false, false]);
        assert!(
            faults.starts_with("tls.crt: ") && faults.contains("no CERTIFICATE block"),
            "{faults}"
        );
        let (there, faults) = with("tls.key", None);
        assert_eq!(
            (there, &*faults),
            ([true, false, false], "tls.crt: tls.crt is there and tls.key is not\n")
        );
        let (there, faults) = with("tls.key", Some(&leaf_of(&signer).key));
        assert!(!there[2] && faults.contains("does not belong"), "{faults}");
        // The authority is broken; then another authority with the same name.
        for other in ["rubbish".to_owned(), authority().certificate] {
            let (there, faults) = with("ca.crt", Some(&other));
            assert_eq!(there, [false; 3]);
            assert!(
                faults.contains("ca.crt: ") && faults.contains("tls.crt: the certificate is not one that ca.crt"),
                "{faults}"
            );
        }
        let (there, faults) = with("next-ca.crt", Some("rubbish"));
        assert_eq!(
            (there, &*faults),
            (
                [true, false, true],
                "next-ca.crt: next-ca.crt is there and next-ca.key is not\n"
            )
        );

        let later = now().checked_add(LIFE * 2).unwrap();
        let stored = Stored::read(&good, &service(), later);
        assert!(stored.authority.is_none() && stored.leaf.is_none());
        assert!(
            stored
                .faults
                .iter()
                .all(|(_, fault)| fault.to_string().contains("expired at")),
            "{stored:?}"
        );
        // A leaf for another name.
        let other = signer.issue(&["other.example.svc".to_owned()], now(), LIFE).unwrap();
        put(&mut good, LEAF, other);
        let (there, faults) = shown(&good);
        assert!(
            there == [true, false, false] && faults.contains("not valid for name"),
            "{faults}"
        );
    }
}

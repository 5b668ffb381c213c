//! Rotation of edgeward's own certificates: computes the next step from the Secret, the bundles, and the certificates
//! that replicas serve.
//!
//! One authority signs one leaf, which every replica serves. Both are stored in one Secret. API servers learn
//! authorities from bundles (`caBundle`).
//!
//! A new authority is first stored as `next` and added to every bundle. Once it has settled everywhere, it becomes the
//! signing authority, with a new leaf. Once every replica serves a leaf of a stored authority, edgeward's other
//! authorities leave the bundles. The state of a rotation is only what is stored and what the bundles hold, so any new
//! leader can continue it. See `docs/design/certificates.md`.
//!
//! **Invariant**: no replica serves a leaf that an API server distrusts, if that API server trusted us before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use edgeward_kube::units::{Micros, Moment};
use jiff::{SignedDuration, Timestamp};
use x509_parser::prelude::X509Certificate;

use super::verification::validity;

/// The DER encoding of a certificate, which identifies it.
pub type Der = Arc<[u8]>;

/// How far `not_before` of our certificates is backdated, so that clients with a slow clock accept them.
pub(super) const BACKDATED: SignedDuration = SignedDuration::from_hours(1);

/// A certificate with its lifetime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The DER encoding.
    pub der: Der,
    /// When it was made, by the maker's wall clock.
    pub made: Timestamp,
    /// When it expires.
    pub ends: Timestamp,
}

impl Certificate {
    /// Reads a certificate that edgeward made: `made` is `not_before` plus [`BACKDATED`].
    pub(super) fn read(der: &[u8], parsed: &X509Certificate<'_>) -> Self {
        let (from, ends) = validity(parsed);
        Self {
            der: Der::from(der),
            made: from.saturating_add(BACKDATED).unwrap_or(from),
            ends,
        }
    }

    /// Whether two thirds of its lifetime have passed.
    pub fn is_due(&self, wall: Timestamp) -> bool {
        let life = self.ends.duration_since(self.made);
        wall.duration_since(self.made) >= life / 3 * 2
    }

    /// Whether it has expired.
    pub fn has_expired(&self, wall: Timestamp) -> bool {
        wall >= self.ends
    }
}

/// Lifetimes of our certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lives {
    /// Lifetime of the authority.
    pub authority: Micros,
    /// Lifetime of the leaf.
    pub leaf: Micros,
}

/// The longest time an API server may take to trust a bundle after it was written.
const SETTLE: Micros = Micros::from_secs(60);

/// The longest pause between two steps.
const PERIOD: Micros = Micros::from_secs(10);

/// Shortest and longest lifetime of a leaf. Many clients refuse more than 397 days.
const LEAF: [&str; 2] = ["15s", "9528h"];

/// Longest lifetime of an authority: 100 years.
const AUTHORITY: &str = "876000h";

/// The authority must live at least this many times as long as a leaf. A leaf signed before the authority is due (at
/// two thirds) then expires before the authority does.
const LEAVES: u64 = 3;

impl Lives {
    /// Parses durations such as `2160h`.
    ///
    /// # Errors
    /// The text names the option, the given value and the allowed range.
    pub fn read(authority: &str, leaf: &str) -> anyhow::Result<Self> {
        let read = |option: &str, text: &str, [least, most]: [&str; 2]| {
            let allowed = Micros::parse(least)..=Micros::parse(most);
            let life = Micros::parse(text).filter(|life| allowed.contains(&Some(*life)));
            life.with_context(|| format!("{option}: {text:?} is not a duration from {least} to {most}, such as 2160h"))
        };
        let lives = Self {
            authority: read("--ca-life", authority, [LEAF[0], AUTHORITY])?,
            leaf: read("--certificate-life", leaf, LEAF)?,
        };
        ensure!(
            lives.authority.0 / LEAVES >= lives.leaf.0,
            "--ca-life: {authority:?} is less than {LEAVES} times the --certificate-life {leaf:?}"
        );
        Ok(lives)
    }

    /// How long an authority must have been in every bundle before its leaf is served: 60 s, or a twentieth of its
    /// lifetime if that is less.
    pub fn settle(self) -> Micros {
        SETTLE.min(Micros(self.authority.0 / 20))
    }

    /// Pause between steps when there is nothing to do: 10 s, or a thirtieth of the leaf's lifetime if that is less.
    pub fn period(self) -> Micros {
        PERIOD.min(Micros(self.leaf.0 / 30))
    }
}

/// The stored certificates that are valid. A certificate is left out if it is not edgeward's, does not match its key,
/// or has expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The authority that signs.
    pub authority: Option<Certificate>,
    /// The authority that will replace it.
    pub next: Option<Certificate>,
    /// The leaf that replicas serve: for our Service's name, signed by `authority`.
    pub leaf: Option<Certificate>,
}

/// Since when each authority has been in every bundle, as this process has observed.
#[derive(Debug, Default)]
pub struct Published(BTreeMap<Der, Moment>);

impl Published {
    /// Records which of edgeward's authorities each bundle holds now.
    pub fn observe(&mut self, bundles: &[Vec<Certificate>], now: Moment) {
        let everywhere = bundles.iter().map(ders).reduce(|found, bundle| &found & &bundle);
        let everywhere = everywhere.unwrap_or_default();
        self.0.retain(|der, _| everywhere.contains(der));
        for der in everywhere {
            self.0.entry(der).or_insert(now);
        }
    }

    /// Returns the authorities that have been in every bundle for at least `settle`.
    pub fn settled(&self, settle: Micros, now: Moment) -> BTreeSet<Der> {
        let settled = self.0.iter().filter(|(_, since)| now.since(**since) >= settle);
        settled.map(|(der, _)| Arc::clone(der)).collect()
    }
}

/// Returns the DER encodings of these certificates.
pub fn ders<'c>(certificates: impl IntoIterator<Item = &'c Certificate>) -> BTreeSet<Der> {
    let ders = certificates.into_iter().map(|certificate| Arc::clone(&certificate.der));
    ders.collect()
}

/// The certificate that a replica presents in a TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serves {
    /// A leaf for our name, signed by this authority, which is stored or in a bundle.
    LeafOf(Der),
    /// A certificate that none of our authorities vouches for.
    Other,
    /// No answer, or no certificate.
    Nothing,
}

/// A replica behind our Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its address, for logs.
    pub address: String,
    /// Whether the cluster routes new connections to it.
    pub is_ready: bool,
    /// The certificate that it presented.
    pub serves: Serves,
}

/// All inputs of the next step.
#[derive(Debug, Clone, Copy)]
pub struct RotationState<'a> {
    /// The stored certificates.
    pub stored: &'a Stored,
    /// The authorities of ours in each bundle. They must be read before `stored` is: a write to the bundle version read
    /// here is then never based on an older `stored`. Empty if no API server calls us.
    pub bundles: &'a [Vec<Certificate>],
    /// The result of [`Published::settled`].
    pub settled: &'a BTreeSet<Der>,
    /// Every replica. `None` until they are inspected, which costs one handshake each.
    pub replicas: Option<&'a [Replica]>,
    /// The wall clock.
    pub wall: Timestamp,
}

/// The next action. Each is at most one write, which fails if what it is based on has changed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Do nothing until something changes or time has passed.
    Wait,
    /// Find out what the replicas serve; the next step depends on it.
    InspectReplicas,
    /// Keep old authorities in the bundles while the replicas at these addresses may serve a leaf of them. If the list
    /// is empty, wait until a ready replica is seen.
    Await(Vec<String>),
    /// Store a new authority, and drop the leaf.
    NewAuthority,
    /// Store a new authority as `next`.
    NewNext,
    /// Make `next` the signing authority, and store a leaf of it.
    Promote,
    /// Store a new leaf of the signing authority.
    NewLeaf,
    /// Write each bundle with exactly these of our authorities.
    Bundles(Vec<BTreeSet<Der>>),
}

impl RotationState<'_> {
    /// Returns the next step.
    pub fn next_step(&self) -> Step {
        let stands = |certificate: &&Certificate| !certificate.has_expired(self.wall);
        let authority = self.stored.authority.as_ref().filter(stands);
        let next = self.stored.next.as_ref().filter(stands);
        let leaf = self.stored.leaf.as_ref().filter(stands).filter(|_| authority.is_some());
        let wanted = ders(authority.into_iter().chain(next));
        if wanted.is_empty() {
            return Step::NewAuthority;
        }
        // An authority in one bundle may be needed in all of them. An unneeded one is removed from all at once.
        let known = &ders(self.bundles.iter().flatten().filter(stands)) | &wanted;
        if self.of_bundles().any(|bundle| !bundle.is_superset(&known)) {
            return Step::Bundles(self.of_bundles().map(|bundle| &bundle | &known).collect());
        }

        let signer = next.filter(|next| self.is_settled(next)).or(authority).or(next);
        let is_due = leaf.is_none_or(|leaf| leaf.is_due(self.wall));
        if let Some(signer) = signer {
            let step = match next == Some(signer) {
                true => Step::Promote,
                false => Step::NewLeaf,
            };
            match self.is_settled(signer) {
                true if is_due || step == Step::Promote => return step,
                // A client that trusts the current leaf also trusts another leaf of the same authority.
                false if is_due && leaf.is_some() => return step,
                // No replica serves a trusted leaf yet, so no client can lose trust.
                false if leaf.is_none() => match self.replicas {
                    None => return Step::InspectReplicas,
                    Some(replicas) if !replicas.iter().any(Replica::may_be_trusted) => return step,
                    Some(_) => {}
                },
                _ => {}
            }
        }
        if next.is_none() && authority.is_some_and(|authority| authority.is_due(self.wall)) {
            return Step::NewNext;
        }
        self.prune(&wanted)
    }

    fn is_settled(&self, authority: &Certificate) -> bool {
        self.bundles.is_empty() || self.settled.contains(&authority.der)
    }

    fn of_bundles(&self) -> impl Iterator<Item = BTreeSet<Der>> {
        self.bundles.iter().map(ders)
    }

    /// Removes old authorities from the bundles once every ready replica serves a leaf of a wanted one, and no replica a
    /// leaf of another. Our clock alone removes nothing, not even an expired authority.
    fn prune(&self, wanted: &BTreeSet<Der>) -> Step {
        if self.of_bundles().all(|bundle| bundle.is_subset(wanted)) {
            return Step::Wait;
        }
        let Some(replicas) = self.replicas else {
            return Step::InspectReplicas;
        };
        let is_awaited = |replica: &&Replica| match replica.signer() {
            Some(signer) => !wanted.contains(signer),
            // It may serve an old leaf that was not recognized.
            None => replica.is_ready,
        };
        let awaited: Vec<_> = replicas.iter().filter(is_awaited).collect();
        if !awaited.is_empty() || !replicas.iter().any(|replica| replica.is_ready) {
            return Step::Await(awaited.iter().map(|replica| replica.address.clone()).collect());
        }
        Step::Bundles(self.of_bundles().map(|bundle| &bundle & wanted).collect())
    }
}

impl Replica {
    /// The authority of the leaf that it presented.
    fn signer(&self) -> Option<&Der> {
        match &self.serves {
            Serves::LeafOf(authority) => Some(authority),
            Serves::Other | Serves::Nothing => None,
        }
    }

    /// Whether an API server might accept what it presents, as far as was seen.
    fn may_be_trusted(&self) -> bool {
        // A replica that has no leaf yet is not ready.
        self.signer().is_some() || (self.serves == Serves::Nothing && self.is_ready)
    }
}

#[cfg(test)]
mod tests;

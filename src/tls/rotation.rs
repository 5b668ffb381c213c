//! How certificates of our own follow each other: from what is stored, what API servers trust and who serves
//! what, to the next step.
//!
//! There is one authority, which signs one leaf that every replica serves. Both are stored in one place, and API servers
//! know authorities by bundles. An authority that is to follow is stored as `next` and added to the bundles; when that has
//! settled everywhere it takes over, with a leaf of its own; when every replica serves a leaf of what is stored, what else is
//! ours leaves the bundles. So the state of a rotation is what is stored and what is in the bundles, and whoever leads goes on
//! from there. See `docs/design/certificates.md`.
//!
//! **Invariant**: no replica serves a leaf that an API server which trusted us before does not trust.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edgeward_core::units::{Micros, Moment};
use jiff::{SignedDuration, Timestamp};
use x509_parser::prelude::X509Certificate;

use super::verification::validity;

/// A certificate by its DER: the same bytes are the same certificate.
pub type Der = Arc<[u8]>;

/// How much earlier than it was made a certificate of ours begins: clients whose clock is behind ours must not see one from the
/// future.
pub(super) const BACKDATED: SignedDuration = SignedDuration::from_hours(1);

/// When a certificate was made, and when it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate itself.
    pub der: Der,
    /// When it was made, by the wall clock of whoever did.
    pub made: Timestamp,
    /// Its end.
    pub ends: Timestamp,
}

impl Certificate {
    /// The certificate, whose times are as we make them.
    pub(super) fn read(der: &[u8], parsed: &X509Certificate<'_>) -> Self {
        let (from, ends) = validity(parsed);
        Self {
            der: Der::from(der),
            made: from.saturating_add(BACKDATED).unwrap_or(from),
            ends,
        }
    }

    /// Whether two thirds of its life are over.
    pub fn is_due(&self, wall: Timestamp) -> bool {
        let life = self.ends.duration_since(self.made);
        wall.duration_since(self.made) >= life / 3 * 2
    }

    /// Whether its end is past.
    pub fn has_expired(&self, wall: Timestamp) -> bool {
        wall >= self.ends
    }
}

/// How long certificates live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lives {
    /// The authority.
    pub authority: Micros,
    /// The leaf.
    pub leaf: Micros,
}

/// The longest that an API server may take to trust by a bundle that was stored.
const SETTLE: Micros = Micros::from_secs(60);

/// The longest pause between two steps.
const PERIOD: Micros = Micros::from_secs(10);

/// The shortest and the longest life of a leaf. More than 397 days is what many clients refuse.
const LEAF: [&str; 2] = ["15s", "9528h"];

/// The longest life of an authority, a hundred years.
const AUTHORITY: &str = "876000h";

/// How often the leaf must fit into the authority's life: then one that is signed before the authority is due is never over
/// later than the authority.
const LEAVES: u64 = 3;

impl Lives {
    /// Reads durations such as `2160h`.
    ///
    /// # Errors
    /// Every fault, with the option, what it says, and what it may say.
    pub fn read(authority: &str, leaf: &str) -> Result<Self, Vec<String>> {
        let read = |option: &str, text: &str, [least, most]: [&str; 2]| {
            let allowed = Micros::parse(least)..=Micros::parse(most);
            let life = Micros::parse(text).filter(|life| allowed.contains(&Some(*life)));
            life.ok_or_else(|| format!("{option}: {text:?} is not a duration from {least} to {most}, such as 2160h"))
        };
        let of_authority = read("--ca-life", authority, [LEAF[0], AUTHORITY]);
        match (of_authority, read("--certificate-life", leaf, LEAF)) {
            (Ok(authority), Ok(leaf)) if authority.0 / LEAVES >= leaf.0 => Ok(Self { authority, leaf }),
            (Ok(_), Ok(_)) => Err(vec![format!(
                "--ca-life: {authority:?} is less than {LEAVES} times the --certificate-life {leaf:?}"
            )]),
            (authority, leaf) => Err([authority.err(), leaf.err()].into_iter().flatten().collect()),
        }
    }

    /// How long an authority must have been in every bundle before a leaf of it is served: 60 s, or a twentieth of its life
    /// where that is less.
    pub fn settle(self) -> Micros {
        SETTLE.min(Micros(self.authority.0 / 20))
    }

    /// How long to pause when there is nothing to do: 10 s, or a thirtieth of the leaf's life where that is less.
    pub fn period(self) -> Micros {
        PERIOD.min(Micros(self.leaf.0 / 30))
    }
}

/// What is stored and valid. What is not ours, does not belong to its key or is over is as if it were not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The authority that signs.
    pub authority: Option<Certificate>,
    /// The one that is to follow it.
    pub next: Option<Certificate>,
    /// What the replicas are to serve: for our name, and of the authority that signs.
    pub leaf: Option<Certificate>,
}

/// Since when authorities have been in a place, as one process has seen it.
#[derive(Debug, Default)]
pub(super) struct Since(BTreeMap<Der, Moment>);

impl Since {
    /// These are there at this moment, and no others.
    pub(super) fn observe(&mut self, there: &BTreeSet<Der>, now: Moment) {
        self.0.retain(|der, _| there.contains(der));
        for der in there {
            self.0.entry(Arc::clone(der)).or_insert(now);
        }
    }

    /// How long this one has been there.
    pub(super) fn age(&self, der: &Der, now: Moment) -> Micros {
        self.0.get(der).map_or(Micros(0), |since| now.since(*since))
    }

    /// Those that have been there for so long.
    fn settled(&self, settle: Micros, now: Moment) -> BTreeSet<Der> {
        let settled = self.0.keys().filter(|der| self.age(der, now) >= settle);
        settled.map(Arc::clone).collect()
    }
}

/// Since when authorities have been in every bundle, and since when they have been in one without being stored.
#[derive(Debug, Default)]
pub struct Published {
    everywhere: Since,
    abandoned: Since,
}

impl Published {
    /// This is stored, and these are the authorities of ours in each bundle at this moment.
    pub fn observe(&mut self, stored: &Stored, bundles: &[Vec<Certificate>], now: Moment) {
        let bundles: Vec<_> = bundles.iter().map(ders).collect();
        let found: BTreeSet<Der> = bundles.iter().flatten().map(Arc::clone).collect();
        let everywhere = bundles.iter().fold(found.clone(), |found, bundle| &found & bundle);
        let stored = ders(stored.authority.iter().chain(&stored.next));
        self.everywhere.observe(&everywhere, now);
        self.abandoned.observe(&(&found - &stored), now);
    }

    /// Those that have been everywhere for so long.
    pub fn settled(&self, settle: Micros, now: Moment) -> BTreeSet<Der> {
        self.everywhere.settled(settle, now)
    }

    /// Those in bundles that have not been stored for so long.
    pub fn abandoned(&self, settle: Micros, now: Moment) -> BTreeSet<Der> {
        self.abandoned.settled(settle, now)
    }
}

/// The bytes of each of these.
pub fn ders<'c>(certificates: impl IntoIterator<Item = &'c Certificate>) -> BTreeSet<Der> {
    let ders = certificates.into_iter().map(|certificate| Arc::clone(&certificate.der));
    ders.collect()
}

/// What a replica shows whoever connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serves {
    /// A leaf for our name of this authority, which is stored or in a bundle.
    LeafOf(Der),
    /// Something that no authority of ours vouches for any more, or ever did.
    Other,
    /// Nobody answers, or without a certificate.
    Nothing,
}

/// A replica, as the cluster routes to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Where it is, for people.
    pub address: String,
    /// Whether new connections are led there.
    pub is_ready: bool,
    /// What was seen.
    pub serves: Serves,
}

/// Everything that the next step depends on.
#[derive(Debug, Clone, Copy)]
pub struct RotationState<'a> {
    /// What is stored.
    pub stored: &'a Stored,
    /// The authorities of ours in each bundle, read before `stored` was: then what is written to bundles in the version that
    /// was read never goes by something older than they do. None where no API server calls us.
    pub bundles: &'a [Vec<Certificate>],
    /// [`Published::settled`].
    pub settled: &'a BTreeSet<Der>,
    /// [`Published::abandoned`], for as long: what replicas have not taken up in that time they do not.
    pub abandoned: &'a BTreeSet<Der>,
    /// Every replica; `None` before they were inspected, which costs a handshake each.
    pub replicas: Option<&'a [Replica]>,
    /// The wall clock.
    pub wall: Timestamp,
}

/// What is to be done. Each is one write, refused where what it goes by is another by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing, before something changes or time has passed.
    Wait,
    /// It depends on what replicas serve, which must be read.
    InspectReplicas,
    /// An old authority is in bundles for as long as these replicas, by address, may serve a leaf of it; or, where it names
    /// none, for as long as no replica is seen.
    Await(Vec<String>),
    /// Store a new authority, and no leaf.
    NewAuthority,
    /// Store a new authority as the next one.
    NewNext,
    /// Store the next authority as the one that signs, with a leaf of it.
    Promote,
    /// Store a leaf of the authority that signs.
    NewLeaf,
    /// Let each bundle have these of ours, and no others.
    Bundles(Vec<BTreeSet<Der>>),
}

impl RotationState<'_> {
    /// What is to be done next.
    pub fn next_step(&self) -> Step {
        let stands = |certificate: &&Certificate| !certificate.has_expired(self.wall);
        let authority = self.stored.authority.as_ref().filter(stands);
        let next = self.stored.next.as_ref().filter(stands);
        let leaf = self.stored.leaf.as_ref().filter(stands).filter(|_| authority.is_some());
        let wanted = ders(authority.into_iter().chain(next));
        if wanted.is_empty() {
            return Step::NewAuthority;
        }
        // What is in one bundle may be needed in each; what is not is taken out of all at once.
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
                // Whoever trusts the present leaf trusts the next one of the same authority.
                false if is_due && leaf.is_some() => return step,
                // Nobody is trusted yet, so nobody can lose by it.
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

    /// Takes out of the bundles what nobody serves a leaf of any more, nor could serve. By our clock alone nothing goes, not
    /// even what has expired.
    fn prune(&self, wanted: &BTreeSet<Der>) -> Step {
        let found: BTreeSet<Der> = self.of_bundles().flatten().collect();
        let others = &found - wanted;
        if others.is_empty() {
            return Step::Wait;
        }
        let Some(replicas) = self.replicas else {
            return Step::InspectReplicas;
        };
        // What is not seen may be old.
        let is_unseen = |replica: &&Replica| replica.is_ready && replica.signer().is_none();
        let is_old = |replica: &&Replica| replica.signer().is_some_and(|signer| !wanted.contains(signer));
        let unseen: Vec<_> = replicas.iter().filter(is_unseen).collect();
        let old: Vec<_> = replicas.iter().filter(is_old).collect();
        let served: BTreeSet<_> = old.iter().filter_map(|replica| replica.signer()).collect();
        // Replicas may be taking up one that was stored a moment ago.
        let may_go = |other: &Der| old.is_empty() || (self.abandoned.contains(other) && !served.contains(other));
        let gone = match unseen.is_empty() && replicas.iter().any(|replica| replica.is_ready) {
            true => others.into_iter().filter(may_go).collect(),
            false => BTreeSet::new(),
        };
        if gone.is_empty() {
            let waited_for = old.iter().chain(&unseen);
            return Step::Await(waited_for.map(|replica| replica.address.clone()).collect());
        }
        Step::Bundles(self.of_bundles().map(|bundle| &bundle - &gone).collect())
    }
}

impl Replica {
    /// The authority of the leaf that was seen.
    fn signer(&self) -> Option<&Der> {
        match &self.serves {
            Serves::LeafOf(authority) => Some(authority),
            Serves::Other | Serves::Nothing => None,
        }
    }

    /// Whether an API server could be content with what it is shown there, as far as was seen.
    fn may_be_trusted(&self) -> bool {
        // One that nobody has given a leaf yet is not ready.
        self.signer().is_some() || (self.serves == Serves::Nothing && self.is_ready)
    }
}

/// A life as jiff counts.
pub fn span(life: Micros) -> SignedDuration {
    SignedDuration::from_micros(i64::try_from(life.0).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;

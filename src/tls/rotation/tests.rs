//! Tests of each step alone, and a model with API servers, replicas and leaders that see changes at different times.

use proptest::prelude::*;

use super::*;

const HOUR: i64 = 3_600;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn der(n: u16) -> Der {
    Der::from(n.to_be_bytes())
}

/// A certificate with a lifetime of three hours, made at this second.
fn certificate(n: u16, made: i64) -> Certificate {
    Certificate {
        der: der(n),
        made: at(made),
        ends: at(made + 3 * HOUR),
    }
}

fn replica(address: &str, is_ready: bool, serves: Serves) -> Replica {
    Replica {
        address: address.to_owned(),
        is_ready,
        serves,
    }
}

struct Case {
    stored: Stored,
    bundles: Vec<Vec<Certificate>>,
    settled: BTreeSet<Der>,
    replicas: Option<Vec<Replica>>,
    wall: Timestamp,
}

impl Case {
    /// CA 1, its leaf 2, and two bundles that have had the CA for a long time.
    fn steady() -> Self {
        let stored = Stored {
            authority: Some(certificate(1, 0)),
            next: None,
            leaf: Some(certificate(2, 0)),
        };
        Self {
            stored,
            bundles: vec![vec![certificate(1, 0)]; 2],
            settled: BTreeSet::from([der(1)]),
            replicas: None,
            wall: at(HOUR),
        }
    }

    fn step(&self) -> Step {
        let state = RotationState {
            stored: &self.stored,
            bundles: &self.bundles,
            settled: &self.settled,
            replicas: self.replicas.as_deref(),
            wall: self.wall,
        };
        state.next_step()
    }

    fn bundles(of: &[&[u16]]) -> Step {
        let bundles = of.iter().map(|bundle| bundle.iter().map(|n| der(*n)).collect());
        Step::Bundles(bundles.collect())
    }
}

#[test]
fn first_authority_and_leaf_are_made_without_settle_time() {
    let mut case = Case {
        stored: Stored::default(),
        bundles: vec![vec![]; 2],
        settled: BTreeSet::new(),
        ..Case::steady()
    };
    assert_eq!(case.step(), Step::NewAuthority);
    case.stored.authority = Some(certificate(1, 0));
    assert_eq!(case.step(), Case::bundles(&[&[1], &[1]]));
    case.bundles = vec![vec![certificate(1, 0)]; 2];
    assert_eq!(case.step(), Step::InspectReplicas);
    case.replicas = Some(vec![
        replica("a", false, Serves::Nothing),
        replica("b", true, Serves::Other),
    ]);
    assert_eq!(case.step(), Step::NewLeaf);
    // A ready replica that does not answer may serve an older leaf.
    case.replicas = Some(vec![replica("a", true, Serves::Nothing)]);
    assert_eq!(case.step(), Step::Wait);
    // A replica serves a trusted leaf, so API servers must learn the new CA first.
    case.replicas = Some(vec![replica("a", true, Serves::LeafOf(der(7)))]);
    assert_eq!(case.step(), Step::Wait);
    case.settled = BTreeSet::from([der(1)]);
    assert_eq!(case.step(), Step::NewLeaf);
    // No API server calls us.
    case.settled = BTreeSet::new();
    case.bundles = vec![];
    assert_eq!(case.step(), Step::NewLeaf);
}

#[test]
fn leaf_is_renewed_at_two_thirds_of_its_lifetime() {
    let mut case = Case::steady();
    case.stored.authority.as_mut().unwrap().ends = at(999 * HOUR);
    assert_eq!(case.step(), Step::Wait);
    case.wall = at(2 * HOUR - 1);
    assert_eq!(case.step(), Step::Wait);
    case.wall = at(2 * HOUR);
    assert_eq!(case.step(), Step::NewLeaf);
    case.settled.clear();
    assert_eq!(case.step(), Step::NewLeaf, "whoever trusts it trusts the next one");
    case.wall = at(3 * HOUR);
    assert_eq!(case.step(), Step::InspectReplicas, "it is over");
}

#[test]
fn authority_rotation_takes_four_steps() {
    let mut case = Case::steady();
    case.wall = at(2 * HOUR);
    case.stored.leaf = Some(certificate(3, HOUR));
    assert_eq!(case.step(), Step::NewNext);
    case.stored.next = Some(certificate(4, 2 * HOUR));
    assert_eq!(case.step(), Case::bundles(&[&[1, 4], &[1, 4]]));
    // Both bundles must have it.
    case.bundles[0].push(certificate(4, 2 * HOUR));
    assert_eq!(case.step(), Case::bundles(&[&[1, 4], &[1, 4]]));
    case.bundles[1].push(certificate(4, 2 * HOUR));
    assert_eq!(case.step(), Step::Wait);
    case.settled.insert(der(4));
    assert_eq!(case.step(), Step::Promote);

    case.stored = Stored {
        authority: case.stored.next.take(),
        next: None,
        leaf: Some(certificate(5, 2 * HOUR)),
    };
    assert_eq!(case.step(), Step::InspectReplicas);
    let await_of = |names: &[&str]| Step::Await(names.iter().map(ToString::to_string).collect());
    let mut replicas = vec![
        replica("a", true, Serves::LeafOf(der(4))),
        replica("b", false, Serves::LeafOf(der(1))),
        replica("c", true, Serves::Nothing),
        replica("d", true, Serves::Other),
        replica("e", false, Serves::Nothing),
    ];
    case.replicas = Some(replicas.clone());
    assert_eq!(case.step(), await_of(&["b", "c", "d"]));
    replicas.retain(|replica| ["a", "e"].contains(&&*replica.address));
    case.replicas = Some(replicas);
    assert_eq!(case.step(), Case::bundles(&[&[4], &[4]]));
    case.replicas = Some(vec![]);
    assert_eq!(case.step(), await_of(&[]), "where nobody is seen, nothing is known");
    case.wall = at(3 * HOUR);
    assert_eq!(case.step(), await_of(&[]), "our clock may be wrong");
}

#[test]
fn old_authorities_stay_while_one_is_served() {
    let mut case = Case::steady();
    case.stored.authority = Some(certificate(9, 0));
    case.settled = BTreeSet::from([der(9)]);
    case.bundles = vec![[1, 2, 3, 9].map(|n| certificate(n, 0)).to_vec(); 2];
    let seen = vec![
        replica("a", true, Serves::LeafOf(der(9))),
        replica("b", false, Serves::LeafOf(der(1))),
    ];
    case.replicas = Some(seen.clone());
    assert_eq!(case.step(), Step::Await(vec!["b".into()]));
    case.replicas = Some([seen, vec![replica("c", true, Serves::Nothing)]].concat());
    assert_eq!(case.step(), Step::Await(vec!["b".into(), "c".into()]));
}

#[test]
fn webhook_entry_without_old_authority_gets_it_from_another() {
    let mut case = Case::steady();
    case.stored.authority = Some(certificate(4, HOUR));
    case.settled = BTreeSet::from([der(4)]);
    case.bundles = vec![
        vec![certificate(4, HOUR)],
        vec![certificate(1, 0), certificate(4, HOUR)],
    ];
    assert_eq!(case.step(), Case::bundles(&[&[1, 4], &[1, 4]]));
    // An expired authority is not restored.
    case.bundles[1][0].ends = at(HOUR);
    assert_eq!(case.step(), Step::InspectReplicas);
}

#[test]
fn lost_bundle_or_secret_is_restored() {
    let mut case = Case::steady();
    case.bundles = vec![vec![], vec![certificate(1, 0)]];
    case.settled.clear();
    assert_eq!(case.step(), Case::bundles(&[&[1], &[1]]), "by hand");

    case = Case::steady();
    case.stored = Stored::default();
    assert_eq!(case.step(), Step::NewAuthority);
    case.stored.authority = Some(certificate(8, HOUR));
    assert_eq!(
        case.step(),
        Case::bundles(&[&[1, 8], &[1, 8]]),
        "the lost one stays trusted"
    );

    case = Case::steady();
    case.stored.next = case.stored.authority.take();
    assert_eq!(case.step(), Step::Promote);
    case.wall = at(3 * HOUR);
    assert_eq!(case.step(), Step::NewAuthority, "all of it is over");
}

#[test]
fn authority_settles_after_settle_time_in_every_bundle() {
    let settle = Micros::from_secs(60);
    let bundle = |of: &[u16]| of.iter().map(|n| certificate(*n, 0)).collect::<Vec<_>>();
    let after = |seconds| Moment(0).after(Micros::from_secs(seconds));
    let mut published = Published::default();
    let mut see = |of: [&[u16]; 2], now| published.observe(&of.map(bundle), now);
    see([&[1, 2], &[1]], after(0));
    see([&[1, 2], &[1, 2]], after(50));
    assert!(published.settled(settle, after(59)).is_empty());
    assert_eq!(published.settled(settle, after(60)), BTreeSet::from([der(1)]));
    assert_eq!(published.settled(settle, after(110)), BTreeSet::from([der(1), der(2)]));
    let mut see = |of: [&[u16]; 2], now| published.observe(&of.map(bundle), now);
    see([&[2], &[1, 2]], after(111));
    see([&[1, 2], &[1, 2]], after(112));
    assert_eq!(published.settled(settle, after(171)), BTreeSet::from([der(2)]));
}

#[test]
fn lives_are_bounded_and_every_fault_is_named() {
    let lives = Lives::read("87600h", "2160h").unwrap();
    assert_eq!(
        (lives.settle(), lives.period()),
        (Micros::from_secs(60), Micros::from_secs(10))
    );
    let short = Lives::read("135s", "45s").unwrap();
    assert_eq!(
        (short.settle(), short.period()),
        (Micros::from_millis(6_750), Micros::from_millis(1_500))
    );
    for (authority, leaf, fault) in [
        (
            "soon",
            "15s",
            "--ca-life: \"soon\" is not a duration from 15s to 876000h, such as 2160h",
        ),
        (
            "45s",
            "1s",
            "--certificate-life: \"1s\" is not a duration from 15s to 9528h, such as 2160h",
        ),
        (
            "134s",
            "45s",
            "--ca-life: \"134s\" is less than 3 times the --certificate-life \"45s\"",
        ),
    ] {
        assert_eq!(Lives::read(authority, leaf).unwrap_err().to_string(), fault);
    }
}

/// Lifetimes in the model.
const LIVES: Lives = Lives {
    authority: Micros::from_secs(6_000),
    leaf: Micros::from_secs(1_200),
};

/// The Secret as a leader writes it: the leaf with its authority.
#[derive(Debug, Clone, Default)]
struct Secret {
    authority: Option<Certificate>,
    next: Option<Certificate>,
    leaf: Option<(Certificate, Der)>,
}

impl Secret {
    fn read(&self, wall: Timestamp) -> Stored {
        let stands = |certificate: &Certificate| !certificate.has_expired(wall);
        let authority = self.authority.clone().filter(stands);
        let signer = authority.as_ref().map(|authority| authority.der.clone());
        let leaf = self.leaf.clone().filter(|(_, of)| Some(of) == signer.as_ref());
        Stored {
            leaf: leaf.map(|(leaf, _)| leaf).filter(stands),
            next: self.next.clone().filter(stands),
            authority,
        }
    }
}

/// The state that a leader has read and bases its write on.
struct Read {
    bundle: (usize, Vec<Certificate>),
    secret: (usize, Secret),
    replicas: Option<Vec<Replica>>,
}

#[derive(Default)]
struct Leader {
    published: Published,
    reading: Option<(usize, Vec<Certificate>)>,
    read: Option<Read>,
}

/// A cluster: every version of the Secret and of the bundle, and which version each component has seen.
struct Cluster {
    now: i64,
    made: u16,
    secrets: Vec<Secret>,
    /// Each version, with the second at which it was written.
    bundles: Vec<(i64, Vec<Certificate>)>,
    /// The bundle version that each API server has.
    api_servers: Vec<usize>,
    /// The leaf that each replica serves.
    replicas: Vec<Option<(Certificate, Der)>>,
    leaders: Vec<Leader>,
    /// The bundle was emptied from outside and still lacks a needed authority.
    is_torn: bool,
    /// Until this second, API servers may lack a needed authority.
    excused_until: i64,
}

#[derive(Debug, Clone)]
enum Event {
    Pass(i64),
    /// An API server receives the newest bundle.
    Hear(usize),
    /// A replica receives the newest Secret.
    See(usize),
    /// A leader works in three steps: reads the bundle, reads the Secret (and the replicas if needed), writes.
    Begin(usize),
    Finish(usize),
    Write(usize),
    /// A new leader takes over and has observed nothing.
    Succeed(usize),
    /// A replica restarts.
    Restart(usize),
    LoseSecret,
    LoseBundle,
}

fn event() -> impl Strategy<Value = Event> {
    let leader = 0..2_usize;
    prop_oneof![
        6 => (1..120_i64).prop_map(Event::Pass),
        2 => (0..2_usize).prop_map(Event::Hear),
        6 => (0..3_usize).prop_map(Event::See),
        8 => leader.clone().prop_map(Event::Begin),
        8 => leader.clone().prop_map(Event::Finish),
        8 => leader.clone().prop_map(Event::Write),
        1 => leader.prop_map(Event::Succeed),
        1 => (0..3_usize).prop_map(Event::Restart),
        1 => Just(Event::LoseSecret),
        1 => Just(Event::LoseBundle),
    ]
}

impl Cluster {
    fn new() -> Self {
        Self {
            now: 0,
            made: 0,
            secrets: vec![Secret::default()],
            bundles: vec![(0, vec![])],
            api_servers: vec![0; 2],
            replicas: vec![None; 3],
            leaders: vec![Leader::default(), Leader::default()],
            is_torn: false,
            excused_until: 0,
        }
    }

    fn settle(&self) -> i64 {
        i64::try_from(LIVES.settle().0 / 1_000_000).unwrap()
    }

    fn moment(&self) -> Moment {
        Moment(self.now * 1_000_000)
    }

    fn make(&mut self, life: Micros) -> Certificate {
        self.made += 1;
        Certificate {
            der: der(self.made),
            made: at(self.now),
            ends: at(self.now + i64::try_from(life.0 / 1_000_000).unwrap()),
        }
    }

    fn serves(&self, replica: usize) -> Option<&Der> {
        let (leaf, of) = self.replicas[replica].as_ref()?;
        (!leaf.has_expired(at(self.now))).then_some(of)
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Pass(seconds) => {
                self.now += seconds;
                // Every API server has a bundle once the settle time has passed.
                let settled = self.bundles.iter().rposition(|(at, _)| self.now - at >= self.settle());
                for seen in &mut self.api_servers {
                    *seen = settled.map_or(*seen, |settled| settled.max(*seen));
                }
            }
            Event::Hear(api_server) => self.api_servers[api_server] = self.bundles.len() - 1,
            Event::See(replica) | Event::Restart(replica) => {
                if matches!(event, Event::Restart(_)) {
                    self.replicas[replica] = None;
                }
                let secret = self.secrets.last().unwrap();
                if secret.read(at(self.now)).leaf.is_some() {
                    self.replicas[replica].clone_from(&secret.leaf);
                }
            }
            Event::Begin(leader) => {
                let bundle = (self.bundles.len(), self.bundles.last().unwrap().1.clone());
                self.leaders[leader].reading = Some(bundle);
                self.leaders[leader].read = None;
            }
            Event::Finish(leader) => {
                let Some(bundle) = self.leaders[leader].reading.take() else {
                    return;
                };
                let secret = (self.secrets.len(), self.secrets.last().unwrap().clone());
                self.leaders[leader].read = Some(Read {
                    bundle,
                    secret,
                    replicas: None,
                });
                self.look(leader);
            }
            Event::Write(leader) => self.write(leader),
            Event::Succeed(leader) => self.leaders[leader] = Leader::default(),
            Event::LoseSecret => self.secrets.push(Secret::default()),
            Event::LoseBundle => {
                self.bundles.push((self.now, vec![]));
                self.is_torn = true;
            }
        }
        self.check(event);
    }

    /// The leader's next step, from what it has read.
    fn step(&mut self, leader: usize) -> Option<Step> {
        let (moment, wall) = (self.moment(), at(self.now));
        let leader = &mut self.leaders[leader];
        let read = leader.read.as_ref()?;
        let bundles = vec![read.bundle.1.clone()];
        let stored = read.secret.1.read(wall);
        leader.published.observe(&bundles, moment);
        let state = RotationState {
            stored: &stored,
            bundles: &bundles,
            settled: &leader.published.settled(LIVES.settle(), moment),
            replicas: read.replicas.as_deref(),
            wall,
        };
        Some(state.next_step())
    }

    fn look(&mut self, leader: usize) {
        if self.step(leader) != Some(Step::InspectReplicas) {
            return;
        }
        let bundle = &self.leaders[leader].read.as_ref().unwrap().bundle.1;
        let secret = &self.leaders[leader].read.as_ref().unwrap().secret.1;
        let known = bundle.iter().chain(&secret.authority).chain(&secret.next);
        let known: BTreeSet<Der> = known.map(|known| known.der.clone()).collect();
        let look = |i: usize| {
            let serves = match (&self.replicas[i], self.serves(i)) {
                (_, Some(of)) if known.contains(of) => Serves::LeafOf(of.clone()),
                (None, _) => Serves::Nothing,
                _ => Serves::Other,
            };
            replica(&i.to_string(), self.replicas[i].is_some(), serves)
        };
        let replicas = (0..self.replicas.len()).map(look).collect();
        self.leaders[leader].read.as_mut().unwrap().replicas = Some(replicas);
    }

    /// Writes the next step, if what the leader read is still the newest version.
    fn write(&mut self, leader: usize) {
        let Some(step) = self.step(leader) else { return };
        let read = self.leaders[leader].read.take().unwrap();
        let mut secret = read.secret.1.clone();
        match step {
            Step::Wait | Step::InspectReplicas | Step::Await(_) => return,
            Step::Bundles(wanted) => {
                if read.bundle.0 != self.bundles.len() {
                    return;
                }
                let all = self.bundles.iter().flat_map(|(_, bundle)| bundle.clone());
                let all: Vec<_> = all.chain(secret.authority).chain(secret.next).collect();
                let find = |der: &Der| all.iter().find(|found| found.der == *der).cloned();
                let bundle = wanted[0].iter().filter_map(find).collect();
                self.bundles.push((self.now, bundle));
                return;
            }
            Step::NewAuthority => {
                secret = Secret {
                    authority: Some(self.make(LIVES.authority)),
                    ..Secret::default()
                }
            }
            Step::NewNext => secret.next = Some(self.make(LIVES.authority)),
            Step::Promote => {
                secret.authority = secret.next.take();
                secret.leaf = Some((self.make(LIVES.leaf), secret.authority.clone().unwrap().der));
            }
            Step::NewLeaf => secret.leaf = Some((self.make(LIVES.leaf), secret.authority.clone().unwrap().der)),
        }
        if read.secret.0 == self.secrets.len() {
            self.secrets.push(secret);
        }
    }

    fn check(&mut self, event: &Event) {
        let (written, bundle) = self.bundles.last().unwrap();
        let heard = written + self.settle();
        let has = |bundle: &[Certificate], der: &Der| bundle.iter().any(|found| found.der == *der);
        let served = || (0..self.replicas.len()).filter_map(|replica| self.serves(replica));
        let secret = self.secrets.last().unwrap();
        let needed = secret.authority.iter().map(|authority| &authority.der);
        let is_whole = served().chain(needed).all(|of| has(bundle, of));
        let served: Vec<Der> = served().cloned().collect();
        // The first leaf may be served before API servers know its authority.
        if served.is_empty() || (self.is_torn && is_whole) {
            self.excused_until = self.excused_until.max(heard);
            self.is_torn &= !is_whole;
        }
        for seen in &self.api_servers {
            for of in &served {
                let is_trusted = has(&self.bundles[*seen].1, of);
                let is_excused = self.is_torn || self.now <= self.excused_until;
                assert!(is_trusted || is_excused, "{event:?}: {of:?} at {}", self.now);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn rotation_never_serves_untrusted_leaf_to_api_servers(events in prop::collection::vec(event(), 0..400)) {
        let mut cluster = Cluster::new();
        for event in &events {
            cluster.happen(event);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    /// After any events, once every component hears of changes and one leader is left, one authority and its leaf
    /// remain. This holds over many lifetimes.
    #[test]
    fn rotation_converges_when_events_stop(events in prop::collection::vec(event(), 0..200)) {
        let mut cluster = Cluster::new();
        for event in &events {
            cluster.happen(event);
        }
        let mut authorities = BTreeSet::new();
        for round in 0..1_000 {
            let quiet = [Event::Begin(0), Event::Finish(0), Event::Write(0), Event::Hear(0), Event::Hear(1), Event::See(0), Event::See(1),
                Event::See(2), Event::Pass(20)];
            for event in &quiet {
                cluster.happen(event);
            }
            if round >= 100 {
                let signer = cluster.secrets.last().unwrap().authority.clone().unwrap().der;
                authorities.insert(signer);
                for replica in 0..3 {
                    let of = cluster.serves(replica).expect("a leaf");
                    assert!(cluster.bundles.last().unwrap().1.iter().any(|found| found.der == *of));
                }
                assert!(cluster.bundles.last().unwrap().1.len() <= 2, "what is old is forgotten");
            }
        }
        assert!((3..=6).contains(&authorities.len()), "{}", authorities.len());
    }
}

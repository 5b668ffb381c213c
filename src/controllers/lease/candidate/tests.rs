use edgeward_kube::units::Micros;
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Now {
    // The wall clock stands still, because it must not matter.
    Now {
        moment: Moment(0).after(Micros::from_millis(ms)),
        wall: Timestamp::UNIX_EPOCH,
    }
}

fn candidate(identity: &str) -> Candidate {
    Candidate::new(identity.to_owned())
}

/// An API server that holds one Lease and answers at once.
#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

impl Server {
    fn read(&self) -> Lease {
        self.lease.clone().unwrap_or_default()
    }

    /// Writes the Lease if it names the current version.
    fn write(&mut self, lease: &Lease) -> Option<Lease> {
        let is_current = self.read().metadata.resource_version == lease.metadata.resource_version;
        is_current.then(|| {
            self.version += 1;
            let mut lease = lease.clone();
            lease.metadata.resource_version = Some(self.version.to_string());
            self.lease.insert(lease).clone()
        })
    }

    /// The candidate reads the Lease, and writes it if it may. Returns whether it saw the history go back.
    fn serve(&mut self, candidate: &mut Candidate, now: Now) -> bool {
        let mut lease = self.read();
        let went_back = candidate.went_back(&lease).is_some();
        if candidate.acquire(&mut lease, now).is_none() && self.write(&lease).is_some() {
            candidate.acquired(now.moment);
        }
        went_back
    }

    fn holder(&self) -> Option<String> {
        holder(self.lease.as_ref()?).cloned()
    }

    /// Duration and number of transitions that the Lease states.
    fn stated(&self) -> [Option<i32>; 2] {
        let spec = self.read().spec.unwrap_or_default();
        [spec.lease_duration_seconds, spec.lease_transitions]
    }
}

fn holds(candidate: &Candidate, now: Now) -> bool {
    candidate.held_until.is_some_and(|until| now.moment < until)
}

#[test]
fn first_candidate_creates_the_lease_and_keeps_it() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    for ms in (0..60_000).step_by(2_000) {
        server.serve(&mut a, at(ms));
        server.serve(&mut b, at(ms));
        assert!(
            holds(&a, at(ms + 7_499)) && !holds(&a, at(ms + 7_500)) && !holds(&b, at(ms)),
            "{ms}"
        );
    }
    assert_eq!(server.stated(), [Some(15), Some(0)]);
}

#[test]
fn released_lease_is_taken_at_the_next_read() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, at(0));
    server.serve(&mut b, at(0));
    let mut lease = server.read();
    assert!(!b.release(&mut lease, at(1)), "not its own to release");
    assert!(a.release(&mut lease, at(500)));
    server.write(&lease).unwrap();
    server.serve(&mut b, at(1_000));
    assert!(holds(&b, at(1_000)));
    assert_eq!(server.stated(), [Some(15), Some(1)]);
}

#[test]
fn unchanged_lease_is_taken_after_twelve_seconds() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, at(0));
    server.serve(&mut b, at(0));
    // Any write counts as a renewal, whatever its times say. Here only the version changes.
    let touched = server.read();
    server.write(&touched).unwrap();
    for ms in (1_000..13_000).step_by(1_000) {
        server.serve(&mut b, at(ms));
        assert!(!holds(&b, at(ms)), "{ms}");
    }
    assert_eq!(
        b.acquire(&mut server.read(), at(12_900)),
        Some(Micros::from_millis(100))
    );
    server.serve(&mut b, at(13_000));
    assert!(holds(&b, at(13_000)));
    // The first holder learns of it when it reads the Lease.
    server.serve(&mut a, at(1_001));
    assert!(!holds(&a, at(1_001)));
    assert_eq!(server.holder().as_deref(), Some("b"));
}

#[test]
fn write_of_unknown_outcome_is_found_again() {
    let (mut server, mut a) = (Server::default(), candidate("a"));
    let mut lease = Lease::default();
    assert!(a.acquire(&mut lease, at(0)).is_none());
    server.write(&lease).unwrap();
    assert!(!holds(&a, at(0)));
    server.serve(&mut a, at(4_500));
    assert!(holds(&a, at(4_500)));
    assert_eq!(server.stated(), [Some(15), Some(0)], "it was its own all the time");
}

#[test]
fn lease_rollback_is_noticed_once_per_candidate() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, at(0));
    let backup = server.lease.clone();
    for ms in [2_000, 4_000, 6_000] {
        assert!(!server.serve(&mut a, at(ms)) && !server.serve(&mut b, at(ms)));
    }
    (server.lease, server.version) = (backup, 1);
    assert!(server.serve(&mut b, at(7_000)) && server.serve(&mut a, at(8_000)));
    assert!(!server.serve(&mut a, at(10_000)) && !server.serve(&mut b, at(10_000)));
}

#[test]
fn acquired_lease_keeps_foreign_labels() {
    let (mut server, mut a) = (Server::default(), candidate("a"));
    let mut lease = Lease::default();
    lease.metadata.labels = Some([("app".to_owned(), "edgeward".to_owned())].into());
    server.write(&lease).unwrap();
    server.serve(&mut a, at(0));
    assert_eq!(server.read().metadata.labels, lease.metadata.labels);
    assert_eq!(server.holder().as_deref(), Some("a"));
}

/// Fate of a candidate's request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    /// The server carries it out, but the answer is lost.
    Unheard,
    Lost,
}

/// A request that is under way.
enum Request {
    /// Its answer arrives with this Lease.
    Read(Lease),
    /// It was sent at this time, and reaches the server with this Lease.
    Write(Now, Lease),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![3 => Just(Fate::Answered), 1 => Just(Fate::Unheard), 2 => Just(Fate::Lost)]
}

proptest! {
    /// Clocks of different speed and requests that are slow, lost, or unanswered: two candidates are never certain of
    /// the Lease at the same time.
    #[test]
    fn at_most_one_candidate_holds_the_lease(
        fates in proptest::collection::vec(
            (fate(), 0u64..1_500, prop_oneof![4 => 1_000u64..2_500, 1 => 5_000u64..20_000]),
            300),
        speeds in proptest::array::uniform3(1_000u64..1_500),
    ) {
        let mut server = Server::default();
        let mut candidates = ["a", "b", "c"].map(candidate);
        // Each clock has its own speed and its own zero.
        let local = |who: usize, ms: u64| at(77_000 * who as u64 + ms * speeds[who] / 1_000);
        let mut next = [0u64; 3];
        let mut requests: [Option<Request>; 3] = [const { None }; 3];
        let mut fates = fates.into_iter();
        for ms in (0..).step_by(50) {
            for who in 0..3 {
                let holders = (0..3).filter(|who| holds(&candidates[*who], local(*who, ms))).count();
                prop_assert!(holders <= 1, "{holders} at {ms}");
                if ms < next[who] {
                    continue;
                }
                let Some((fate, latency, pause)) = fates.next() else {
                    return Ok(());
                };
                let (here, now) = (&mut candidates[who], local(who, ms));
                next[who] = ms + latency;
                requests[who] = match (requests[who].take(), fate) {
                    (None, _) => Some(Request::Read(server.read())),
                    (Some(Request::Read(mut lease)), Fate::Answered) => {
                        here.acquire(&mut lease, now).is_none().then_some(Request::Write(now, lease))
                    }
                    (Some(Request::Write(sent, lease)), Fate::Answered | Fate::Unheard) => {
                        if server.write(&lease).is_some() && matches!(fate, Fate::Answered) {
                            here.acquired(sent.moment);
                        }
                        None
                    }
                    _ => None,
                };
                if requests[who].is_none() {
                    next[who] = ms + pause;
                }
            }
        }
    }
}

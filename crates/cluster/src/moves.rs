//! Moves: which running pods another site has become better for, and which of them is evicted next.
//!
//! The engine reports the pods. The leader judges them with a [`Memory`]. It decides about each pod again, as if the pod did
//! not exist, and remembers since when the answer is another site. A pod is moved by evicting it: its owner creates another
//! one, which is decided as any new pod.

mod judge;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use crate::backstop::Candidate;
use crate::pod_record::Member;
use edgeward_decision::config::{Config, Moves};
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_decision::placement::ledger::Ledger;
use edgeward_kube::node::NodeId;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Micros, Moment, Now};
use edgeward_kube::words;
use judge::Better;

/// How long kube-scheduler must have found no node for a pod before the pod is replaced.
const UNSCHEDULABLE_FOR: Micros = Micros::from_secs(60);

/// The most kinds of pods that are decided in one evaluation. The next evaluation goes on after the last of them.
const MAX_DECISIONS: usize = 1_000;

/// How long an eviction waits for the pod that the owner creates instead, and how long its room counts as taken.
const SUCCESSOR_WITHIN: Micros = Micros::from_secs(600);
const ROOM_KEPT: Micros = Micros::from_secs(60);

/// How long a pod may still be seen after an eviction. After that, it was not evicted.
const SEEN_LATE: Micros = Micros::from_secs(10);

/// The first and the longest pause of an owner after a refused eviction.
const FIRST_PAUSE: Micros = Micros::from_secs(60);
const LONGEST_PAUSE: Micros = Micros::from_secs(3_600);

const MINUTE: Micros = Micros::from_secs(60);

words! {
    /// Why a pod is moved; the most urgent first.
    pub enum Why {
        /// kube-scheduler finds no node for the pod, and another site is good.
        Unschedulable = "unschedulable",
        /// The pod's node or site has lost a trait that the pod requires.
        Trait = "trait",
        /// The RTT of the pod's site is not below the pod's distance limit any more.
        Distance = "distance",
        /// The pod is in a cloud, and the edge has room.
        Home = "home",
        /// The pod's performance profile prefers another site.
        Profile = "profile",
    }
}

words! {
    /// What keeps a pod from being moved now.
    pub enum Blocker {
        /// No controller would create the pod again.
        NoOwner = "no_owner",
        /// The controller is no ReplicaSet, and the pod does not say that it may be moved.
        OwnerKind = "owner_kind",
        /// The pod says that it may not be moved.
        NotMovable = "movable_false",
        /// The pod carries `cluster-autoscaler.kubernetes.io/safe-to-evict: "false"`.
        SafeToEvict = "safe_to_evict_false",
        /// The pod uses volume claims.
        VolumeClaims = "volume_claims",
        /// The pod's constraints are too long to be kept.
        LongConstraints = "long_constraints",
        /// The pod is not Ready.
        NotReady = "not_ready",
        /// The pod's site or node cannot be reached. The pod may still run there, so another one would be a duplicate.
        SiteAway = "site_away",
        /// The pod is younger than `dwell`.
        Young = "young",
        /// The owner has one replica.
        OneReplica = "one_replica",
        /// Pods of two revisions of the owner exist.
        Rollout = "rollout",
        /// As many pods of the owner as may be missing at once are not Ready.
        OwnerNotReady = "owner_not_ready",
        /// The last move of the owner missed its target, or the owner did not create another pod.
        Missed = "missed",
        /// A pod of the owner was moved the other way less than twice `dwell` ago.
        MovedBack = "moved_back",
        /// The API server refused the last eviction of the owner, most often because of a PodDisruptionBudget.
        Budget = "budget",
        /// Too little of the edge would stay free.
        KeepFree = "keep_free",
        /// The target has not been better for `dwell` yet.
        Dwell = "dwell",
        /// A pod that was created after an eviction has no decision, so edgeward may not be called.
        Stopped = "stopped",
        /// As many pods as allowed were moved in the last minute.
        Rate = "rate",
    }
}

/// The pods that may be moved, and the other pods of their owners.
#[derive(Debug, Clone, Default)]
pub struct MovesReport {
    /// Pods of opted-in namespaces that do not terminate, sorted by uid.
    pub pods: Vec<Seen>,
}

/// A pod as it was seen.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The pod.
    pub member: Arc<Member>,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// Uid of the controller, followed by its revision if it has one.
    pub controller: Option<Arc<str>>,
    /// The site of the pod by its spec.
    pub site: Option<Arc<str>>,
    /// The node to which the pod is bound.
    pub node: Option<NodeId>,
    /// Creation time in seconds since the epoch.
    pub created: i64,
    /// Resources that the pod takes.
    pub request: Amounts,
    /// The pod as the backstop evaluates it, if kube-scheduler finds no node for it.
    pub stuck: Option<Candidate>,
}

/// Namespace, and kind and name, of the owner.
type Owner = (Arc<str>, Arc<str>);

impl Seen {
    fn owner(&self) -> Owner {
        (Arc::clone(&self.namespace), Arc::clone(&self.member.owner))
    }

    /// Whether edgeward has neither placed nor gated the pod.
    fn is_undecided(&self) -> bool {
        self.member.decision.is_none() && self.member.reason.is_none()
    }
}

/// A pod for which another site is better, or would have to be.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// The pod.
    pub pod: Seen,
    /// Why it should be elsewhere.
    pub why: Why,
    /// The site where it would be placed now. `None` if no other site is good.
    pub to: Option<Arc<str>>,
    /// Since when it has been so without a break. Since when the pod has had no node, if it is Unschedulable.
    pub since: Moment,
    /// What keeps the pod from being moved now.
    pub blocker: Option<Blocker>,
}

impl Outlook {
    /// The owner, and whether the pod runs. Pods without a node do not wait for those that run.
    fn pause_key(&self) -> (Owner, bool) {
        (self.pod.owner(), self.why != Why::Unschedulable)
    }
}

/// A pod that was created after an eviction, and was not placed where the evicted pod was expected to go.
#[derive(Debug, Clone)]
pub struct Missed {
    /// The pod.
    pub pod: Seen,
    /// The expected site.
    pub expected: Arc<str>,
    /// Why the other pod was evicted.
    pub why: Why,
}

/// The result of an evaluation.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// The pods for which another site is better, sorted by uid.
    pub outlooks: Vec<Outlook>,
    /// The number of the pod among them that is to be evicted now.
    pub next: Option<usize>,
    /// The moves that were found to have missed their target.
    pub missed: Vec<Missed>,
    /// Whether moves are stopped, because a pod that was created after an eviction has no decision.
    pub is_stopped: bool,
}

/// What a leader remembers between two evaluations. A new leader begins with nothing, so that it waits for `dwell` first.
#[derive(Debug, Default)]
pub struct Memory {
    evaluated: Option<Moment>,
    /// For each pod by uid, why and to which site it would be moved, and since when.
    better: HashMap<Arc<str>, (Better, Moment)>,
    /// The last kind of pods that was decided.
    decided: Option<Kind>,
    under_way: Vec<UnderWay>,
    paused: BTreeMap<(Owner, bool), Pause>,
    /// The evictions of the last two `dwell`.
    evicted: VecDeque<Evicted>,
}

/// An eviction.
#[derive(Debug)]
struct Evicted {
    at: Moment,
    owner: Owner,
    from: Option<Arc<str>>,
    to: Arc<str>,
}

/// An owner whose pods are not evicted until then. Each pause in a row is twice as long, until a move succeeds.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Moment,
    lasts: Micros,
    why: Blocker,
}

/// An eviction whose successor is not Ready yet.
#[derive(Debug)]
struct UnderWay {
    key: (Owner, bool),
    uid: Arc<str>,
    at: Moment,
    why: Why,
    to: Arc<str>,
    request: Amounts,
    /// The owner's pods at the time of the eviction, by uid.
    before: HashSet<Arc<str>>,
    successor: Option<Arc<str>>,
}

/// Pods for which the same is decided: namespace, controller, site, CPU and memory, whether they have a node, and whether that
/// lacks a required trait.
type Kind = (Arc<str>, Option<Arc<str>>, Option<Arc<str>>, [i64; 2], [bool; 2]);

/// The pods of an owner.
#[derive(Debug, Default)]
struct Replicas<'r> {
    pods: usize,
    unready: usize,
    controllers: BTreeSet<&'r str>,
}

/// What an evaluation reads.
#[derive(Debug, Clone, Copy)]
pub struct View<'v> {
    /// The snapshot.
    pub snapshot: &'v Snapshot,
    /// The reservations that it does not show.
    pub ledger: &'v Ledger,
    /// The configuration.
    pub config: &'v Config,
    /// The time.
    pub now: Now,
}

impl<'v> View<'v> {
    fn site(&self, name: Option<&Arc<str>>) -> Option<&'v Site> {
        let name = name?;
        self.snapshot.sites.iter().find(|site| *site.name() == **name)
    }

    fn is_over(&self, since: Moment, time: Micros) -> bool {
        since.after(time) <= self.now.moment
    }
}

/// The time between two reports: a tenth of `dwell`, from one to ten seconds.
pub(crate) fn period(moves: &Moves) -> Micros {
    Micros(moves.dwell.0 / 10).clamp(Micros::from_secs(1), Micros::from_secs(10))
}

impl Memory {
    /// Judges the pods as of now. While the snapshot is too old to choose between sites, no pod is better elsewhere, and after a
    /// gap between evaluations every pod begins its `dwell` again. Cost: a pass over the pods, and a decision for each kind of
    /// pods.
    pub fn evaluate(&mut self, report: &MovesReport, view: View<'_>) -> Evaluation {
        let (now, moves) = (view.now.moment, &view.config.moves);
        let missed = self.follow(report, &view);
        let last = self.evaluated.replace(now);
        let is_stale = view.snapshot.is_stale(view.config.telemetry_ttl, now);
        if is_stale || last.is_some_and(|last| now.since(last) > period(moves).times(6)) {
            self.better.clear();
        }
        if is_stale {
            return Evaluation {
                missed,
                ..Evaluation::default()
            };
        }
        let is_stopped = self.is_stopped(report);
        let mut outlooks = self.outlooks(report, &view);
        let replicas = replicas(report);
        for outlook in &mut outlooks {
            let replicas = replicas.get(&outlook.pod.owner());
            let blocker = replicas.and_then(|replicas| self.blocker(outlook, replicas, &view));
            let first = outlook.pod.member.blocker.or(blocker);
            let first = first.or_else(|| is_stopped.then_some(Blocker::Stopped));
            outlook.blocker = first.or(outlook.blocker).or_else(|| self.waits(outlook, &view));
        }
        let ripe = outlooks.iter().enumerate();
        let ripe = ripe.filter(|(_, outlook)| outlook.to.is_some() && outlook.blocker.is_none());
        let next = ripe.min_by_key(|(_, outlook)| (outlook.why, outlook.since));
        Evaluation {
            next: next.map(|(at, _)| at),
            outlooks,
            missed,
            is_stopped,
        }
    }

    /// Records that the API server has evicted the pod, or may have.
    pub fn evicted(&mut self, outlook: &Outlook, report: &MovesReport, now: Moment) {
        let (pod, key) = (&outlook.pod, outlook.pause_key());
        let Some(to) = outlook.to.clone() else { return };
        self.better.remove(&pod.member.uid);
        self.evicted.push_back(Evicted {
            at: now,
            owner: pod.owner(),
            from: pod.site.clone(),
            to: Arc::clone(&to),
        });
        let siblings = report.pods.iter().filter(|other| other.owner() == key.0);
        self.under_way.push(UnderWay {
            uid: Arc::clone(&pod.member.uid),
            at: now,
            why: outlook.why,
            to,
            request: pod.request.clone(),
            before: siblings.map(|pod| Arc::clone(&pod.member.uid)).collect(),
            key,
            successor: None,
        });
    }

    /// Records that the API server has refused the eviction.
    pub fn refused(&mut self, outlook: &Outlook, now: Moment) {
        let last = self.last_pause(&outlook.pause_key()).min(Micros(LONGEST_PAUSE.0 / 2));
        self.pause(
            outlook.pause_key(),
            Blocker::Budget,
            last.times(2).max(FIRST_PAUSE),
            now,
        );
    }

    fn last_pause(&self, key: &(Owner, bool)) -> Micros {
        self.paused.get(key).map_or(Micros(0), |pause| pause.lasts)
    }

    fn pause(&mut self, key: (Owner, bool), why: Blocker, lasts: Micros, now: Moment) {
        let until = now.after(lasts);
        self.paused.insert(key, Pause { until, lasts, why });
    }

    /// Finds the successors of evicted pods. Ends the moves whose successor is Ready at its target, is gone, or does not come.
    /// Returns those that have missed their target.
    fn follow(&mut self, report: &MovesReport, view: &View<'_>) -> Vec<Missed> {
        let (now, dwell) = (view.now.moment, view.config.moves.dwell);
        // A pause is remembered after its end, so that the next one is longer.
        self.paused
            .retain(|_, pause| pause.until.after(LONGEST_PAUSE.max(pause.lasts)) > now);
        self.evicted
            .retain(|one| one.at.after(dwell.times(2).max(MINUTE)) > now);
        let mut taken: HashSet<_> = self.under_way.iter().filter_map(|one| one.successor.clone()).collect();
        let (mut missed, mut paused, mut ended) = (vec![], vec![], vec![]);
        self.under_way.retain_mut(|one| {
            let is_new = |pod: &&Seen| !one.before.contains(&pod.member.uid) && !taken.contains(&pod.member.uid);
            let mut of_owner = report.pods.iter().filter(|pod| pod.owner() == one.key.0);
            let successor = match &one.successor {
                Some(uid) => of_owner.find(|pod| pod.member.uid == *uid),
                None => of_owner.find(is_new),
            };
            let is_there = report.pods.iter().any(|pod| pod.member.uid == one.uid);
            if is_there && one.successor.is_none() && view.is_over(one.at, SEEN_LATE) {
                return false;
            }
            let Some(pod) = successor else {
                let waits = one.successor.is_none() && !view.is_over(one.at, SUCCESSOR_WITHIN);
                if one.successor.is_none() && !waits {
                    paused.push(one.key.clone());
                }
                return waits;
            };
            taken.insert(Arc::clone(&pod.member.uid));
            one.successor = Some(Arc::clone(&pod.member.uid));
            if pod.member.decision.is_none() || pod.site.is_none() {
                return true;
            }
            if pod.site.as_ref() == Some(&one.to) {
                ended.extend(pod.member.is_ready.then(|| one.key.clone()));
                return !pod.member.is_ready;
            }
            paused.push(one.key.clone());
            missed.push(Missed {
                pod: pod.clone(),
                expected: Arc::clone(&one.to),
                why: one.why,
            });
            false
        });
        self.paused
            .retain(|key, pause| pause.until > now || !ended.contains(key));
        for key in paused {
            let lasts = self.last_pause(&key).times(2).max(dwell.times(2));
            self.pause(key, Blocker::Missed, lasts, now);
        }
        missed
    }

    /// Whether edgeward has neither placed nor gated the successor of an evicted pod.
    fn is_stopped(&self, report: &MovesReport) -> bool {
        let successors: HashSet<_> = self.under_way.iter().filter_map(|one| one.successor.as_ref()).collect();
        let mut pods = report.pods.iter();
        pods.any(|pod| pod.is_undecided() && successors.contains(&pod.member.uid))
    }

    /// The pods for which another site is better, each with the time since when it has been so in every evaluation, while the
    /// pod was Ready, its site answered and enough of the edge would stay free. The blocker is set where it would not.
    fn outlooks(&mut self, report: &MovesReport, view: &View<'_>) -> Vec<Outlook> {
        let kinds: Vec<_> = report.pods.iter().map(|pod| judge::kind(pod, view)).collect();
        let decided = self.decide_kinds(report, &kinds, view);
        let (before, mut outlooks) = (std::mem::take(&mut self.better), vec![]);
        for (pod, kind) in report.pods.iter().zip(&kinds) {
            let known = before.get(&pod.member.uid);
            let (why, to, fills) = match (decided.get(kind), known) {
                (Some(Some(((why, to), fills))), _) => (*why, to.clone(), *fills),
                (None, Some(found)) => {
                    // This kind was not decided now. What was found before holds, and nothing is done about it.
                    self.better.insert(Arc::clone(&pod.member.uid), found.clone());
                    continue;
                }
                _ => continue,
            };
            let stuck = pod.stuck.as_ref().map(|stuck| stuck.since);
            if why == Why::Unschedulable && !stuck.is_some_and(|since| view.is_over(since, UNSCHEDULABLE_FOR)) {
                continue;
            }
            let is_sound = pod.member.is_ready && judge::is_reachable(pod, view);
            let better = (why, to.clone());
            let known = known.filter(|((_, known), _)| *known == to);
            let since = known.map_or(view.now.moment, |(_, since)| *since);
            if is_sound && !fills {
                self.better.insert(Arc::clone(&pod.member.uid), (better, since));
            }
            outlooks.push(Outlook {
                pod: pod.clone(),
                why,
                to,
                since: stuck.unwrap_or(since),
                blocker: fills.then_some(Blocker::KeepFree),
            });
        }
        outlooks
    }

    /// Decides about each kind of pods once, going on where the last evaluation ended.
    fn decide_kinds(
        &mut self,
        report: &MovesReport,
        kinds: &[Kind],
        view: &View<'_>,
    ) -> HashMap<Kind, Option<(Better, bool)>> {
        let mut all = BTreeMap::new();
        for (pod, kind) in report.pods.iter().zip(kinds) {
            all.entry(kind).or_insert_with(Vec::new).push(pod);
        }
        let last = self.decided.take();
        let start = last.as_ref().map_or(Unbounded, Excluded);
        let after = all.range::<&Kind, _>((start, Unbounded));
        let rest = all.len() - after.clone().count();
        let in_turn = after.chain(all.iter().take(rest)).take(MAX_DECISIONS);
        let mut decided = HashMap::new();
        for (kind, pods) in in_turn {
            self.decided = Some((*kind).clone());
            let one = pods.iter().find(|pod| judge::is_judged(pod, kind, view));
            let better = one.and_then(|pod| judge::better(pod, kind, view));
            let better = better.map(|(why, to)| {
                let fills = pods.first().is_some_and(|pod| self.fills(pod, why, to.as_ref(), view));
                ((why, to), fills)
            });
            decided.insert((*kind).clone(), better);
        }
        decided
    }

    /// What keeps this pod from being moved at all at present.
    fn blocker(&self, outlook: &Outlook, owned: &Replicas<'_>, view: &View<'_>) -> Option<Blocker> {
        let (pod, now, dwell) = (&outlook.pod, view.now.moment, view.config.moves.dwell);
        let (owner, is_running) = outlook.pause_key();
        let to = outlook.to.as_ref();
        let is_back = |one: &Evicted| {
            let is_other_way = one.from.as_ref() == to && Some(&one.to) == pod.site.as_ref() && to != Some(&one.to);
            one.owner == owner && is_other_way && !view.is_over(one.at, dwell.times(2))
        };
        let age = view.now.wall.as_second().saturating_sub(pod.created);
        let is_young = Micros::from_secs(age.max(0).unsigned_abs()) < dwell;
        let waits_for = |one: &&UnderWay| one.key.0 == owner && one.successor.is_none();
        let missing = owned.unready + self.under_way.iter().filter(waits_for).count();
        let of_running = [
            (!pod.member.is_ready, Blocker::NotReady),
            (!judge::is_reachable(pod, view), Blocker::SiteAway),
            (is_young, Blocker::Young),
            (owned.pods <= 1, Blocker::OneReplica),
            (owned.controllers.len() > 1, Blocker::Rollout),
            (missing >= (owned.pods / 10).max(1), Blocker::OwnerNotReady),
        ];
        let first = of_running.into_iter().find(|(applies, _)| is_running && *applies);
        let paused = self.paused.get(&(owner.clone(), is_running));
        let paused = paused.filter(|pause| pause.until > now).map(|pause| pause.why);
        let first = first.map(|(_, blocker)| blocker).or(paused);
        let goes_back = || is_running && self.evicted.iter().any(is_back);
        first.or_else(|| goes_back().then_some(Blocker::MovedBack))
    }

    /// What only time brings: the rest of `dwell`, and a turn.
    fn waits(&self, outlook: &Outlook, view: &View<'_>) -> Option<Blocker> {
        let moves = &view.config.moves;
        let lately = self.evicted.iter().filter(|one| !view.is_over(one.at, MINUTE)).count();
        if outlook.why != Why::Unschedulable && !view.is_over(outlook.since, moves.dwell) {
            return Some(Blocker::Dwell);
        }
        (lately >= moves.per_minute as usize).then_some(Blocker::Rate)
    }

    /// Whether too little of the edge would stay free after this move. Reservations, queue claims and moves under way count as
    /// taken.
    fn fills(&self, pod: &Seen, why: Why, to: Option<&Arc<str>>, view: &View<'_>) -> bool {
        let edge = view.site(to).filter(|site| site.kind() == SiteKind::Edge);
        let Some(edge) = edge.filter(|_| matches!(why, Why::Home | Why::Profile)) else {
            return false;
        };
        let mut coming = pod.request.clone();
        let is_coming =
            |one: &&UnderWay| one.successor.is_none() && Some(&one.to) == to && !view.is_over(one.at, ROOM_KEPT);
        let under_way = self.under_way.iter().filter(is_coming);
        under_way.for_each(|one| coming.add(&one.request, 1));
        !judge::stays_free(edge, &coming, view)
    }
}

/// The pods of each owner.
fn replicas(report: &MovesReport) -> HashMap<Owner, Replicas<'_>> {
    let mut owners = HashMap::<Owner, Replicas<'_>>::new();
    for pod in &report.pods {
        let replicas = owners.entry(pod.owner()).or_default();
        replicas.pods += 1;
        replicas.unready += usize::from(!pod.member.is_ready);
        replicas.controllers.extend(pod.controller.as_deref());
    }
    owners
}

#[cfg(test)]
mod tests;

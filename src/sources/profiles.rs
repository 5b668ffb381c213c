//! Watches PerformanceProfiles and evaluates them off the request path.
//!
//! Each profile has its own rounds. A round sends the profile's queries to the Prometheus server of the
//! configuration. Profiles share the answer of an equal query. Once all queries have an answer or timed out, the
//! profile is evaluated with the newest snapshot. A query without a new answer keeps its last one, which counts until
//! it is stale.

mod answers;

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_core::config::Config;
use edgeward_core::engine::{Change, SharedState};
use edgeward_core::model::scores::{self, ProfileScores, Profiles, Score};
use edgeward_core::units::{Micros, Moment, Now};
use edgeward_profiles::{All, Evaluated, Known, Profile, Round, SeenProfile};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kube::Resource as _;
use serde_json::Value;
use tokio::sync::watch;

use crate::api::{PerformanceProfileStatus, SiteScore};
use crate::instruments::metrics::Metrics;
use crate::platform::blocking::blocking;
use crate::platform::clock::Clock;
use crate::sources::Changes;
use crate::sources::configuration::Versions;
use crate::sources::objects::{self, Rights, Seen};
use crate::sources::prometheus::{Connection, REOPEN};
use crate::sources::raw::{Gvr, Raw};
use answers::{Answers, Client};

/// How many queries run concurrently.
const MAX_ASKED: usize = 8;

/// Follows PerformanceProfiles while their CRD is installed. Otherwise there are none.
pub struct PerformanceProfiles {
    client: kube::Client,
    metrics: Arc<Metrics>,
    clock: Clock,
    changes: Changes,
    evaluated: watch::Sender<Arc<All>>,
}

impl PerformanceProfiles {
    /// Starts without profiles.
    pub fn new(client: kube::Client, metrics: Arc<Metrics>, clock: Clock, changes: Changes) -> Self {
        Self {
            client,
            metrics,
            clock,
            changes,
            evaluated: watch::Sender::default(),
        }
    }

    /// The latest evaluations.
    pub fn evaluated(&self) -> watch::Receiver<Arc<All>> {
        self.evaluated.subscribe()
    }

    /// Follows the profiles, evaluates them with the newest snapshot, and sends the scores. Never returns. Calls
    /// `listed` once all were listed or the CRD is known to be absent.
    pub async fn follow(self, mut versions: Versions, shared: Arc<SharedState>, listed: impl FnOnce()) {
        let (seen, mut objects) = watch::channel(Seen::default());
        let read = |object: &Raw, _: Option<&_>| read(object);
        let watched = objects::follow(
            Gvr::PROFILES,
            Rights::Needed,
            &self.client,
            &self.metrics,
            read,
            |change| {
                seen.send_if_modified(change);
            },
        );
        let evaluating = async {
            let mut evaluator = Evaluator {
                evaluated: &self.evaluated,
                shared,
                clock: self.clock,
                metrics: &self.metrics,
                changes: self.changes.clone(),
                entries: BTreeMap::new(),
                answers: Answers::default(),
            };
            // The sender lives as long as this is awaited.
            let _ = objects.wait_for(|seen| seen.all().is_some()).await;
            evaluator.take(by_name(&mut objects)).await;
            listed();
            let mut config = versions.next().await;
            loop {
                let is_same = |one: &Config, other: &Config| one.prometheus == other.prometheus;
                let work = evaluator.evaluate(&config, &mut objects);
                match versions.until_other(&config, is_same, work).await {
                    Some(other) => config = other,
                    None => return,
                }
            }
        };
        tokio::join!(watched, evaluating);
    }
}

/// The PerformanceProfiles as seen last.
type Objects = watch::Receiver<Seen<SeenProfile>>;

fn by_name(objects: &mut Objects) -> BTreeMap<String, SeenProfile> {
    let seen = objects.borrow_and_update();
    let named = seen
        .objects
        .iter()
        .map(|((_, name), seen)| (name.clone(), seen.clone()));
    named.collect()
}

/// State of a profile between its rounds.
struct Entry {
    evaluated: Evaluated,
    /// When the next round starts.
    next: Moment,
    /// Whether a round has started and waits for answers.
    is_waiting: bool,
}

struct Evaluator<'e> {
    evaluated: &'e watch::Sender<Arc<All>>,
    shared: Arc<SharedState>,
    clock: Clock,
    metrics: &'e Metrics,
    changes: Changes,
    entries: BTreeMap<String, Entry>,
    answers: Answers,
}

impl Evaluator<'_> {
    /// Takes over the current objects. A changed profile is evaluated at once.
    async fn take(&mut self, objects: BTreeMap<String, SeenProfile>) {
        let now = self.clock.moment();
        self.entries.retain(|name, _| objects.contains_key(name));
        for (name, seen) in objects {
            if let Some(entry) = self.entries.get_mut(&name)
                && entry.evaluated.seen.spec == seen.spec
            {
                entry.evaluated.seen = seen;
                continue;
            }
            let before = self.entries.get(&name).map(|entry| &entry.evaluated);
            let evaluated = Evaluated::after(seen, before);
            if let Some(error) = &evaluated.refused {
                tracing::warn!(name, error, "a PerformanceProfile is not accepted");
            }
            let entry = Entry {
                evaluated,
                next: now,
                is_waiting: false,
            };
            self.entries.insert(name, entry);
        }
        let profiles = self
            .entries
            .values()
            .filter_map(|entry| entry.evaluated.profile.as_ref());
        self.answers.retain(profiles.flat_map(|profile| profile.queries()));
        self.publish().await;
    }

    /// Evaluates the profiles with this configuration and takes over changed objects. Never returns.
    async fn evaluate(&mut self, config: &Arc<Config>, objects: &mut Objects) {
        loop {
            let mut server = answers::open(config.prometheus.as_ref()).await;
            let client = server.as_ref().map(Connection::client).map_err(Clone::clone);
            let is_broken = client.is_err() && config.prometheus.is_some();
            let followed = async {
                match &mut server {
                    Ok(connection) => connection.follow().await,
                    Err(_) => std::future::pending().await,
                }
            };
            let rounds = async { tokio::join!(self.rounds(config, client, objects), followed) };
            match is_broken {
                true => drop(tokio::time::timeout(REOPEN, rounds).await),
                false => drop(rounds.await),
            }
        }
    }

    /// Runs rounds with this client. Never returns.
    async fn rounds(&mut self, config: &Arc<Config>, client: Client, objects: &mut Objects) {
        let mut asked = FuturesUnordered::new();
        self.answers.ask_again();
        loop {
            self.begin_rounds();
            while asked.len() < MAX_ASKED
                && let Some(query) = self.answers.next_to_ask()
            {
                asked.push(answers::ask(client.clone(), query, self.clock));
            }
            self.end_rounds(config).await;
            let next = self
                .entries
                .values()
                .filter(|entry| !entry.is_waiting)
                .map(|entry| entry.next)
                .min();
            tokio::select! {
                Some((query, answer)) = asked.next() => self.answers.take(&query, answer, self.metrics),
                Ok(()) = objects.changed() => self.take(by_name(objects)).await,
                () = self.clock.reach(next) => {}
            }
        }
    }

    /// Starts the rounds that are due. Their queries are sent again, unless another profile sent them a moment ago.
    fn begin_rounds(&mut self) {
        let now = self.clock.moment();
        for entry in self.entries.values_mut() {
            let Some(profile) = &entry.evaluated.profile else {
                entry.next = Moment(i64::MAX);
                continue;
            };
            if entry.is_waiting || now < entry.next {
                continue;
            }
            entry.next = now.after(profile.period);
            entry.is_waiting = true;
            for query in profile.queries() {
                self.answers.want(query, now, profile.period);
            }
        }
    }

    /// Evaluates the profiles whose queries all have an answer, and publishes the results of all profiles.
    async fn end_rounds(&mut self, config: &Arc<Config>) {
        let is_over = |entry: &Entry| {
            let profile = entry.evaluated.profile.as_ref().filter(|_| entry.is_waiting)?;
            let is_answered = profile.queries().all(|query| !self.answers.is_awaited(query));
            is_answered.then(|| Arc::clone(profile))
        };
        let over = self
            .entries
            .iter()
            .filter_map(|(name, entry)| Some((name.clone(), is_over(entry)?)));
        let over: Vec<_> = over.collect();
        if over.is_empty() {
            return;
        }
        let (snapshot, config, now) = (self.shared.snapshot(), Arc::clone(config), self.clock.now());
        let answers = self.answers.clone();
        let rounds = blocking(move || {
            let evaluate = |(name, profile): (String, Arc<Profile>)| {
                let evaluation =
                    edgeward_profiles::score(&profile, &snapshot, &config, |query| answers.get(query), now.moment);
                (name, Arc::new(Round { evaluation, at: now }))
            };
            over.into_iter().map(evaluate).collect::<Vec<_>>()
        })
        .await;
        for (name, round) in rounds {
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.evaluated.last = Some(round);
                entry.is_waiting = false;
            }
        }
        self.publish().await;
    }

    async fn publish(&self) {
        let all = self
            .entries
            .iter()
            .map(|(name, entry)| (name.clone(), entry.evaluated.clone()));
        self.evaluated.send_replace(Arc::new(all.collect()));
        let scores = self
            .entries
            .iter()
            .filter_map(|(name, entry)| Some(((**name).into(), entry.evaluated.scores()?)));
        let scores: Profiles = scores.collect();
        self.changes.send(Change::Profiles(Arc::new(scores))).await;
    }
}

/// Reads the scores of a PerformanceProfile from its status, for processes that do not evaluate it. `None` if the
/// spec is invalid.
pub(crate) fn scores_of(object: &Raw, now: Now) -> Option<(Box<str>, Arc<ProfileScores>)> {
    let name = object.meta().name.as_deref()?;
    let value: Value = serde_json::from_str(object.json()).ok()?;
    let profile = Profile::read(&value["spec"]).ok()?;
    let status: PerformanceProfileStatus = serde_json::from_value(value["status"].clone()).unwrap_or_default();
    let is_of_spec = status.observed_generation == value["metadata"]["generation"].as_i64();
    let site = |site: SiteScore| {
        let age = now.wall.duration_since(site.as_of?.parse().ok()?);
        let numbers = if site.by_missing.is_empty() {
            vec![site.score?]
        } else {
            site.by_missing
        };
        let by_missing: Option<Arc<[Score]>> = numbers.into_iter().map(Score::of).collect();
        let age = Micros(u64::try_from(age.as_micros()).unwrap_or(0));
        Some((
            Box::from(site.site),
            scores::SiteScore {
                by_missing: by_missing?,
                as_of: now.moment.before(age),
            },
        ))
    };
    let scores = ProfileScores {
        better: profile.better,
        margin: profile.margin,
        staleness: profile.staleness,
        preferred: status.preferred.filter(|_| is_of_spec).map(Box::from),
        sites: status
            .scores
            .into_iter()
            .filter(|_| is_of_spec)
            .filter_map(site)
            .collect(),
    };
    Some((name.into(), Arc::new(scores)))
}

/// Reads a PerformanceProfile.
pub(crate) fn read(object: &Raw) -> Option<SeenProfile> {
    object.meta().name.as_ref()?;
    let mut value: Value = serde_json::from_str(object.json()).ok()?;
    // We wrote this status ourselves. Anything else is ignored.
    let status: PerformanceProfileStatus = serde_json::from_value(value["status"].take()).unwrap_or_default();
    let since = status.preferred_since.and_then(|since| since.parse().ok());
    let accepted = status
        .conditions
        .into_iter()
        .find(|condition| condition.kind == "Accepted");
    Some(SeenProfile {
        generation: value["metadata"]["generation"].as_i64(),
        spec: value["spec"].take(),
        known: Known {
            generation: status.observed_generation,
            preferred: status.preferred.map(|site| Box::from(&*site)).zip(since),
            accepted: accepted.map(|condition| (condition.status == "True", condition.last_transition_time)),
        },
    })
}

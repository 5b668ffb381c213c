//! Finds the clusters near this one: the I/O around [`edgeward_peers::Agent`], over HTTPS with mutual TLS.

mod client;
mod server;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use axum_server::tls_rustls::RustlsConfig;
use edgeward_decision::config;
use edgeward_decision::model::report::Report;
use edgeward_kube::units::{Micros, Moment};
use edgeward_peers::{Agent, ClusterId, Input, Output, Settings};
use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::FuturesUnordered;
use hyper::body::Bytes;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::platform::files::{Content, Contents, Watch};
use crate::platform::random;
use crate::tls::{self, Member};

use client::{Answer, Client};

/// The report of a peer is asked for again after this time, if decisions use it.
const REPORT_AGE: Micros = Micros::from_secs(8);

/// Peers that have asked and wait for the agent.
const WAITING: usize = 16;

/// A cluster near this one.
#[derive(Debug, Clone, PartialEq)]
pub struct NearPeer {
    /// Its id, by its certificate.
    pub id: ClusterId,
    /// Its address.
    pub address: IpAddr,
    /// The RTT of the last TCP handshake with it.
    pub rtt: Micros,
    /// When it last answered.
    pub seen: Timestamp,
    /// What it reported then, if it reports.
    pub report: Option<Arc<Report>>,
}

/// The peers near this cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Near {
    /// Number of the round.
    pub round: u64,
    /// By id.
    pub peers: Vec<NearPeer>,
}

/// Everything that discovery needs.
pub struct Peers {
    /// The section `peers` of the configuration.
    pub settings: config::Peers,
    /// Certificate, key and authorities.
    pub membership: Membership,
    /// The report of this cluster, which peers may read.
    pub report: watch::Receiver<Option<Arc<Report>>>,
    /// Whether decisions use the report of this cluster.
    pub refines: Box<dyn Fn(&ClusterId) -> bool + Send>,
    /// Where the near peers are published.
    pub near: watch::Sender<Near>,
    /// The process's clock.
    pub clock: Clock,
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
}

/// A peer that asks for our offers.
struct Asked {
    from: IpAddr,
    id: ClusterId,
    request: Bytes,
    reply: oneshot::Sender<Option<Vec<u8>>>,
}

/// What a peer last said.
struct Heard {
    at: Moment,
    wall: Timestamp,
    report: Option<Arc<Report>>,
}

/// What has come of a request to a peer.
enum Done {
    Asked(IpAddr, anyhow::Result<Answer>),
    Reported(ClusterId, anyhow::Result<Option<Report>>),
}

type Requests = FuturesUnordered<BoxFuture<'static, Done>>;

impl Peers {
    /// Serves peers on this listener, and looks for peers in rounds of about 10 s, at first of 2.5 s. Returns only when the certificate cannot be
    /// used any more: it has expired, or all authorities have.
    pub async fn run(self, listener: TcpListener) -> anyhow::Error {
        let settings = Arc::new(self.membership.settings(&self.settings));
        let tls = RustlsConfig::from_config(Arc::clone(&self.membership.member.load().server));
        let (sender, asked) = mpsc::channel(WAITING);
        let serving = server::serve(
            listener,
            tls.clone(),
            Arc::clone(&settings),
            sender,
            self.report,
            Arc::clone(&self.metrics),
        );
        let client = Client {
            member: Arc::clone(&self.membership.member),
            settings: Arc::clone(&settings),
            port: self.settings.port,
            clock: self.clock,
        };
        let mut random = fastrand::Rng::with_seed(random());
        let discovery = Discovery {
            agent: Agent::new((*settings).clone(), &mut random),
            random,
            client: Arc::new(client),
            heard: BTreeMap::new(),
            round: 0,
            refines: self.refines,
            near: self.near,
            clock: self.clock,
        };
        tokio::select! {
            never = serving => never,
            never = discovery.run(asked) => never,
            error = self.membership.follow(tls, self.clock) => error,
        }
    }
}

/// The agent, and what its peers have said.
struct Discovery {
    agent: Agent,
    random: fastrand::Rng,
    client: Arc<Client>,
    heard: BTreeMap<ClusterId, Heard>,
    round: u64,
    refines: Box<dyn Fn(&ClusterId) -> bool + Send>,
    near: watch::Sender<Near>,
    clock: Clock,
}

impl Discovery {
    async fn run(mut self, mut asked: mpsc::Receiver<Asked>) -> ! {
        let mut requests = Requests::new();
        let mut round = pin!(tokio::time::sleep(Duration::ZERO));
        loop {
            tokio::select! {
                () = &mut round => {
                    // Clusters that start together must not measure together.
                    self.publish();
                    self.round += 1;
                    self.handle(Input::Round, &requests);
                    let pause = Duration::from_micros(self.agent.pause().0);
                    round.set(tokio::time::sleep(pause.mul_f64(0.75 + 0.5 * self.random.f64())));
                    self.ask_for_reports(&requests);
                }
                Some(asked) = asked.recv() => self.answer(asked, &requests),
                Some(done) = requests.next() => self.take(done, &requests),
            }
        }
    }

    /// Hands an input to the agent and sends what it wants to ask. Returns the other outputs.
    fn handle(&mut self, input: Input<'_>, requests: &Requests) -> Vec<Output> {
        let outputs = self.agent.handle(input, self.clock.moment(), &mut self.random);
        let mut others = vec![];
        for output in outputs {
            match output {
                Output::Ask { address, request } => {
                    let client = Arc::clone(&self.client);
                    let asking = async move { Done::Asked(address, client.ask(address, request).await) };
                    requests.push(asking.boxed());
                }
                other => others.push(other),
            }
        }
        others
    }

    fn answer(&mut self, asked: Asked, requests: &Requests) {
        let input = Input::Asked {
            from: asked.from,
            id: asked.id,
            request: &asked.request,
        };
        let reply = self
            .handle(input, requests)
            .into_iter()
            .find_map(|output| match output {
                Output::Reply(reply) => Some(reply),
                _ => None,
            });
        // The peer may have hung up.
        let _ = asked.reply.send(reply);
    }

    fn take(&mut self, done: Done, requests: &Requests) {
        match done {
            Done::Asked(address, Ok(answer)) => {
                tracing::debug!(%address, peer = answer.id.as_str(), rtt_ms = answer.rtt.as_millis_f64(), "a peer answered");
                self.hear(answer.id.clone(), answer.report);
                let input = Input::Answered {
                    address,
                    id: answer.id,
                    rtt: answer.rtt,
                    reply: &answer.reply,
                };
                self.handle(input, requests);
            }
            Done::Asked(address, Err(error)) => {
                tracing::debug!(%address, error = format!("{error:#}"), "a peer did not answer");
                self.handle(Input::Failed { address }, requests);
            }
            Done::Reported(id, Ok(report)) => self.hear(id, Ok(report)),
            Done::Reported(id, Err(error)) => {
                tracing::debug!(peer = id.as_str(), error = format!("{error:#}"), "no report");
            }
        }
        self.publish();
    }

    /// Notes that a peer answered. Without a readable report its last one stays, which is ignored once it is old.
    fn hear(&mut self, id: ClusterId, report: anyhow::Result<Option<Report>>) {
        let report = match report {
            Ok(report) => report.map(Arc::new),
            Err(error) => {
                tracing::debug!(peer = id.as_str(), error = format!("{error:#}"), "no report");
                self.heard.get(&id).and_then(|heard| heard.report.clone())
            }
        };
        let heard = Heard {
            at: self.clock.moment(),
            wall: self.clock.wall(),
            report,
        };
        self.heard.insert(id, heard);
    }

    /// Asks near peers whose report decisions use, and that are not asked anyway in this round.
    fn ask_for_reports(&self, requests: &Requests) {
        let now = self.clock.moment();
        for peer in &self.near.borrow().peers {
            let is_due = |heard: &Heard| now.since(heard.at) >= REPORT_AGE;
            if (self.refines)(&peer.id) && self.heard.get(&peer.id).is_some_and(is_due) {
                let (client, id, address) = (Arc::clone(&self.client), peer.id.clone(), peer.address);
                let asking = async move {
                    let report = client.report(address, &id).await;
                    Done::Reported(id, report)
                };
                requests.push(asking.boxed());
            }
        }
    }

    fn publish(&mut self) {
        let near = self.agent.peers().filter(|(_, peer)| peer.is_near());
        let near = near.filter_map(|(address, peer)| {
            let id = peer.id.clone()?;
            let heard = self.heard.get(&id)?;
            Some(NearPeer {
                address,
                rtt: peer.rtt?,
                seen: heard.wall,
                report: heard.report.clone(),
                id,
            })
        });
        let mut peers: Vec<_> = near.collect();
        peers.sort_by(|one, other| one.id.cmp(&other.id));
        self.heard.retain(|id, _| peers.iter().any(|peer| peer.id == *id));
        let near = Near {
            round: self.round,
            peers,
        };
        self.near.send_if_modified(|known| {
            let is_news = *known != near;
            *known = near;
            is_news
        });
    }
}

/// The certificate of this cluster, its key and the authorities of the federation: `tls.crt`, `tls.key` and `ca.crt` of a
/// directory, read again when they change.
pub struct Membership {
    id: ClusterId,
    domain: String,
    member: Arc<ArcSwap<Member>>,
    files: Watch,
    contents: Contents,
}

impl Membership {
    /// Reads the files.
    ///
    /// # Errors
    /// A file is missing or unusable, or the certificate names no cluster.
    pub async fn open(directory: &Path, clock: Clock) -> anyhow::Result<Self> {
        let paths = ["tls.crt", "tls.key", "ca.crt"].map(|name| directory.join(name));
        let (files, contents) = Watch::open(paths.to_vec()).await?;
        let member = Member::read(&contents, clock.wall())?;
        let (domain, id) = of_uri(&member.uri)?;
        Ok(Self {
            id,
            domain,
            member: Arc::new(ArcSwap::from_pointee(member)),
            files,
            contents,
        })
    }

    /// The id of this cluster.
    pub fn id(&self) -> &ClusterId {
        &self.id
    }

    /// The trust domain of its federation.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    fn settings(&self, settings: &config::Peers) -> Settings {
        Settings {
            id: self.id.clone(),
            address: settings.address,
            domain: self.domain.clone(),
            denied: settings.denied.iter().filter_map(|id| ClusterId::parse(id)).collect(),
            allowed_cidrs: settings.allowed_cidrs.iter().map(|cidr| cidr.0).collect(),
            own_ranges: settings.own_cidrs.iter().map(|cidr| cidr.0).collect(),
            seeds: settings.seeds.clone(),
            max_rtt: settings.max_rtt,
        }
    }

    /// Takes over new files. Returns why the present ones cannot be used any more.
    async fn follow(self, tls: RustlsConfig, clock: Clock) -> anyhow::Error {
        let Self {
            id,
            domain,
            member,
            files,
            contents,
        } = self;
        let take = |contents: &[Content]| {
            load(&id, &domain, &member, contents, clock)?;
            tls.reload_from_config(Arc::clone(&member.load().server));
            Ok(())
        };
        tls::follow(files, contents, "peers", take).await
    }
}

/// Takes over these files if they are of the cluster with this id.
fn load(
    id: &ClusterId,
    domain: &str,
    member: &ArcSwap<Member>,
    contents: &[Content],
    clock: Clock,
) -> anyhow::Result<()> {
    let new = Member::read(contents, clock.wall())?;
    let (new_domain, new_id) = of_uri(&new.uri)?;
    anyhow::ensure!(
        (&*new_domain, &new_id) == (domain, id),
        "it names {}; the id of a cluster cannot change while edgeward runs",
        new.uri
    );
    member.store(Arc::new(new));
    Ok(())
}

/// The trust domain and the cluster of a URI name.
fn of_uri(uri: &str) -> anyhow::Result<(String, ClusterId)> {
    let (domain, id) = ClusterId::of_uri(uri).with_context(|| {
        format!("the certificate's URI name {uri:?} is not spiffe://DOMAIN/cluster/ID, with lower-case letters, digits and `-` in ID")
    })?;
    Ok((domain.to_owned(), id))
}

#[cfg(test)]
mod tests;

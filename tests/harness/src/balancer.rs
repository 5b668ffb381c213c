//! One address for several replicas, as a Service provides. New connections rotate over the replicas. A replica that is no
//! longer ready still gets its share for a while. Unlike a Service, it can cut open connections.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::prelude::*;

/// Time after which a replica that is not ready gets no new connections. Its open connections stay.
pub(crate) const REMOVAL: Duration = Duration::from_secs(5);

const PERIOD: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(1);

pub struct Balancer<'run> {
    runtime: &'run Runtime,
    address: SocketAddr,
    endpoints: Endpoints,
    connections: Connections,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

#[derive(Clone, Default)]
struct Endpoints(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    endpoints: Vec<SocketAddr>,
    /// Replicas that get no more connections, although they may be ready.
    removed: Vec<SocketAddr>,
    turn: usize,
    opened: HashMap<SocketAddr, u64>,
}

/// The connections through a [`Balancer`].
#[derive(Clone, Default)]
pub struct Connections {
    carried: Arc<tokio::sync::Mutex<JoinSet<()>>>,
    cut: watch::Sender<()>,
}

impl<'run> Balancer<'run> {
    /// Opens a balancer without replicas.
    pub fn open(fixture: &Fixture<'run>) -> Result<Self> {
        Self::open_on(fixture, std::net::TcpListener::bind("127.0.0.1:0")?)
    }

    /// Opens a balancer for these replicas. Also returns the CAs of all, because each replica has its own.
    pub fn before(fixture: &Fixture<'run>, replicas: &[Edgeward<'_>]) -> Result<(Self, String)> {
        let balancer = Self::open(fixture)?;
        replicas.iter().try_for_each(|replica| balancer.add(replica))?;
        Ok((balancer, replicas.iter().map(|replica| replica.ca.as_str()).collect()))
    }

    /// Opens a balancer without replicas on an existing listener.
    pub fn open_on(fixture: &Fixture<'run>, listener: std::net::TcpListener) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = fixture.runtime.block_on(async { TcpListener::from_std(listener) })?;
        let address = listener.local_addr()?;
        let (endpoints, connections) = (Endpoints::default(), Connections::default());
        let accepting = accept(listener, endpoints.clone(), connections.clone());
        let accepting = fixture.runtime.spawn(accepting);
        Ok(Self {
            runtime: fixture.runtime,
            address,
            endpoints,
            connections,
            tasks: RefCell::new(vec![accepting]),
        })
    }

    pub fn url(&self) -> String {
        format!("https://{}/mutate", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn connections(&self) -> Connections {
        self.connections.clone()
    }

    pub(crate) fn opened(&self, replica: &Edgeward<'_>) -> u64 {
        let known = self.endpoints.lock();
        known.opened.get(&replica.admission()).copied().unwrap_or(0)
    }

    /// Adds a replica and waits until it is ready.
    pub fn add(&self, replica: &Edgeward<'_>) -> Result<()> {
        let (admission, health) = (replica.admission(), replica.health());
        let probing = self.runtime.spawn(probe(admission, health, self.endpoints.clone()));
        self.tasks.borrow_mut().push(probing);
        eventually("the replica gets connections", BOUND, || {
            ensure!(self.endpoints.lock().endpoints.contains(&admission), "it does not");
            Ok(())
        })
    }

    /// Gives a replica no new connections from now on.
    pub(crate) fn remove(&self, replica: &Edgeward<'_>) {
        let known = &mut *self.endpoints.lock();
        known.removed.push(replica.admission());
        known.endpoints.retain(|endpoint| *endpoint != replica.admission());
    }

    /// Waits until a replica that is not ready gets no new connections.
    pub fn drops(&self, replica: &Edgeward<'_>) -> Result<()> {
        eventually("the replica gets no more connections", BOUND, || {
            ensure!(
                !self.endpoints.lock().endpoints.contains(&replica.admission()),
                "it does"
            );
            Ok(())
        })
    }
}

impl Drop for Balancer<'_> {
    fn drop(&mut self) {
        self.tasks.get_mut().iter().for_each(JoinHandle::abort);
    }
}

impl Endpoints {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, endpoint: SocketAddr) {
        let known = &mut *self.lock();
        if !known.endpoints.contains(&endpoint) && !known.removed.contains(&endpoint) {
            known.endpoints.push(endpoint);
        }
    }

    fn next(&self) -> Option<SocketAddr> {
        let known = &mut *self.lock();
        known.turn += 1;
        let next = *known.endpoints.get(known.turn % known.endpoints.len().max(1))?;
        *known.opened.entry(next).or_default() += 1;
        Some(next)
    }
}

impl Connections {
    /// Ends every connection, and returns when the API server knows. No request may be in flight.
    pub async fn cut(&self) {
        let mut carried = self.carried.lock().await;
        self.cut.send_replace(());
        while carried.join_next().await.is_some() {}
    }
}

async fn accept(listener: TcpListener, endpoints: Endpoints, connections: Connections) {
    while let Ok((near, _)) = listener.accept().await {
        let Some(endpoint) = endpoints.next() else { continue };
        let mut carried = connections.carried.lock().await;
        while carried.try_join_next().is_some() {}
        carried.spawn(carry(near, endpoint, connections.cut.subscribe()));
    }
}

/// Passes data on until either side closes. Closes at once if the replica refuses the connection.
async fn carry(mut near: TcpStream, endpoint: SocketAddr, mut cut: watch::Receiver<()>) {
    let Ok(mut far) = TcpStream::connect(endpoint).await else {
        return;
    };
    // If this fails, the connection is only slower.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = cut.changed() => {
            // Closing at once would let the API server write its next request before it sees the end.
            let _ = near.shutdown().await;
            while near.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
        }
    }
}

async fn probe(admission: SocketAddr, health: SocketAddr, endpoints: Endpoints) {
    let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build();
    let Ok(client) = client else { return };
    let mut not_ready_since = None;
    loop {
        let answer = client.get(format!("http://{health}/readyz")).send().await;
        let is_ready = answer.is_ok_and(|answer| answer.status().is_success());
        if is_ready {
            not_ready_since = None;
            endpoints.add(admission);
        } else if not_ready_since.get_or_insert_with(Instant::now).elapsed() >= REMOVAL {
            endpoints.lock().endpoints.retain(|endpoint| *endpoint != admission);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

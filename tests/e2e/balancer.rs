//! One address for several replicas, as a Service is: each new connection goes to the next of them, and one that is not
//! ready any more still gets its share for a while.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::edgeward::Edgeward;
use crate::patience::{BOUND, eventually};
use crate::scene::Scene;

/// So long after it became not ready, a replica gets no connections any more. Those that it has stay.
pub(crate) const REMOVAL: Duration = Duration::from_secs(5);

/// How often it is asked, and how long it may take to answer.
const PERIOD: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Balancer<'run> {
    runtime: &'run Runtime,
    address: SocketAddr,
    endpoints: Endpoints,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

#[derive(Clone, Default)]
struct Endpoints(Arc<Mutex<(Vec<SocketAddr>, usize)>>);

impl<'run> Balancer<'run> {
    /// For nobody yet.
    pub(crate) fn open(scene: &Scene<'run>) -> Result<Self> {
        let listener = scene.runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let endpoints = Endpoints::default();
        let accepting = scene.runtime.spawn(accept(listener, endpoints.clone()));
        Ok(Self {
            runtime: scene.runtime,
            address,
            endpoints,
            tasks: RefCell::new(vec![accepting]),
        })
    }

    /// Where the API server calls it.
    pub(crate) fn url(&self) -> String {
        format!("https://{}/mutate", self.address)
    }

    /// Adds a replica, for whenever it is ready, and waits until it is.
    pub(crate) fn add(&self, replica: &Edgeward<'_>) -> Result<()> {
        let (admission, health) = (replica.admission(), replica.health());
        let probing = self.runtime.spawn(probe(admission, health, self.endpoints.clone()));
        self.tasks.borrow_mut().push(probing);
        eventually("the replica gets connections", BOUND, || {
            ensure!(self.endpoints.lock().0.contains(&admission), "it does not");
            Ok(())
        })
    }

    /// Waits until a replica that is not ready gets no connections any more.
    pub(crate) fn drops(&self, replica: &Edgeward<'_>) -> Result<()> {
        eventually("the replica gets no more connections", BOUND, || {
            ensure!(!self.endpoints.lock().0.contains(&replica.admission()), "it does");
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
    fn lock(&self) -> MutexGuard<'_, (Vec<SocketAddr>, usize)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, endpoint: SocketAddr) {
        let known = &mut self.lock().0;
        if !known.contains(&endpoint) {
            known.push(endpoint);
        }
    }

    fn next(&self) -> Option<SocketAddr> {
        let (endpoints, turn) = &mut *self.lock();
        *turn += 1;
        endpoints.get(*turn % endpoints.len().max(1)).copied()
    }
}

/// A connection ends with either side; at once where nobody takes it.
async fn accept(listener: TcpListener, endpoints: Endpoints) {
    while let Ok((mut near, _)) = listener.accept().await {
        let Some(endpoint) = endpoints.next() else { continue };
        tokio::spawn(async move {
            let mut far = TcpStream::connect(endpoint).await?;
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            copy_bidirectional(&mut near, &mut far).await
        });
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
            endpoints.lock().0.retain(|endpoint| *endpoint != admission);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

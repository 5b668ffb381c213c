//! The WAN of a test: a network namespace for the edge, one for the cloud, and a link between them that delays and drops
//! packets. It has one TUN device in each namespace.
//!
//! ```text
//! namespace "edge"                                         namespace "cloud"
//!   wan 198.51.100.1 ──TUN──►  loss, delay, cut  ──TUN──►  wan 198.51.100.2
//!                    ◄──TUN──        delay, cut  ◄──TUN──
//! ```

pub mod lateness;
pub mod mesh;

use std::fs::File;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::anyhow;
use fastrand::Rng;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_tun::Tun;

use crate::prelude::*;

/// Addresses of the two ends, from a block reserved for documentation.
const EDGE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub const CLOUD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 252);
const MTU: usize = 1500;

/// The behaviour of the link. All values describe a round trip, because that is what a probe measures.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conditions {
    /// Least round-trip time from a request to its answer, half in each direction.
    pub rtt: Duration,
    /// Probability (0 to 1) that a packet is lost on the way to the cloud. Answers are never lost.
    pub loss: f64,
    /// Nothing passes, including packets in flight.
    pub is_cut: bool,
}

impl Conditions {
    /// A link that only delays.
    pub fn rtt(millis: u64) -> Self {
        Self {
            rtt: Duration::from_millis(millis),
            ..Self::default()
        }
    }
}

pub struct Wan {
    // The first field, so that the devices are gone before their namespaces.
    _runtime: Runtime,
    conditions: watch::Sender<Conditions>,
    pub edge: Namespace,
    cloud: Namespace,
}

impl Wan {
    /// Opens a link that passes everything at once.
    pub fn open() -> Result<Self> {
        static TESTS: AtomicU32 = AtomicU32::new(0);
        let test = TESTS.fetch_add(1, Ordering::Relaxed);
        let edge = Namespace::create(format!("edge-{test}"))?;
        let cloud = Namespace::create(format!("cloud-{test}"))?;
        let runtime = runtime()?;
        let at_edge = Arc::new(edge.device(&runtime, EDGE, NETMASK)?);
        let at_cloud = Arc::new(cloud.device(&runtime, CLOUD, NETMASK)?);
        let conditions = watch::Sender::default();
        for (from, to, is_lossy) in [(&at_edge, &at_cloud, true), (&at_cloud, &at_edge, false)] {
            let carrying = carry(Arc::clone(from), Arc::clone(to), conditions.subscribe(), is_lossy);
            runtime.spawn(reported(carrying));
        }
        Ok(Self {
            _runtime: runtime,
            conditions,
            edge,
            cloud,
        })
    }

    pub fn set(&self, conditions: Conditions) {
        self.conditions.send_replace(conditions);
    }

    /// Listens in the cloud, and accepts and closes every connection. Ends with the process.
    pub fn cloud_listener(&self) -> Result<SocketAddr> {
        let listener = self.cloud.enter(|| Ok(TcpListener::bind((CLOUD, 0))?))?;
        let address = listener.local_addr()?;
        thread::spawn(move || listener.incoming().for_each(drop));
        Ok(address)
    }

    pub fn edge_runtime(&self) -> Result<Runtime> {
        self.edge.enter(runtime)
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

/// Says why the link has ended, so that a broken device does not look like a lost WAN.
async fn reported(carrying: impl Future<Output = Result<()>>) {
    if let Err(error) = carrying.await {
        eprintln!("the link has ended: {error:#}");
    }
}

/// Passes packets on in one direction, in their order, until a device breaks.
async fn carry(from: Arc<Tun>, to: Arc<Tun>, conditions: watch::Receiver<Conditions>, is_lossy: bool) -> Result<()> {
    let (sender, on_the_way) = mpsc::channel::<(Instant, Vec<u8>)>();
    let now = conditions.clone();
    // A thread, because tokio's timers are up to a millisecond late.
    thread::spawn(move || {
        for (due, packet) in on_the_way {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if now.borrow().is_cut {
                continue;
            }
            // A device whose queue is full drops the packet.
            match to.try_send(&packet) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return eprintln!("the link has ended: {error}"),
                _ => {}
            }
        }
    });
    let (mut random, mut packet) = (Rng::with_seed(7), [0; MTU]);
    loop {
        let length = from.recv(&mut packet).await?;
        let Conditions { rtt, loss, is_cut } = *conditions.borrow();
        let is_lost = is_lossy && random.f64() < loss;
        if !is_cut && !is_lost {
            let sent = sender.send((Instant::now() + rtt / 2, packet[..length].to_vec()));
            sent.context("the other device is broken")?;
        }
    }
}

/// A network namespace of `ip netns`. Dropping it removes the namespace.
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Creates a namespace with a loopback interface that is up, in which every user may send ICMP echo requests.
    fn create(name: String) -> Result<Self> {
        ip(&["netns", "add", &name])?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        let file = File::open(Path::new("/run/netns").join(&name))?;
        let namespace = Self { name, file };
        namespace.enter(|| fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").context("ping_group_range"))?;
        Ok(namespace)
    }

    /// Runs `inside` on a thread of its own in the namespace and waits for it.
    ///
    /// A socket stays in the namespace where it was created, even if other threads use it later. Threads that `inside` starts
    /// inherit the namespace.
    pub fn enter<T: Send>(&self, inside: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let body = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("cannot enter the network namespace {}", self.name))?;
            inside()
        };
        thread::scope(|scope| scope.spawn(body).join())
            .unwrap_or_else(|_| Err(anyhow!("a thread panicked in the network namespace {}", self.name)))
    }

    /// Starts a program in the namespace. Its log is `<dir>/<name>.log`.
    pub fn start(&self, name: &str, program: &Path, args: &[String], dir: &Path) -> Result<Process> {
        let program = program.display().to_string();
        let all = [&["netns", "exec", &self.name, &program].map(str::to_owned), args].concat();
        Process::start(name, Path::new("ip"), &all, dir)
    }

    /// Creates a TUN device in the namespace, up and with its address.
    fn device(&self, runtime: &Runtime, address: Ipv4Addr, netmask: Ipv4Addr) -> Result<Tun> {
        self.enter(|| {
            let _registering = runtime.enter();
            let builder = Tun::builder().name("wan").mtu(MTU as i32);
            let devices = builder.address(address).netmask(netmask).up().build();
            let made = devices.context("cannot make a TUN device")?;
            made.into_iter().next().context("a device of one queue")
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(&["netns", "del", &self.name]) {
            eprintln!("cannot remove a namespace: {error:#}");
        }
    }
}

/// The probe target for ICMP: the cloud's kernel answers echo requests.
pub fn icmp(_: &Wan) -> Result<String> {
    Ok(format!("icmp://{CLOUD}"))
}

pub fn tcp(wan: &Wan) -> Result<String> {
    Ok(format!("tcp://{}", wan.cloud_listener()?))
}

fn ip(args: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(args).output().context("cannot start ip")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", args.join(" "), said.trim_end());
    Ok(())
}

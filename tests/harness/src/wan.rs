//! The WAN of a test: a namespace for the edge, one for the cloud, and the link between them.

pub mod lateness;
pub mod sandbox;

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use edgeward_link::link::Counts;
use edgeward_link::namespace::Namespace;
use edgeward_link::relay::{CLOUD, EDGE};
use tokio::runtime::{Builder, Runtime};

use crate::prelude::*;

pub const AS_LINK: &str = "--as-link";

/// A link that starts up and perfect, with seed 0.
pub struct Wan {
    pub edge: Namespace,
    pub cloud: Namespace,
    link: Child,
    /// `None` after the link was told to end.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    told: Vec<String>,
}

impl Wan {
    pub fn open() -> Result<Self> {
        static TESTS: AtomicU32 = AtomicU32::new(0);
        let test = TESTS.fetch_add(1, Ordering::Relaxed);
        let edge = namespace(&format!("edge-{test}"))?;
        let cloud = namespace(&format!("cloud-{test}"))?;

        let mut link = Command::new(env::current_exe()?)
            .args([AS_LINK, edge.name(), cloud.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the link")?;
        let commands = link.stdin.take();
        let answers = BufReader::new(link.stdout.take().context("its stdout is a pipe")?);
        let mut wan = Self {
            edge,
            cloud,
            link,
            commands,
            answers,
            told: Vec::new(),
        };
        wan.answer().context("the link does not come up")?;
        Ok(wan)
    }

    /// Sends the link a command line (see [`edgeward_link::conditions::Command`]), which is in force when this returns. Fails
    /// if the link refuses it.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        self.told.push(line.to_owned());
        self.ask(line).map(drop)
    }

    pub fn counts(&mut self) -> Result<[Counts; 2]> {
        let counts = self.ask("counts")?;
        serde_json::from_str(&counts).context(counts)
    }

    /// The commands and actions of the link, for the report of a failure.
    pub fn log(&mut self) -> String {
        format!("link: {} → {:?}", self.told.join(", "), self.counts())
    }

    /// Listens in the cloud, and accepts and closes every connection. Ends with the process.
    pub fn cloud_listener(&self) -> Result<SocketAddr> {
        let listener = self.cloud.enter(|| Ok(TcpListener::bind((CLOUD, 0))?))?;
        let address = listener.local_addr()?;
        thread::spawn(move || listener.incoming().for_each(drop));
        Ok(address)
    }

    /// A socket at the edge and one in the cloud, connected to each other.
    pub fn datagrams(&self) -> Result<[UdpSocket; 2]> {
        let bound = |namespace: &Namespace, address: Ipv4Addr| {
            let socket = namespace.enter(|| Ok(UdpSocket::bind((address, 0))?))?;
            socket.set_read_timeout(Some(BOUND))?;
            anyhow::Ok(socket)
        };
        let (edge, cloud) = (bound(&self.edge, EDGE)?, bound(&self.cloud, CLOUD)?);
        edge.connect(cloud.local_addr()?)?;
        cloud.connect(edge.local_addr()?)?;
        Ok([edge, cloud])
    }

    pub fn edge_runtime(&self) -> Result<Runtime> {
        self.edge
            .enter(|| Ok(Builder::new_multi_thread().worker_threads(1).enable_all().build()?))
    }

    fn ask(&mut self, line: &str) -> Result<String> {
        let commands = self.commands.as_mut().context("the link has been told to end")?;
        // A link that has ended reports the cause on stderr. The broken pipe says nothing useful.
        let _ = writeln!(commands, "{line}");
        self.answer().with_context(|| format!("told `{line}`"))
    }

    fn answer(&mut self) -> Result<String> {
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            let mut said = String::new();
            let stderr = self.link.stderr.as_mut().context("its stderr is a pipe")?;
            stderr.read_to_string(&mut said)?;
            anyhow::bail!("the link has ended: {}", said.trim_end());
        }
        let answer = answer.trim_end();
        let told = answer.strip_prefix("ok");
        ensure!(told.is_some(), "the link says {answer}");
        Ok(told.unwrap_or_default().trim_start().to_owned())
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        // The link ends with its stdin, even when this process is killed.
        self.commands = None;
        if let Err(error) = self.link.wait() {
            eprintln!("the link does not end: {error}");
        }
        for namespace in [&self.edge, &self.cloud] {
            if let Err(error) = ip(&["netns", "del", namespace.name()]) {
                eprintln!("cannot remove a namespace: {error:#}");
            }
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

/// Creates a namespace with a loopback interface that is up, in which every user may send ICMP echo requests.
fn namespace(name: &str) -> Result<Namespace> {
    ip(&["netns", "add", name])?;
    ip(&["-n", name, "link", "set", "lo", "up"])?;
    let namespace = Namespace::named(name)?;
    namespace.enter(|| fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").context("ping_group_range"))?;
    Ok(namespace)
}

fn ip(args: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(args).output().context("cannot start ip")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", args.join(" "), said.trim_end());
    Ok(())
}

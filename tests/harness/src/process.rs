//! Processes that cannot outlive the run. They are killed when dropped, and the kernel kills them when the test runner is
//! killed.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{LazyLock, OnceLock};
use std::thread;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::prelude::*;

pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`. Its log is `<dir>/<name>.log`.
    pub fn start(name: &str, program: &Path, args: &[String], dir: &Path) -> Result<Self> {
        Self::start_with(name, program, args, dir, &[])
    }

    pub fn start_with(
        name: &str,
        program: &Path,
        args: &[String],
        dir: &Path,
        environment: &[(&str, &Path)],
    ) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;

        let mut command = if dies_with_parent() {
            let mut command = Command::new("setpriv");
            command
                .args(["--pdeathsig", "KILL", "--"])
                .arg(program)
                .process_group(0);
            command
        } else {
            // The process stays in the runner's process group, so that at least Ctrl-C reaches it.
            Command::new(program)
        };
        on_loopback(&mut command)
            .args(args)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = spawn(command).with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Fails with [`Ended`] if the process has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Ended {
                name: self.name.clone(),
                status,
            }
            .into()),
        }
    }

    pub(crate) fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process and its children.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid()?;
        // The process group exists if setpriv does.
        kill_process_group(pid, signal)
            .or_else(|_| kill_process(pid, signal))
            .with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }

    /// Pauses the process until the returned value is dropped.
    pub(crate) fn pause(&self) -> Result<Paused<'_>> {
        self.signal(Signal::STOP)?;
        Ok(Paused(self))
    }

    /// The fields of the first event in its JSON log with this message, if there is one.
    pub fn said(&self, message: &str) -> Option<Value> {
        self.all_said(message).into_iter().next()
    }

    pub(crate) fn all_said(&self, message: &str) -> Vec<Value> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["message"] == message).collect()
    }

    pub fn tail(&self) -> String {
        tail(&self.log)
    }

    pub fn kill(&mut self) -> Result<()> {
        // A child that was not reaped yet keeps its pid, so this cannot hit another process.
        if self.child.try_wait()?.is_none() {
            self.signal(Signal::KILL)?;
            self.child.wait()?;
        }
        Ok(())
    }

    fn pid(&self) -> Result<Pid> {
        i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a child has a pid")
    }
}

pub struct Paused<'p>(&'p Process);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.signal(Signal::CONT) {
            eprintln!("{error:#}");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("cannot end {}: {error:#}", self.name);
        }
    }
}

/// Starts the command from a thread that lives as long as the run. The kernel kills the child when the *thread* that started it
/// ends.
fn spawn(command: Command) -> Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static STARTER: LazyLock<Sender<Order>> = LazyLock::new(|| {
        let (orders, taken) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in taken {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, started) = mpsc::channel();
    STARTER
        .send((command, answer))
        .ok()
        .context("the starting thread has gone")?;
    Ok(started.recv()??)
}

/// A field of `/proc/<pid>/status` of a process, in KiB.
pub fn memory_kib(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no {field}: {status}"))
}

/// CPU time that a process has used so far, to a hundredth of a second.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name before the last parenthesis may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times: Vec<u64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .flat_map(str::parse)
        .collect();
    let [user, system] = times[..] else { bail!("{stat}") };
    Ok(Duration::from_millis(
        1_000 * (user + system) / clock_ticks_per_second(),
    ))
}

#[derive(Debug)]
pub struct Ended {
    name: String,
    status: ExitStatus,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has ended: {}", self.name, self.status)
    }
}

impl std::error::Error for Ended {}

/// Removes environment variables of the caller from a program: proxies, which do not know this loopback, and edgeward's own
/// settings.
pub(crate) fn on_loopback(command: &mut Command) -> &mut Command {
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(proxy).env_remove(proxy.to_lowercase());
    }
    command.env_remove("EDGEWARD_LOG").env_remove("POD_NAMESPACE")
}

pub fn tail(log: &Path) -> String {
    const LINES: usize = 25;
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let end = &lines[lines.len().saturating_sub(LINES)..];
    format!("--- {} ---\n{}", log.display(), end.join("\n"))
}

/// `N` different loopback addresses on which nothing listens. Their ports are below those that the kernel gives to
/// connections, one of which might otherwise take a port before the program listens on it.
pub fn free_addresses<const N: usize>() -> Result<[SocketAddr; N]> {
    const FIRST: u16 = 12_000;
    const NUMBER: u16 = 20_000;
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(fastrand::u16(..)));
    // All listeners stay open until the end, so that no two addresses are equal.
    let candidates = (0..NUMBER).map(|_| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % NUMBER);
    let bound = candidates.filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let listeners: Vec<_> = bound.take(N).collect();
    let addresses: io::Result<Vec<_>> = listeners.iter().map(TcpListener::local_addr).collect();
    addresses?.try_into().ok().context("no port is free")
}

/// Whether the kernel can kill a child when its parent ends (setpriv from util-linux).
fn dies_with_parent() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let probe = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "true"])
            .stderr(Stdio::null())
            .status();
        probe.is_ok_and(|status| status.success())
    })
}

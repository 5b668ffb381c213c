//! The real program as a child process.

use std::io::{BufRead as _, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};

use edgeward_harness::checkout::workspace;
use edgeward_harness::edgeward::IMAGE_ENVIRONMENT;
use edgeward_harness::hostile_bodies::pressure::Target;
use tempfile::TempDir;

use crate::client::{Client, eventually, get};
use crate::program::edgeward;

/// Longer than any test, so that only a second signal ends the program.
const ENDLESS_SECONDS: &str = "86400";

pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) admission: SocketAddr,
    pub(crate) health: SocketAddr,
    /// The read end of the program's log. The pipe fills up while it is not read, and closes when this is dropped.
    pub(crate) log: Option<Lines<BufReader<ChildStderr>>>,
    directory: TempDir,
}

impl Process {
    /// Starts the child and reads its log until it reports its address.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::start_logging("info", arguments)
    }

    pub(crate) fn start_logging(filter: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("tempdir");
        let mut child = edgeward()
            .current_dir(workspace())
            .env("EDGEWARD_LOG", filter)
            .envs(IMAGE_ENVIRONMENT)
            .args([
                "serve",
                "--fleet",
                "examples/fleet.yaml",
                "--shutdown-delay",
                ENDLESS_SECONDS,
            ])
            .args([
                "--listen",
                "127.0.0.1:0",
                "--health-listen",
                "127.0.0.1:0",
                "--self-signed",
            ])
            .arg(directory.path())
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let serving = log
            .by_ref()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok())
            .find(|line| line["message"] == "serving")
            .expect("it says that it serves");
        let address = |field: &str| {
            serving[field]
                .as_str()
                .and_then(|text| text.parse().ok())
                .expect("an address")
        };
        Self {
            child,
            admission: address("admission"),
            health: address("health"),
            log: Some(log),
            directory,
        }
    }

    pub(crate) fn discard_log(&mut self) {
        let log = self.log.take().expect("not discarded before");
        std::thread::spawn(move || log.for_each(drop));
    }

    pub(crate) fn client(&self) -> Client {
        let ca_bundle = std::fs::read_to_string(self.directory.path().join("ca.crt")).expect("the CA bundle");
        Client::new(self.admission, &ca_bundle)
    }

    pub(crate) fn target(&self) -> Target {
        let ca_bundle = std::fs::read_to_string(self.directory.path().join("ca.crt")).expect("the CA bundle");
        Target::new(self.admission, "localhost", &ca_bundle, self.child.id()).expect("a CA bundle")
    }

    /// Waits until the program has ended, and returns its exit code.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        let waiting = tokio::task::spawn_blocking(move || self.child.wait().expect("it ends"));
        waiting.await.expect("joined").code()
    }

    pub(crate) async fn is_unready(&self) {
        eventually("not ready", async || {
            get(self.health, "/readyz").await.expect("answered").status == 503
        })
        .await;
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

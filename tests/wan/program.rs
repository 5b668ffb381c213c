//! edgeward in the edge's namespace.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use edgeward_harness::prelude::*;
use edgeward_harness::wan::Wan;
use edgeward_link::namespace::Namespace;
use tempfile::TempDir;

/// A running `edgeward serve` in a namespace.
pub(crate) struct Edgeward {
    process: Process,
    admission: SocketAddr,
    health: SocketAddr,
    directory: TempDir,
}

impl Edgeward {
    /// Starts `edgeward serve` and returns when it serves. `args` follow `serve`; `environment` maps variables to file paths.
    pub(crate) fn start(namespace: &Namespace, args: &[&str], environment: &[(&str, &Path)]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let tls = format!("--self-signed={}", directory.path().display());
        let program = [
            "netns",
            "exec",
            namespace.name(),
            env!("CARGO_BIN_EXE_edgeward"),
            "serve",
        ];
        let listen = [
            "--listen=127.0.0.1:0",
            "--health-listen=127.0.0.1:0",
            "--log-format=json",
        ];
        let args: Vec<String> = program
            .iter()
            .chain(&listen)
            .chain(args)
            .map(|&arg| arg.to_owned())
            .chain([tls])
            .collect();
        let mut process = Process::start_with("edgeward", Path::new("ip"), &args, directory.path(), environment)?;
        let (admission, health) = eventually("edgeward says where it serves", BOUND, || {
            process
                .ensure_running()
                .map_err(|error| error.context(process.tail()))?;
            let serving = process.said("serving").context("it has not")?;
            let address = |field: &str| serving[field].as_str().and_then(|text| text.parse().ok());
            let addresses = address("admission").zip(address("health"));
            addresses.with_context(|| serving.to_string())
        })?;
        Ok(Self {
            process,
            admission,
            health,
            directory,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/mutate", self.admission)
    }

    /// The CA that clients trust, in PEM.
    pub(crate) fn ca(&self) -> Result<String> {
        Ok(fs::read_to_string(self.directory.path().join("ca.crt"))?)
    }

    pub(crate) fn tail(&self) -> String {
        self.process.tail()
    }

    /// The answer of the health port to a request from inside `namespace`: head and body.
    pub(crate) fn get(&self, namespace: &Namespace, path: &str) -> Result<String> {
        namespace.enter(|| {
            let mut stream = TcpStream::connect_timeout(&self.health, BOUND)?;
            stream.set_read_timeout(Some(BOUND))?;
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nhost: edgeward\r\nconnection: close\r\n\r\n"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })
    }
}

pub(crate) fn lives_at_the_edge(wan: &mut Wan) -> Result<()> {
    let fleet = format!("--fleet={}/examples/fleet.yaml", workspace().display());
    let edgeward = Edgeward::start(&wan.edge, &[&fleet], &[])?;
    let answer = edgeward.get(&wan.edge, "/metrics")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}\n{}", edgeward.tail());
    ensure!(
        edgeward.get(&wan.cloud, "/metrics").is_err(),
        "the edge's loopback answers in the cloud"
    );
    Ok(())
}

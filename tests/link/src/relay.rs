//! The link between its devices. One task owns everything, so there are no locks.

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::runtime::Handle;
use tokio::time::sleep_until;
use tokio_tun::Tun;

use crate::conditions::Command;
use crate::link::{Counts, Link, Way};
use crate::namespace::Namespace;

pub const DEVICE: &str = "wan";
/// Address in the first namespace (edge), from a block reserved for documentation.
pub const EDGE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub const CLOUD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 252);
const MTU: usize = 1500;

/// Joins the namespaces until `commands` ends, then removes the devices. Returns the counts of [forth, back].
///
/// The first answer, `ok`, says that the link is up. Each line of `commands` then gets one answer: `ok`, `ok` with the counts
/// as a JSON array, or `error: ` with the fault. A command is in force when its answer is written. Fails if a device breaks or
/// cannot be created. Creating one takes CAP_NET_ADMIN in the namespaces, and /dev/net/tun.
pub async fn join(
    edge: &Namespace,
    cloud: &Namespace,
    seed: u64,
    commands: impl AsyncBufRead + Unpin,
    mut answers: impl AsyncWrite + Unpin,
) -> Result<[Counts; 2]> {
    let edge = device(edge, EDGE)?;
    let cloud = device(cloud, CLOUD)?;
    let mut link = Link::new(seed);
    let mut commands = commands.lines();
    let (mut from_edge, mut from_cloud) = ([0; MTU], [0; MTU]);
    write(&mut answers, "ok").await?;

    loop {
        let due = link.due();
        tokio::select! {
            read = edge.recv(&mut from_edge) => {
                let length = read.context("reading the device at the edge")?;
                link.enter(Way::Forth, &from_edge[..length], Instant::now());
            }
            read = cloud.recv(&mut from_cloud) => {
                let length = read.context("reading the device in the cloud")?;
                link.enter(Way::Back, &from_cloud[..length], Instant::now());
            }
            () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {}
            line = commands.next_line() => {
                let Some(line) = line.context("reading commands")? else {
                    return Ok(link.counts());
                };
                let answer = answer(&mut link, &line)?;
                write(&mut answers, &answer).await?;
            }
        }
        let now = Instant::now();
        while let Some(packet) = link.leave(Way::Forth, now) {
            cloud.send(&packet).await.context("writing the device in the cloud")?;
        }
        while let Some(packet) = link.leave(Way::Back, now) {
            edge.send(&packet).await.context("writing the device at the edge")?;
        }
    }
}

fn answer(link: &mut Link, line: &str) -> Result<String> {
    Ok(match line.parse::<Command>() {
        Err(error) => format!("error: {error:#}"),
        Ok(command) => match link.obey(command, Instant::now()) {
            None => "ok".to_owned(),
            Some(counts) => format!("ok {}", serde_json::to_string(&counts)?),
        },
    })
}

async fn write(answers: &mut (impl AsyncWrite + Unpin), line: &str) -> Result<()> {
    answers.write_all(format!("{line}\n").as_bytes()).await?;
    answers.flush().await.context("writing an answer")
}

/// Creates a device in the namespace, up and with its address. Dropping the value removes the device.
fn device(namespace: &Namespace, address: Ipv4Addr) -> Result<Tun> {
    let runtime = Handle::current();
    namespace.enter(move || {
        let _registering = runtime.enter();
        let builder = Tun::builder().name(DEVICE).mtu(MTU as i32);
        let devices = builder.address(address).netmask(NETMASK).up().build();
        let made = devices.with_context(|| format!("cannot make the TUN device {DEVICE}"))?;
        made.into_iter().next().context("a device of one queue")
    })
}

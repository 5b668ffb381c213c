//! ICMP echo requests as probes.

use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use edgeward_cluster::wan::Cause;
use edgeward_kube::units::Micros;
use surge_ping::{Client, Config, ICMP, IcmpPacket, PingIdentifier, PingSequence, SurgeError};

use crate::platform::random;
use crate::wan::target::Lost;

/// Payload size of `ping`: 64 bytes with the header.
const PAYLOAD: [u8; 56] = [0; 56];

/// One socket per IP version, opened at the first echo request and shared by all. It is a datagram socket if the
/// kernel allows one for the process's group, and a raw socket otherwise.
#[derive(Default)]
pub(super) struct Icmp {
    v4: Socket,
    v6: Socket,
}

#[derive(Default)]
struct Socket {
    /// The client, with a random identifier. It separates our replies from another process's, which a raw socket also
    /// receives. The process id would not do, because it is always 1 in containers.
    client: OnceLock<Result<(Client, PingIdentifier), Lost>>,
    /// Distinguishes replies, because requests to one host are otherwise equal.
    sequence: AtomicU16,
}

impl Icmp {
    /// Sends one echo request and waits for its reply. Both times are taken in this process, so a busy machine adds
    /// to the RTT. Must be called within a Tokio runtime.
    pub(super) async fn ping(&self, address: IpAddr, timeout: Duration) -> Result<Micros, Lost> {
        let (socket, version) = match address {
            IpAddr::V4(_) => (&self.v4, ICMP::V4),
            IpAddr::V6(_) => (&self.v6, ICMP::V6),
        };
        let open = || Ok((open(version)?, PingIdentifier(random() as u16)));
        let (client, identifier) = socket.client.get_or_init(open).as_ref().map_err(Clone::clone)?;
        let mut pinger = client.pinger(address, *identifier).await;
        pinger.timeout(timeout);
        let sequence = PingSequence(socket.sequence.fetch_add(1, Ordering::Relaxed));
        match pinger.ping(sequence, &PAYLOAD).await {
            Ok((packet, rtt)) => reply(&packet).map(|()| Micros(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX))),
            Err(SurgeError::IOError(error)) => Err(error.into()),
            Err(error @ SurgeError::Timeout { .. }) => Err(Lost::new(Cause::Timeout, error)),
            Err(error) => Err(Lost::new(Cause::Socket, error)),
        }
    }
}

/// Checks the type of a reply, because a raw socket also receives error messages from routers.
fn reply(packet: &IcmpPacket) -> Result<(), Lost> {
    let (kind, code, echo_reply) = match packet {
        IcmpPacket::V4(packet) => (packet.get_icmp_type().0, packet.get_icmp_code().0, 0),
        IcmpPacket::V6(packet) => (packet.get_icmpv6_type().0, packet.get_icmpv6_code().0, 129),
    };
    if kind == echo_reply {
        return Ok(());
    }
    Err(Lost::new(
        Cause::NoRoute,
        format!("a router answers with ICMP type {kind}, code {code}"),
    ))
}

fn open(version: ICMP) -> Result<Client, Lost> {
    Client::new(&Config::builder().kind(version).build()).map_err(|error| {
        let lost = refused(error);
        tracing::error!(?version, reason = %lost, "no ICMP probes; every icmp endpoint counts as lost");
        lost
    })
}

fn refused(error: io::Error) -> Lost {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Lost::new(
            Cause::Permission,
            "an ICMP socket is not permitted: neither does net.ipv4.ping_group_range (which holds for IPv6 too) include \
             a group of this process, nor has it the capability CAP_NET_RAW",
        );
    }
    Lost::new(Cause::Socket, format!("no ICMP socket: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn loopback_answers_over_either_protocol() {
        let icmp = Icmp::default();
        for address in ["127.0.0.1", "::1"] {
            let pings = (0..20).map(|_| icmp.ping(address.parse().unwrap(), Duration::from_secs(30)));
            for outcome in futures::future::join_all(pings).await {
                match outcome {
                    Ok(rtt) => assert!(rtt < Micros::from_secs(30)),
                    Err(lost) if lost.cause == Cause::Permission => return skip(&lost),
                    Err(lost) => panic!("{address}: {lost}"),
                }
            }
        }
    }

    /// Reports the skip on stderr directly, because the test harness hides the output of a passing test.
    fn skip(lost: &Lost) {
        let in_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(!in_ci, "{lost}");
        writeln!(io::stderr(), "loopback_answers_over_either_protocol: skipped, {lost}").unwrap();
    }

    #[test]
    fn missing_icmp_permission_names_both_remedies() {
        let lost = refused(io::ErrorKind::PermissionDenied.into());
        assert_eq!(lost.cause, Cause::Permission);
        for way in ["net.ipv4.ping_group_range", "CAP_NET_RAW"] {
            assert!(lost.reason.contains(way), "{lost}");
        }
        assert_eq!(refused(io::ErrorKind::Unsupported.into()).cause, Cause::Socket);
    }
}

//! A TCP handshake as a probe.

use std::net::SocketAddr;
use std::time::Duration;

use edgeward_core::cluster::wan::Cause;
use edgeward_core::units::Micros;
use tokio::net::TcpStream;

use crate::platform::clock::Clock;
use crate::sources::probe::lost::Lost;

/// When the kernel sends a SYN again (RFC 6298, 2.1). A handshake that takes longer has lost a packet, and its duration
/// is the kernel's timer and not the link's.
const RETRANSMISSION: Duration = Duration::from_secs(1);

/// Connects, and says how long the handshake took: one round trip.
pub(super) async fn connect(address: SocketAddr, clock: Clock) -> Result<(TcpStream, Micros), Lost> {
    let begun = clock.monotonic_us();
    let stream = tokio::time::timeout(RETRANSMISSION, TcpStream::connect(address)).await;
    let rtt = Micros(clock.monotonic_us().saturating_sub(begun));
    let lost = |_| {
        Lost::new(
            Cause::Timeout,
            format!("{address} did not answer within 1 s, when TCP tries again"),
        )
    };
    Ok((stream.map_err(lost)??, rtt))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_listener_answers_over_either_protocol() {
        for host in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((host, 0)).await.unwrap();
            let (_, rtt) = connect(listener.local_addr().unwrap(), Clock::start()).await.unwrap();
            assert!(rtt > Micros(0));
        }
    }

    #[tokio::test]
    async fn a_closed_port_refuses() {
        // Not 127.0.0.1: a client there may be given the very port that it connects to, and then reaches itself.
        let listener = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(
            connect(address, Clock::start()).await.unwrap_err().cause,
            Cause::Refused
        );
    }
}

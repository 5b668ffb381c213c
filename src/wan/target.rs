//! An endpoint, its addresses, and a single probe of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use edgeward_cluster::wan::Cause;
use edgeward_decision::model::endpoint::{Endpoint, Protocol};
use edgeward_kube::units::Micros;
use futures::future::{FutureExt as _, select_ok};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{Mutex, watch};

use crate::platform::clock::Clock;
use crate::wan::https;
use crate::wan::icmp::Icmp;

/// How long to wait for one address before the next is tried as well (RFC 8305, section 5), unless the timeout is
/// short.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The most addresses of a name that are tried. Each needs its own connection or request.
const MAX_ADDRESSES: usize = 8;

/// Cause of a lost probe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Lost {
    /// Category of the cause.
    pub cause: Cause,
    /// Error text from the component that detected the loss.
    pub reason: String,
}

impl Lost {
    pub(super) fn new(cause: Cause, reason: impl fmt::Display) -> Self {
        Self {
            cause,
            reason: reason.to_string(),
        }
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::ConnectionRefused => Cause::Refused,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Cause::NoRoute,
            io::ErrorKind::TimedOut => Cause::Timeout,
            _ => Cause::Socket,
        };
        Self::new(cause, error)
    }
}

/// An endpoint, and the last known addresses of its name.
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    /// `None` until a name server has answered.
    addresses: watch::Sender<Option<Result<Vec<SocketAddr>, Lost>>>,
    /// Held during a lookup.
    lookup: Mutex<()>,
    icmp: Arc<Icmp>,
    clock: Clock,
}

impl Target {
    pub(super) fn new(endpoint: Endpoint, icmp: Arc<Icmp>, clock: Clock) -> Self {
        Self {
            endpoint,
            addresses: watch::Sender::default(),
            lookup: Mutex::default(),
            icmp,
            clock,
        }
    }

    /// Resolves the name. If that fails, the old addresses stay, because a failed name server says nothing about the
    /// link. The system resolver sorts the addresses (RFC 6724), and its duration is not limited here. Does nothing
    /// while a lookup is pending.
    pub(super) async fn resolve(&self) {
        let Ok(_alone) = self.lookup.try_lock() else {
            return;
        };
        let found = lookup_host((&*self.endpoint.host, self.endpoint.connect_port())).await;
        let found = match found.map(Vec::from_iter) {
            Ok(addresses) if addresses.is_empty() => Err(Lost::new(Cause::Resolve, "the name has no address")),
            Ok(addresses) => Ok(addresses),
            Err(error) => Err(Lost::new(
                Cause::Resolve,
                format!("the name cannot be resolved: {error}"),
            )),
        };
        self.addresses.send_if_modified(|known| {
            let is_news = found.is_ok() || !matches!(known, Some(Ok(_)));
            if is_news {
                *known = Some(found);
            }
            is_news
        });
    }

    /// Sends one probe and waits at most `timeout`. The returned time excludes the name resolution.
    pub(super) async fn probe(&self, timeout: Duration) -> Result<Micros, Lost> {
        let probed = async { self.probe_any(self.addresses().await?, timeout).await };
        let probed = tokio::time::timeout(timeout, probed);
        probed.await.unwrap_or_else(|_| {
            let ms = timeout.as_millis();
            Err(match *self.addresses.borrow() {
                None => Lost::new(Cause::Resolve, format!("the name was not resolved in {ms} ms")),
                Some(_) => Lost::new(Cause::Timeout, format!("no answer in {ms} ms")),
            })
        })
    }

    /// Probes all addresses and returns the first success with its own round-trip time. ICMP requests go out at once;
    /// other attempts start one after another with a delay. The first success cancels the other attempts.
    pub(super) async fn probe_any(&self, mut addresses: Vec<SocketAddr>, timeout: Duration) -> Result<Micros, Lost> {
        addresses.truncate(MAX_ADDRESSES);
        let delay = match self.endpoint.protocol {
            Protocol::Icmp => Duration::ZERO,
            _ => ATTEMPT_DELAY.min(timeout / (addresses.len() as u32 + 1)),
        };
        let attempts = addresses.into_iter().zip(0..).map(|(address, before)| {
            let delayed = tokio::time::sleep(delay * before);
            delayed.then(move |()| self.attempt(address, timeout)).boxed()
        });
        Ok(select_ok(attempts).await?.0)
    }

    async fn attempt(&self, address: SocketAddr, timeout: Duration) -> Result<Micros, Lost> {
        let endpoint = &self.endpoint;
        if endpoint.protocol == Protocol::Icmp {
            return self.icmp.ping(address.ip(), timeout).await;
        }
        let (stream, rtt) = connect(address, self.clock).await?;
        if endpoint.protocol == Protocol::Https {
            https::get(stream, &endpoint.host, endpoint.port, &endpoint.path).await?;
        }
        Ok(rtt)
    }

    /// The addresses, as soon as they are known.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, Lost> {
        let mut addresses = self.addresses.subscribe();
        let known = addresses.wait_for(Option::is_some).await;
        let known = known.ok().and_then(|known| known.clone());
        known.unwrap_or_else(|| Err(Lost::new(Cause::Resolve, "the name was not resolved")))
    }
}

/// Time after which the kernel sends a SYN again (RFC 6298, section 2.1). A longer handshake has lost a packet, and
/// then its duration reflects the kernel's timer instead of the link.
const RETRANSMISSION: Duration = Duration::from_secs(1);

/// Connects and returns the duration of the handshake, which is one round trip.
pub(crate) async fn connect(address: SocketAddr, clock: Clock) -> Result<(TcpStream, Micros), Lost> {
    let begun = clock.moment();
    let stream = tokio::time::timeout(RETRANSMISSION, TcpStream::connect(address)).await;
    let rtt = clock.moment().since(begun);
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
    async fn probe_of_name_not_resolved_in_time_is_lost() {
        let endpoint = Endpoint::parse("tcp://localhost:1").unwrap();
        let target = Target::new(endpoint, Arc::default(), Clock::start());
        let lost = target.probe(Duration::from_millis(300)).await.unwrap_err();
        assert_eq!(lost, Lost::new(Cause::Resolve, "the name was not resolved in 300 ms"));
    }

    #[tokio::test]
    async fn failed_resolution_keeps_earlier_addresses() {
        let target = Target::new(
            Endpoint::parse("tcp://nowhere.invalid:1").unwrap(),
            Arc::default(),
            Clock::start(),
        );
        let old: Vec<SocketAddr> = vec!["127.0.0.1:1".parse().unwrap()];
        target.addresses.send_replace(Some(Ok(old.clone())));
        target.resolve().await;
        assert_eq!(target.addresses().await, Ok(old));
    }

    async fn probed(addresses: Vec<SocketAddr>) -> Result<Micros, Lost> {
        let endpoint = Endpoint::parse("tcp://name.test:1").unwrap();
        let target = Target::new(endpoint, Arc::default(), Clock::start());
        target.probe_any(addresses, Duration::from_secs(60)).await
    }

    #[tokio::test(start_paused = true)]
    async fn probe_succeeds_if_any_of_first_eight_addresses_answers() {
        let open = TcpListener::bind("127.0.9.7:0").await.unwrap();
        let [open, closed] = [open.local_addr().unwrap(), "127.0.9.8:1".parse().unwrap()];
        let lost = probed(vec![closed, closed]).await.unwrap_err();
        assert_eq!(lost.cause, Cause::Refused);
        probed(vec![open, closed]).await.unwrap();
        // A handshake that takes more than 1 s is rejected. This one starts after 1.75 s.
        let rtt = probed([vec![closed; 7], vec![open]].concat()).await.unwrap();
        assert!(rtt < Micros::from_secs(2), "{rtt}");
        let lost = probed([vec![closed; 8], vec![open]].concat()).await.unwrap_err();
        assert_eq!(lost.cause, Cause::Refused, "the ninth address is not tried");
    }

    #[tokio::test]
    async fn tcp_connect_succeeds_over_ipv4_and_ipv6() {
        for host in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((host, 0)).await.unwrap();
            let (_, rtt) = connect(listener.local_addr().unwrap(), Clock::start()).await.unwrap();
            assert!(rtt > Micros(0));
        }
    }

    #[test]
    fn socket_error_maps_to_loss_cause() {
        for (kind, cause) in [
            (io::ErrorKind::ConnectionRefused, Cause::Refused),
            (io::ErrorKind::HostUnreachable, Cause::NoRoute),
            (io::ErrorKind::NetworkUnreachable, Cause::NoRoute),
            (io::ErrorKind::ConnectionReset, Cause::Socket),
        ] {
            assert_eq!(Lost::from(io::Error::from(kind)).cause, cause);
        }
    }
}

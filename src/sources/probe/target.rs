//! One endpoint: its address, and one probe of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use edgeward_core::cluster::wan::Cause;
use edgeward_core::model::endpoint::Endpoint;
use edgeward_core::units::Micros;
use tokio::net::lookup_host;
use tokio::sync::watch;

use crate::platform::clock::Clock;
use crate::sources::probe::https::Https;
use crate::sources::probe::icmp::Icmp;
use crate::sources::probe::lost::Lost;
use crate::sources::probe::tcp;

/// One endpoint, and the address that its name last had.
#[derive(Debug)]
pub(super) struct Target {
    endpoint: Endpoint,
    /// `None` until a name server has answered.
    address: watch::Sender<Option<Result<SocketAddr, Lost>>>,
    icmp: Arc<Icmp>,
    https: Https,
    clock: Clock,
}

impl Target {
    pub(super) fn new(endpoint: Endpoint, icmp: Arc<Icmp>, clock: Clock) -> Self {
        Self {
            endpoint,
            address: watch::Sender::default(),
            icmp,
            https: Https::default(),
            clock,
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Looks the name up, and keeps the old address where that fails: a name server that is down says nothing about
    /// the link. Of several addresses the first, in the order that the system's resolver prefers (RFC 6724). Takes as
    /// long as that resolver does.
    pub(super) async fn resolve(&self) {
        let found = lookup_host((self.endpoint.host(), self.endpoint.port())).await;
        let found = match found.map(|mut addresses| addresses.next()) {
            Ok(Some(address)) => Ok(address),
            Ok(None) => Err(Lost::new(Cause::Resolve, "the name has no address")),
            Err(error) => Err(Lost::new(
                Cause::Resolve,
                format!("the name cannot be resolved: {error}"),
            )),
        };
        self.address.send_if_modified(|known| {
            let is_news = found.is_ok() || !matches!(known, Some(Ok(_)));
            if is_news {
                *known = Some(found);
            }
            is_news
        });
    }

    /// One probe, which takes no longer than `timeout`. The time returned does not include the name's resolution.
    pub(super) async fn probe(&self, timeout: Duration) -> Result<Micros, Lost> {
        let probed = tokio::time::timeout(timeout, async {
            let address = self.address().await?;
            match &self.endpoint {
                Endpoint::Icmp { .. } => self.icmp.ping(address.ip(), timeout).await,
                Endpoint::Tcp { .. } => tcp::connect(address, self.clock).await.map(|(_, rtt)| rtt),
                Endpoint::Https { host, port, path } => {
                    let (stream, rtt) = tcp::connect(address, self.clock).await?;
                    self.https.get(stream, host, *port, path).await?;
                    Ok(rtt)
                }
            }
        });
        probed.await.unwrap_or_else(|_| {
            let ms = timeout.as_millis();
            Err(match *self.address.borrow() {
                None => Lost::new(Cause::Resolve, format!("the name was not resolved in {ms} ms")),
                Some(_) => Lost::new(Cause::Timeout, format!("no answer in {ms} ms")),
            })
        })
    }

    /// The address, as soon as there is one.
    async fn address(&self) -> Result<SocketAddr, Lost> {
        let mut address = self.address.subscribe();
        let known = address.wait_for(Option::is_some).await;
        let known = known.ok().and_then(|known| known.clone());
        known.unwrap_or_else(|| Err(Lost::new(Cause::Resolve, "the name was not resolved")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(300);

    async fn lost(endpoint: &str, resolved: bool) -> Lost {
        let target = Target::new(Endpoint::parse(endpoint).unwrap(), Arc::default(), Clock::start());
        if resolved {
            target.resolve().await;
        }
        target.probe(TIMEOUT).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_name_without_address_is_a_loss() {
        let lost = lost("tcp://nowhere.invalid:1", true).await;
        assert_eq!(lost.cause, Cause::Resolve);
        assert!(lost.reason.starts_with("the name "), "{lost}");
    }

    #[tokio::test]
    async fn a_name_that_is_not_resolved_in_time_is_a_loss() {
        let lost = lost("tcp://localhost:1", false).await;
        assert_eq!(lost, Lost::new(Cause::Resolve, "the name was not resolved in 300 ms"));
    }

    #[tokio::test]
    async fn a_name_server_that_fails_later_costs_nothing() {
        let target = Target::new(
            Endpoint::parse("tcp://nowhere.invalid:1").unwrap(),
            Arc::default(),
            Clock::start(),
        );
        let old: SocketAddr = "127.0.0.1:1".parse().unwrap();
        target.address.send_replace(Some(Ok(old)));
        target.resolve().await;
        assert_eq!(target.address().await, Ok(old));
    }
}

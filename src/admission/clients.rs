//! The network addresses of the clients that send reviews.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::instruments::logs::LogLimit;
use crate::platform::clock::Clock;

/// How many addresses are remembered; a new one replaces the oldest.
const KNOWN: usize = 64;

/// Addresses whose reviews were answered. A new address is logged, so that operators know what `admissionFrom` must
/// admit.
#[derive(Debug)]
pub(super) struct Clients {
    known: Mutex<VecDeque<IpAddr>>,
    limit: LogLimit,
}

impl Clients {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            known: Mutex::default(),
            limit: LogLimit::new(clock),
        }
    }

    /// Records an answered review from this address. Returns whether the address was logged. If the log limit held the
    /// line back, the address stays new.
    pub(super) fn answered(&self, address: IpAddr) -> bool {
        // A dual-stack socket reports IPv4 addresses as mapped IPv6.
        let address = address.to_canonical();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&address) {
            return false;
        }
        let Some(held_back) = self.limit.due("client") else {
            return false;
        };
        if known.len() == KNOWN {
            known.pop_front();
        }
        known.push_back(address);
        drop(known);
        tracing::info!(%address, held_back, "a client asks for reviews");
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn client_address_is_logged_once_at_a_bounded_rate() {
        let clients = Clients::new(Clock::start());
        let told = |address: &str| clients.answered(address.parse().unwrap());
        assert!(told("192.0.2.1") && told("2001:db8::1"));
        assert!(!told("192.0.2.1") && !told("::ffff:192.0.2.1"));
        let many: Vec<_> = (2..=200).map(|last| format!("192.0.2.{last}")).collect();
        assert_eq!(many.iter().filter(|address| told(address)).count(), 8);
        // An address that was held back is logged later.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(told("192.0.2.200") && !told("192.0.2.200"));
        for address in &many {
            tokio::time::advance(Duration::from_secs(1)).await;
            told(address);
        }
        // Only the newest addresses are remembered.
        assert_eq!(clients.known.lock().unwrap().len(), KNOWN);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(told("192.0.2.1"));
    }
}

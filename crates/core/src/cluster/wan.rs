//! The WAN towards a cloud site: what is probed and when, what the outcomes say, and when a link changes its state.
//!
//! `sources::probe` sends the probes; here is everything that needs no network. `docs/wan.md` is for operators.

mod health;
mod window;

pub use health::{DWELL, LinkHealth};
pub use window::{JUDGED_FROM, RoundTrips, Statistics, WINDOW, Window};

/// So many outcomes in a row make a link unreachable or reachable again, and so many answers make the RTT of a
/// decision.
pub const RUN: usize = 5;

/// Why a probe counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// No answer in time.
    Timeout,
    /// The host answers that nobody listens on the port.
    Refused,
    /// The network says that the host cannot be reached, or has no route to it.
    NoRoute,
    /// The host name has no address, and never had one.
    Resolve,
    /// The TLS handshake failed.
    Tls,
    /// The HTTP answer is 500 or above, or none.
    Http,
    /// This process may not open an ICMP socket.
    Permission,
    /// Anything else that a socket reports.
    Socket,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 8] = [
        Self::Timeout,
        Self::Refused,
        Self::NoRoute,
        Self::Resolve,
        Self::Tls,
        Self::Http,
        Self::Permission,
        Self::Socket,
    ];

    /// The word for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::NoRoute => "no_route",
            Self::Resolve => "resolve",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Permission => "permission",
            Self::Socket => "socket",
        }
    }
}

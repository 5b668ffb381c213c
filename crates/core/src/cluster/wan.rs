//! The WAN towards a cloud site: what is probed and when, what the outcomes say, and when a link changes its state.
//!
//! `sources::probe` sends the probes; here is everything that needs no network. `docs/guide/clouds.md` is for operators.

mod health;
mod window;

use std::collections::BTreeMap;

pub use health::{DWELL, LinkHealth};
pub use window::{JUDGED_FROM, WINDOW, Window};

use crate::model::link::Link;
use crate::words;

/// So many outcomes in a row make a link unreachable or reachable again, and so many answers make the RTT of a
/// decision.
pub const RUN: usize = 5;

/// The link to each probed site; `None` until its first round of probes is over.
pub type Links = BTreeMap<String, Option<Link>>;

words! {
    /// Why a probe counts as lost.
    pub enum Cause {
        /// No answer in time.
        Timeout = "timeout",
        /// The host answers that nobody listens on the port.
        Refused = "refused",
        /// The network says that the host cannot be reached, or has no route to it.
        NoRoute = "no_route",
        /// The host name has no address, and never had one.
        Resolve = "resolve",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The HTTP answer is 500 or above, or none.
        Http = "http",
        /// This process may not open an ICMP socket.
        Permission = "permission",
        /// Anything else that a socket reports.
        Socket = "socket",
    }
}

//! The WAN towards a cloud site: the outcomes of probes, and when a link changes its state.
//!
//! `src/wan.rs` sends the probes, and [`cache`](crate::cache) takes in the resulting link (`cache/link.rs`). This module needs
//! no network. `docs/guide/clouds.md` is for operators.

mod health;

use std::collections::BTreeMap;

pub use health::LinkHealth;

use edgeward_decision::model::link::Link;
use edgeward_kube::units::Micros;
use edgeward_kube::words;

/// The number of equal outcomes in a row that make an endpoint silent, or answering again. Also the number of answers whose
/// mean is the RTT of a decision.
pub const RUN: usize = 5;

/// The time between two of the probes that confirm that an endpoint is silent, or answers again.
pub const CONFIRMATION_STEP: Micros = Micros::from_millis(500);

/// The link to each probed site; `None` until its first round of probes is over.
pub type Links = BTreeMap<String, Option<Link>>;

words! {
    /// Why a probe counts as lost.
    pub enum Cause {
        /// No answer in time.
        Timeout = "timeout",
        /// The host refused the connection.
        Refused = "refused",
        /// The network reports that it cannot reach the host or has no route to it.
        NoRoute = "no_route",
        /// The host name has no address and never had one.
        Resolve = "resolve",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The HTTP status is 500 or above, or there is no HTTP answer.
        Http = "http",
        /// This process may not open an ICMP socket.
        Permission = "permission",
        /// Anything else that a socket reports.
        Socket = "socket",
    }
}

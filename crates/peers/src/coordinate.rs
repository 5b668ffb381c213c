//! Network coordinates: two dimensions and a height (Vivaldi, Dabek et al. 2004). They predict RTTs of peers that
//! were not measured yet, and order what is measured next. No verdict depends on them.

use serde::{Deserialize, Serialize};

const PASSES: usize = 3;
/// Beyond this, in ms, a coordinate of a peer is ignored.
const LIMIT: f64 = 10_000.0;

/// A place in ms. The RTT between two is their distance plus both heights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Coordinate {
    x: f64,
    y: f64,
    height: f64,
}

impl Coordinate {
    /// A coordinate at `x` and `y`, both in ms.
    pub fn new(x: f64, y: f64, height: f64) -> Self {
        Self { x, y, height }
    }

    /// A place close to the origin: coordinates that are equal have no direction to part in.
    pub(crate) fn random(random: &mut fastrand::Rng) -> Self {
        Self {
            x: random.f64() - 0.5,
            y: random.f64() - 0.5,
            height: 0.0,
        }
    }

    /// Returns the coordinate of a peer if its numbers are possible.
    pub(crate) fn checked(self) -> Option<Self> {
        let are_finite = self.x.abs() <= LIMIT && self.y.abs() <= LIMIT;
        (are_finite && (0.0..=LIMIT).contains(&self.height)).then_some(self)
    }

    /// The predicted RTT in ms.
    pub(crate) fn rtt_ms(&self, other: &Self) -> f64 {
        (self.x - other.x).hypot(self.y - other.y) + self.height + other.height
    }

    /// Moves to where the distances fit the measured RTTs better. Also starts from another place, and stays at the better
    /// of both: a place can be wrong and every small step from it worse.
    pub(crate) fn fit(&mut self, measured: &[(Self, f64)], random: &mut fastrand::Rng) {
        let Some((other, _)) = random.choice(measured) else {
            return;
        };
        let mut other = *other;
        self.approach(measured);
        other.approach(measured);
        if other.stress(measured) < self.stress(measured) {
            *self = other;
        }
    }

    /// The sum of the squares of what predictions are off, where near peers weigh more.
    fn stress(&self, measured: &[(Self, f64)]) -> f64 {
        measured
            .iter()
            .map(|(peer, rtt)| (self.rtt_ms(peer) - rtt).powi(2) / rtt.max(1.0))
            .sum()
    }

    /// Steps of stress majorisation: each peer draws or pushes to where it would see the measured RTT.
    fn approach(&mut self, measured: &[(Self, f64)]) {
        for _ in 0..PASSES {
            let (mut x, mut y, mut height, mut total) = (0.0, 0.0, 0.0, 0.0);
            for (peer, rtt) in measured {
                let (dx, dy) = (self.x - peer.x, self.y - peer.y);
                let distance = dx.hypot(dy).max(1e-3);
                let wanted = (rtt - self.height - peer.height).max(0.0);
                let weight = 1.0 / rtt.max(1.0);
                x += weight * (peer.x + dx * wanted / distance);
                y += weight * (peer.y + dy * wanted / distance);
                height += weight * (rtt - distance - peer.height);
                total += weight;
            }
            if total > 0.0 {
                (self.x, self.y) = (x / total, y / total);
                self.height = (self.height * 0.9 + 0.1 * height / total).max(0.0);
            }
        }
    }
}

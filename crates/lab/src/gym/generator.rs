//! The random numbers of NumPy's `default_rng(seed)`, bit by bit: PCG64 seeded by SeedSequence.
//!
//! Sources: the generators of M. E. O'Neill ([PCG](https://www.pcg-random.org), XSL-RR 128/64, and her `seed_seq`), the
//! bounded integers of D. Lemire ([arXiv 1805.10941](https://arxiv.org/abs/1805.10941)), and the ziggurat of [Marsaglia
//! and Tsang](https://doi.org/10.18637/jss.v005.i08) with 256 levels. The tests compare with numbers that NumPy drew.

use std::sync::LazyLock;

const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;

/// A stream with the draws of NumPy's `Generator`.
#[derive(Debug, Clone)]
pub struct Generator {
    state: u128,
    increment: u128,
    /// The unused half of the last 64 bits that `bits32` drew.
    half: Option<u32>,
    ziggurat: &'static Ziggurat,
}

impl Generator {
    /// The stream of `default_rng(seed)`.
    pub fn new(seed: u64) -> Self {
        let [state_high, state_low, stream_high, stream_low] = seed_words(seed);
        let wide = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let increment = wide(stream_high, stream_low) << 1 | 1;
        let mut generator = Self {
            state: increment.wrapping_add(wide(state_high, state_low)),
            increment,
            half: None,
            ziggurat: &ZIGGURAT,
        };
        generator.advance();
        generator
    }

    #[inline]
    fn advance(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// Returns the next 64 bits. An unused half stays for `bits32`.
    #[inline]
    pub fn bits64(&mut self) -> u64 {
        self.advance();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// Returns the next 32 bits: the low half of 64 bits, then their high half.
    #[inline]
    pub fn bits32(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let bits = self.bits64();
        self.half = Some((bits >> 32) as u32);
        bits as u32
    }

    /// Returns a uniform whole number below `end`. If `end` is 0 or 1, returns 0 and draws nothing.
    #[inline]
    pub fn below(&mut self, end: u32) -> u32 {
        if end <= 1 {
            return 0;
        }
        let mut product = u64::from(self.bits32()) * u64::from(end);
        if (product as u32) < end {
            let least = end.wrapping_neg() % end;
            while (product as u32) < least {
                product = u64::from(self.bits32()) * u64::from(end);
            }
        }
        (product >> 32) as u32
    }

    /// Returns a uniform number in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Returns an exponential number of mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        loop {
            let bits = self.bits64() >> 3;
            let (level, place) = (usize::from(bits as u8), bits >> 8);
            let x = place as f64 * self.ziggurat.widths[level];
            if place < self.ziggurat.inside[level] {
                return x;
            }
            if level == 0 {
                return Ziggurat::TAIL - (-self.unit()).ln_1p();
            }
            let heights = &self.ziggurat.heights;
            if (heights[level - 1] - heights[level]) * self.unit() + heights[level] < (-x).exp() {
                return x;
            }
        }
    }
}

fn seed_words(seed: u64) -> [u64; 4] {
    let mut constant = 0x43b0_d7e5_u32;
    let mut hash = |value: u32| {
        let mixed = value ^ constant;
        constant = constant.wrapping_mul(0x931e_8875);
        let mixed = mixed.wrapping_mul(constant);
        mixed ^ mixed >> 16
    };
    let mut pool = [seed as u32, (seed >> 32) as u32, 0, 0].map(&mut hash);
    for from in 0..pool.len() {
        for to in (0..pool.len()).filter(|to| *to != from) {
            let other = hash(pool[from]);
            let mixed = 0xca01_f9dd_u32.wrapping_mul(pool[to]);
            let mixed = mixed.wrapping_sub(0x4973_f715_u32.wrapping_mul(other));
            pool[to] = mixed ^ mixed >> 16;
        }
    }
    let mut constant = 0x8b51_f9dd_u32;
    let mut word = |index: usize| {
        let mixed = pool[index % pool.len()] ^ constant;
        constant = constant.wrapping_mul(0x58f3_8ded);
        let mixed = mixed.wrapping_mul(constant);
        u64::from(mixed ^ mixed >> 16)
    };
    std::array::from_fn(|index| word(2 * index) | word(2 * index + 1) << 32)
}

/// The exponential density, cut into 256 layers of equal area.
#[derive(Debug)]
struct Ziggurat {
    /// Factor from 53 random bits to a position in the layer.
    widths: [f64; 256],
    inside: [u64; 256],
    heights: [f64; 256],
}

static ZIGGURAT: LazyLock<Ziggurat> = LazyLock::new(Ziggurat::new);

impl Ziggurat {
    const TAIL: f64 = 7.697_117_470_131_05;
    const AREA: f64 = 0.003_949_659_822_581_557;

    fn new() -> Self {
        let places = (1_u64 << 53) as f64;
        let mut ziggurat = Self {
            widths: [0.0; 256],
            inside: [0; 256],
            heights: [0.0; 256],
        };
        let mut edge = Self::TAIL;
        let base = Self::AREA / (-edge).exp();
        ziggurat.inside[0] = (edge / base * places) as u64;
        ziggurat.widths[0] = base / places;
        ziggurat.heights[0] = 1.0;
        ziggurat.widths[255] = edge / places;
        ziggurat.heights[255] = (-edge).exp();
        for level in (1..255).rev() {
            let outer = edge;
            edge = -(Self::AREA / edge + (-edge).exp()).ln();
            ziggurat.inside[level + 1] = (edge / outer * places) as u64;
            ziggurat.heights[level] = (-edge).exp();
            ziggurat.widths[level] = edge / places;
        }
        ziggurat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 300,000 draws reach every branch of the ziggurat, including the tail. The last assertion shows that they
    /// consumed the right number of bits.
    #[test]
    fn exponential_draws_match_numpy() {
        let mut generator = Generator::new(42);
        let drawn: Vec<_> = (0..300_000).map(|_| generator.exponential()).collect();
        let most = drawn.iter().copied().fold(0.0, f64::max);
        let sum = drawn.iter().sum::<f64>();
        assert_close(
            &[sum, most, drawn[299_999]],
            &[299510.38069469726, 12.406493666302765, 1.2016319526350434],
        );
        assert_eq!(generator.unit(), 0.5798995557909321);
    }

    /// With this end, three of ten draws are refused.
    #[test]
    fn lemire_rejected_draws_are_repeated() {
        let mut generator = Generator::new(42);
        let drawn: Vec<_> = (0..2000).map(|_| generator.below(3_000_000_000)).collect();
        assert_eq!(drawn.iter().map(|drawn| u64::from(*drawn)).sum::<u64>(), 3016521684582);
        assert_eq!(drawn[1999], 2171550682);
    }

    fn assert_close(found: &[f64], expected: &[f64]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-11, "{found} is not {expected}");
        }
    }
}

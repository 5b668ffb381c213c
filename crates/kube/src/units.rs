//! Integer newtypes for every quantity a decision reads, and the Kubernetes quantity notation.
//!
//! The type's name is the unit. Arithmetic saturates, so a hostile number can make a pod unplaceable but never wraps
//! into a small one.

use std::fmt;
use std::ops::{Add, Sub};

use jiff::SignedDuration;
use jiff::fmt::friendly::{Spacing, SpanPrinter};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

macro_rules! integer_units {
    ($($(#[$doc:meta])* $name:ident($int:ty);)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
    )+};
}

integer_units! {
    /// CPU in thousandths of a core.
    Millicores(i64);
    /// Memory or storage in bytes.
    Bytes(i64);
    /// A duration in microseconds. Subtraction stops at zero.
    Micros(u64);
    /// A ratio in thousandths: 20 is 2 %, and a speed factor of 1000 is 1.0.
    Permille(u32);
    /// Cost of an hour, in millionths of a currency that is not specified.
    CostPerHour(u64);
}

impl Permille {
    /// 1.0: the speed factor for which models are stated.
    pub const ONE: Self = Self(1_000);
}

impl Bytes {
    /// Rounds down to whole Mi, for a sum that needs no more precision.
    pub const fn whole_mebibytes(self) -> Self {
        Self(self.0 & !((1 << 20) - 1))
    }
}

impl Micros {
    /// Converts whole milliseconds to a duration.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// Converts whole seconds to a duration.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000))
    }

    /// Parses a duration in Go's format, such as `1500ms`, `60s`, `1m0s` or `1h`. jiff's other forms are accepted too.
    pub fn parse(text: &str) -> Option<Self> {
        let duration: SignedDuration = text.parse().ok()?;
        u64::try_from(duration.as_micros()).ok().map(Self)
    }

    /// Formats the duration in the form that [`Self::parse`] reads.
    pub fn to_text(self) -> String {
        let printer = SpanPrinter::new().spacing(Spacing::None);
        printer.duration_to_string(&SignedDuration::from_micros(self.signed()))
    }

    /// Returns this duration multiplied by `count`.
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// The time that 19 of 20 of these do not exceed; `None` if there are none. Reorders them. Cost: a pass over them.
    pub fn p95(times: &mut [Self]) -> Option<Self> {
        let place = (times.len() * 19).div_ceil(20).checked_sub(1)?;
        Some(*times.select_nth_unstable(place).1)
    }

    /// Converts a duration at the speed factor `from` to the speed factor `to`, rounded up. A factor of zero counts as
    /// one thousandth.
    pub fn rescaled(self, from: Permille, to: Permille) -> Self {
        let scaled = u128::from(self.0) * u128::from(from.0.max(1));
        let us = scaled.div_ceil(u128::from(to.0.max(1)));
        Self(u64::try_from(us).unwrap_or(u64::MAX))
    }

    /// Returns the microseconds as a signed number, for arithmetic that may go below zero.
    pub fn signed(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// Returns milliseconds, with the microseconds as decimals.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1_000.0
    }
}

/// Formats the amount as kubectl does: `5`, `200m`.
impl fmt::Display for Millicores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1_000 {
            0 => write!(f, "{}", self.0 / 1_000),
            _ => write!(f, "{}m", self.0),
        }
    }
}

/// Formats the exact amount as manifests and kubectl do, with the suffix that gives the fewest digits: `64Mi`,
/// `1536Mi`, `128M`. There is no suffix if none divides the amount.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scaled = |base: i64, suffixes: [&'static str; 6]| {
            let (mut number, mut suffix) = (self.0, "");
            for larger in suffixes {
                if number == 0 || number % base != 0 {
                    break;
                }
                (number, suffix) = (number / base, larger);
            }
            (number, suffix)
        };
        let binary = scaled(1_024, ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]);
        let decimal = scaled(1_000, ["k", "M", "G", "T", "P", "E"]);
        let is_shorter = decimal.0.unsigned_abs() < binary.0.unsigned_abs();
        let (number, suffix) = if is_shorter { decimal } else { binary };
        write!(f, "{number}{suffix}")
    }
}

/// Milliseconds.
impl From<Micros> for Value {
    fn from(time: Micros) -> Self {
        quotient(time.0, 1_000)
    }
}

/// Percent.
impl From<Permille> for Value {
    fn from(ratio: Permille) -> Self {
        quotient(ratio.0.into(), 10)
    }
}

/// Whole units of the currency.
impl From<CostPerHour> for Value {
    fn from(cost: CostPerHour) -> Self {
        quotient(cost.0, 1_000_000)
    }
}

/// An integer where it is whole.
fn quotient(amount: u64, unit: u64) -> Value {
    if amount.is_multiple_of(unit) {
        (amount / unit).into()
    } else {
        (amount as f64 / unit as f64).into()
    }
}

/// Written as [`Micros::parse`] reads it.
impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_text())
    }
}

/// Zero needs no unit.
impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stated = Value::deserialize(deserializer)?;
        let zero = (stated == 0).then_some("0s");
        Self::parse(stated.as_str().or(zero).unwrap_or_default())
            .ok_or_else(|| de::Error::custom(format_args!("{stated} is not a duration such as 60s or 1m30s")))
    }
}

/// Prints milliseconds with at most three decimals and no trailing zeros: `25`, `0.4`, `12.345`.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, us) = (self.0 / 1_000, self.0 % 1_000);
        if us == 0 {
            return write!(f, "{ms}");
        }
        let decimals = format!("{us:03}");
        write!(f, "{ms}.{}", decimals.trim_end_matches('0'))
    }
}

/// A point on this process's monotonic clock, in microseconds since its start. Ages are differences of moments,
/// so a step of the wall clock never makes telemetry fresh or stale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub i64);

impl Moment {
    /// How long before `self` the moment `earlier` was. Zero if it is not earlier.
    pub fn since(self, earlier: Moment) -> Micros {
        Micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The moment `delay` after this one.
    pub fn after(self, delay: Micros) -> Moment {
        Moment(self.0.saturating_add(i64::try_from(delay.0).unwrap_or(i64::MAX)))
    }

    /// The moment `age` before this one.
    pub fn before(self, age: Micros) -> Moment {
        Moment(self.0.saturating_sub(i64::try_from(age.0).unwrap_or(i64::MAX)))
    }
}

/// The current time by both clocks. An argument of every decision.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic clock, for ages.
    pub moment: Moment,
    /// Wall clock, for timestamps on pods.
    pub wall: jiff::Timestamp,
}

impl Now {
    /// The time at another moment, if the wall clock is not set in between.
    pub fn at(self, moment: Moment) -> Now {
        let later = SignedDuration::from_micros(moment.0.saturating_sub(self.moment.0));
        Now {
            moment,
            wall: self.wall.checked_add(later).unwrap_or(self.wall),
        }
    }
}

/// A Kubernetes quantity (`100m`, `1.5Gi`, `2e3`), held exactly in billionths.
///
/// Source: `k8s.io/apimachinery/pkg/api/resource`. A magnitude below one billionth rounds up to one billionth. Values
/// with binary suffixes are capped at 2^63−1; larger decimal values saturate. So does a number with more digits than an
/// `u128` holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

const MILLI: i128 = 1_000_000;
const UNIT: i128 = 1_000_000_000;
const NANO_DIGITS: i32 = 9;
const MAX_BINARY: i128 = (i64::MAX as i128) * 1_000_000_000;

/// Far above every i64 that a caller reads, and far enough below the end of i128 that sums do not overflow.
const MAX_DECIMAL: i128 = i128::MAX / 1_000;

impl Quantity {
    /// Parses the notation that the API server accepts. Allocates only on failure.
    ///
    /// # Errors
    /// The text is not a quantity.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::try_parse(text)
            .ok_or_else(|| format!("`{text}` is not a quantity (a number such as 2, 0.5, 500m, 1.5Gi or 1e3)"))
    }

    fn try_parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = split_digits(rest);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let fraction = fraction.trim_end_matches('0');
        let (exponent10, exponent2) = scale_of(suffix)?;
        let exponent10 = exponent10 + NANO_DIGITS - fraction.len() as i32;
        let digits = whole.bytes().chain(fraction.bytes());
        let mut nanos = scaled(digits, exponent10, exponent2).unwrap_or(MAX_DECIMAL);
        if exponent2 > 0 {
            nanos = nanos.min(MAX_BINARY);
        }
        Some(Self {
            nanos: if negative { -nanos } else { nanos },
        })
    }

    /// Builds a quantity from thousandths.
    pub fn of_millis(millis: i64) -> Self {
        Self {
            nanos: i128::from(millis) * MILLI,
        }
    }

    /// Builds a quantity from whole units.
    pub fn of_units(units: i64) -> Self {
        Self {
            nanos: i128::from(units) * UNIT,
        }
    }

    /// Returns billionths, which is exact.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Returns thousandths, rounded away from zero: the scheduler's view of CPU.
    pub fn millis(self) -> i64 {
        self.rounded(MILLI)
    }

    /// Returns whole units, rounded away from zero: the scheduler's view of everything but CPU.
    pub fn units(self) -> i64 {
        self.rounded(UNIT)
    }

    /// Rounds away from zero to thousandths, as the API server does to every resource list it decodes.
    pub fn round_to_millis(self) -> Self {
        Self {
            nanos: self.in_units_of(MILLI).saturating_mul(MILLI),
        }
    }

    fn rounded(self, unit: i128) -> i64 {
        i64::try_from(self.in_units_of(unit)).unwrap_or(if self.nanos < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns the number of `unit` nanos, rounded away from zero.
    fn in_units_of(self, unit: i128) -> i128 {
        self.nanos / unit + (self.nanos % unit).signum()
    }
}

/// Serialises a whole quantity as a number, and any other as a string with a suffix.
impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.nanos % UNIT, self.nanos % MILLI) {
            (0, _) => serializer.serialize_i64(self.units()),
            (_, 0) => serializer.collect_str(&format_args!("{}m", self.millis())),
            _ => serializer.collect_str(&format_args!("{}n", self.nanos)),
        }
    }
}

impl Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
        }
    }
}

/// Splits the text behind the digits at its start.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns `(power of ten, power of two)` of a suffix. `None` if the API server refuses the suffix.
fn scale_of(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (exponent.clamp(-1_000, 1_000) as i32, 0)
        }
    })
}

/// Returns `digits · 10^exponent10 · 2^exponent2`, rounded up. `None` if a step is larger than a `u128`.
fn scaled(mut digits: impl Iterator<Item = u8>, exponent10: i32, exponent2: u32) -> Option<i128> {
    let append = |number: u128, digit: u8| number.checked_mul(10)?.checked_add((digit - b'0').into());
    let number = digits.try_fold(0, append)?.checked_mul(1 << exponent2)?;
    let power = 10_u128.checked_pow(exponent10.unsigned_abs());
    let scaled = match power {
        _ if number == 0 => 0,
        Some(power) if exponent10 < 0 => number.div_ceil(power),
        None if exponent10 < 0 => 1,
        power => number.checked_mul(power?)?,
    };
    Some(MAX_DECIMAL.min(i128::try_from(scaled).ok()?))
}

/// Reads a number or a string.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let quantity = match Value::deserialize(deserializer)? {
            // The API server's decoder trims the text too.
            Value::String(text) => Self::parse(text.trim()),
            number => Self::parse(&number.to_string()),
        };
        quantity.map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In addition to `tests/golden/upstream/quantities.json`.
    #[test]
    fn negative_and_enormous_quantities_round_away_from_zero() {
        for (text, millis, units) in [
            ("-0.1n", -1, -1),
            ("-0.1m", -1, -1),
            ("-10P", i64::MIN, -10_000_000_000_000_000),
            ("1.10000000000000000000000000000000000000000000000000", 1_100, 2),
            ("0.00000000000000000000000000000000000000000000000001", 1, 1),
            ("1e40", i64::MAX, i64::MAX),
            ("99999999999999999999999999999999999999999999", i64::MAX, i64::MAX),
        ] {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!((quantity.millis(), quantity.units()), (millis, units), "{text}");
        }
    }

    #[test]
    fn amounts_print_as_kubectl_shows_them() {
        for (amount, text) in [
            (0, "0"),
            (200, "200m"),
            (5_000, "5"),
            (2_500, "2500m"),
            (-1, "-1m"),
            (1_000_000, "1000"),
        ] {
            assert_eq!(Millicores(amount).to_string(), text);
        }
        for (amount, text) in [
            (0, "0"),
            (1, "1"),
            (1_000, "1k"),
            (1_023, "1023"),
            (1_024, "1Ki"),
            (64 << 20, "64Mi"),
            (3 << 29, "1536Mi"),
            (6 << 30, "6Gi"),
            (128_000_000, "128M"),
            (128_974_848, "123Mi"),
            (16_374_588 << 10, "16374588Ki"),
            ((6 << 30) - 1, "6442450943"),
            (-(1 << 30), "-1Gi"),
            (i64::MAX, "9223372036854775807"),
        ] {
            assert_eq!(Bytes(amount).to_string(), text);
        }
        assert_eq!(Bytes((7 << 30) + 5).whole_mebibytes(), Bytes(7 << 30));
        assert_eq!(Bytes(-1).whole_mebibytes(), Bytes(-(1 << 20)));
    }

    proptest::proptest! {
        /// Quantities of every magnitude, as people write them. The smallest i64 is not a Kubernetes quantity.
        #[test]
        fn printed_amounts_parse_to_the_same_value(number in -i64::MAX..=i64::MAX, shift in 0..63_u32, base in proptest::sample::select(vec![1_i64, 1_000, 1 << 10])) {
            let amount = (number >> shift).saturating_mul(base).max(-i64::MAX);
            let read = |text: String| Quantity::parse(&text).unwrap();
            proptest::prop_assert_eq!(read(Millicores(amount).to_string()).millis(), amount);
            proptest::prop_assert_eq!(read(Bytes(amount).to_string()).units(), amount);
        }
    }

    #[test]
    fn durations_print_as_milliseconds() {
        assert_eq!(Micros(25_000).to_string(), "25");
        assert_eq!(Micros(12_340).to_string(), "12.34");
        assert_eq!(Micros(7).to_string(), "0.007");
        assert_eq!(Micros(1_000).rescaled(Permille(1_000), Permille(3_000)), Micros(334));
        assert_eq!(Micros(1_000).rescaled(Permille(500), Permille(0)), Micros(500_000));
        assert_eq!(Moment(5).since(Moment(9)), Micros(0));
    }
}

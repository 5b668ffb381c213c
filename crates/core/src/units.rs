//! Integer newtypes for every quantity a decision reads, and the Kubernetes quantity notation.
//!
//! The unit is the type's name; arithmetic saturates, so a hostile number can make a pod unplaceable but
//! never wrap into a small one.

use std::fmt;
use std::ops::{Add, Sub};

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

macro_rules! integer_unit {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
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
    };
}

integer_unit! {
    /// CPU in thousandths of a core.
    Millicores(i64)
}
integer_unit! {
    /// Memory or storage in bytes.
    Bytes(i64)
}
integer_unit! {
    /// A duration in microseconds. Subtraction stops at zero.
    Micros(u64)
}
integer_unit! {
    /// A ratio in thousandths: 20 is 2 %, a speed factor of 1000 is 1.0.
    Permille(u32)
}

integer_unit! {
    /// What an hour costs, in millionths of a currency that nobody here knows.
    CostPerHour(u64)
}

impl Permille {
    /// 1.0: the speed factor that models are stated for.
    pub const ONE: Self = Self(1_000);
}

impl Bytes {
    /// Rounded down to whole Mi, as for a sum of which nobody needs the rest.
    pub const fn whole_mebibytes(self) -> Self {
        Self(self.0 & !((1 << 20) - 1))
    }
}

impl Micros {
    /// A duration of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// A duration of whole seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000))
    }

    /// A duration as Go prints it, such as `1500ms`, `60s`, `1m0s`, `1h`. jiff's other forms are read as well.
    pub fn parse(text: &str) -> Option<Self> {
        let duration: jiff::SignedDuration = text.parse().ok()?;
        u64::try_from(duration.as_micros()).ok().map(Self)
    }

    /// This duration `count` times over.
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// What takes this long at the speed factor `from`, at the speed factor `to`; rounded up. A factor of zero counts
    /// as one thousandth.
    pub fn rescaled(self, from: Permille, to: Permille) -> Self {
        let scaled = u128::from(self.0) * u128::from(from.0.max(1));
        let us = scaled.div_ceil(u128::from(to.0.max(1)));
        Self(u64::try_from(us).unwrap_or(u64::MAX))
    }

    /// The same as a number from which more can be taken.
    pub fn signed(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// Milliseconds with the microseconds as decimals.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1_000.0
    }
}

/// As kubectl shows it: `5`, `200m`.
impl fmt::Display for Millicores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1_000 {
            0 => write!(f, "{}", self.0 / 1_000),
            _ => write!(f, "{}m", self.0),
        }
    }
}

/// Exact, with the suffix that takes the fewest digits, as manifests have it and kubectl shows it: `64Mi`, `1536Mi`, `128M`;
/// without one where none divides it.
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

/// Milliseconds; an integer where they are whole.
impl From<Micros> for Value {
    fn from(time: Micros) -> Self {
        if time.0.is_multiple_of(1_000) {
            (time.0 / 1_000).into()
        } else {
            time.as_millis_f64().into()
        }
    }
}

/// Percent; an integer where it is whole.
impl From<Permille> for Value {
    fn from(ratio: Permille) -> Self {
        if ratio.0.is_multiple_of(10) {
            (ratio.0 / 10).into()
        } else {
            (f64::from(ratio.0) / 10.0).into()
        }
    }
}

/// The price; an integer where it is whole.
impl From<CostPerHour> for Value {
    fn from(cost: CostPerHour) -> Self {
        if cost.0.is_multiple_of(1_000_000) {
            (cost.0 / 1_000_000).into()
        } else {
            (cost.0 as f64 / 1e6).into()
        }
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
    /// How long before `self` the `earlier` moment was; zero if it is not earlier.
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

/// What time it is, by both clocks; an argument of every decision.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The monotonic clock, for ages.
    pub moment: Moment,
    /// The wall clock, for what is written on the pod.
    pub wall: jiff::Timestamp,
}

impl Now {
    /// What time it was, or will be, at this moment, if nobody sets the wall clock meanwhile.
    pub fn at(self, moment: Moment) -> Now {
        let later = jiff::SignedDuration::from_micros(moment.0.saturating_sub(self.moment.0));
        Now {
            moment,
            wall: self.wall.checked_add(later).unwrap_or(self.wall),
        }
    }
}

/// A Kubernetes quantity (`100m`, `1.5Gi`, `2e3`) held exactly, in billionths.
///
/// Source: `k8s.io/apimachinery/pkg/api/resource`. A magnitude below one billionth rounds up to one, binary
/// suffixes stop at 2^63−1, larger decimal values saturate. Exact up to 38 significant digits, three
/// less for every step of a binary suffix.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

/// Why a string is not a [`Quantity`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a quantity (a number such as 2, 0.5, 500m, 1.5Gi or 1e3)")]
pub struct QuantityError(pub String);

const MILLI: i128 = 1_000_000;
const UNIT: i128 = 1_000_000_000;
const NANO_DIGITS: i32 = 9;
const SIGNIFICANT_DIGITS: u32 = 38;
const MAX_BINARY: i128 = (i64::MAX as i128) * 1_000_000_000;

impl Quantity {
    /// Parses the notation the API server accepts. Allocates nothing unless it fails.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        Self::try_parse(text).ok_or_else(|| QuantityError(text.to_owned()))
    }

    fn try_parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let (negative, rest) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, rest) = rest.split_at(digits_end);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
            None => ("", rest),
        };
        let (exponent10, exponent2) = scale_of(suffix)?;

        let mut mantissa: u128 = 0;
        let mut digits = 0;
        // As many as still fit a u128 once they are shifted.
        let significant = SIGNIFICANT_DIGITS - exponent2 * 3 / 10;
        let mut exponent = exponent10.saturating_add(NANO_DIGITS);
        let mut inexact = false;
        for (i, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
            let in_fraction = i >= whole.len();
            if digits < significant {
                mantissa = mantissa * 10 + u128::from(digit - b'0');
                digits += u32::from(mantissa > 0);
                exponent = exponent.saturating_sub(i32::from(in_fraction));
            } else {
                inexact |= digit != b'0';
                exponent = exponent.saturating_add(i32::from(!in_fraction));
            }
        }
        let scaled = mantissa << exponent2;
        let mut nanos = scale_decimal(scaled, exponent, inexact);
        if exponent2 > 0 {
            nanos = nanos.min(MAX_BINARY);
        }
        Some(Self {
            nanos: if negative { -nanos } else { nanos },
        })
    }

    /// So many thousandths.
    pub fn of_millis(millis: i64) -> Self {
        Self {
            nanos: i128::from(millis) * MILLI,
        }
    }

    /// So many whole units.
    pub fn of_units(units: i64) -> Self {
        Self {
            nanos: i128::from(units) * UNIT,
        }
    }

    /// Thousandths, rounded away from zero: the scheduler's view of CPU.
    pub fn millis(self) -> i64 {
        self.rounded(MILLI)
    }

    /// Whole units, rounded away from zero: the scheduler's view of everything but CPU.
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

    /// How many of `unit` nanos this is, rounded away from zero.
    fn in_units_of(self, unit: i128) -> i128 {
        self.nanos / unit + (self.nanos % unit).signum()
    }
}

/// A number where it is whole.
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

/// `(power of ten, power of two)` of a suffix; `None` for what the API server refuses.
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

/// `value · 10^exponent`, rounded up, saturating.
fn scale_decimal(value: u128, exponent: i32, inexact: bool) -> i128 {
    if value == 0 {
        return i128::from(inexact);
    }
    let power = 10_u128.checked_pow(exponent.unsigned_abs());
    let scaled = match (exponent < 0, power) {
        (false, Some(power)) => value.saturating_mul(power),
        (false, None) => u128::MAX,
        (true, Some(power)) => value / power + u128::from(inexact || !value.is_multiple_of(power)),
        (true, None) => 1,
    };
    // Far above every i64 a caller reads, and far enough below i128's end that sums stay sums.
    scaled.min(i128::MAX as u128 / 1_000) as i128
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuantityVisitor;

        impl Visitor<'_> for QuantityVisitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 2, \"500m\" or \"1.5Gi\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                // The API server's decoder trims too.
                Quantity::parse(text.trim()).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity {
                    nanos: i128::from(number) * UNIT,
                })
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity::of_units(number))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(QuantityVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> i128 {
        Quantity::parse(text).unwrap().nanos
    }

    #[test]
    fn every_suffix_and_exponent() {
        const G: i128 = 1_000_000_000;
        for (text, expected) in [
            ("0", 0),
            ("1", G),
            ("+1", G),
            ("-1", -G),
            ("007", 7 * G),
            ("1.", G),
            (".5", G / 2),
            ("1n", 1),
            ("1u", 1_000),
            ("1m", 1_000_000),
            ("1k", 1_000 * G),
            ("1M", 1_000_000 * G),
            ("1G", G * G),
            ("1T", 1_000 * G * G),
            ("1P", 1_000_000 * G * G),
            ("1E", G * G * G),
            ("1Ki", 1_024 * G),
            ("1Mi", 1_048_576 * G),
            ("1.5Gi", 3 * (1 << 29) * G),
            ("0.1Ki", 102_400_000_000),
            ("2e3", 2_000 * G),
            ("2E3", 2_000 * G),
            ("2e+3", 2_000 * G),
            ("1.5e-3", 1_500_000),
            ("1e-10", 1),
            ("0.1n", 1),
            ("-0.1n", -1),
            ("8Ei", MAX_BINARY),
            ("100Ei", MAX_BINARY),
            ("0.0000000000000000000001Ki", 1),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn what_the_api_server_refuses() {
        for text in [
            "", "a", "1a", "1i", ".5i", "1ki", "1KI", "1e", "1e1.5", "1.1.1", "1 ", " 1", "1ee3", "1Ki5", "0x10",
            "1_000", "--1", "1e5m",
        ] {
            assert!(Quantity::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn rounding_is_away_from_zero() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("0.1m").millis(), 1);
        assert_eq!(q("100.1m").millis(), 101);
        assert_eq!(q("-0.1m").millis(), -1);
        assert_eq!(q("1500m").units(), 2);
        assert_eq!(q("1n").units(), 1);
        assert_eq!((q("500u") + q("500u")).millis(), 1);
        assert_eq!((q("500u").round_to_millis() + q("500u").round_to_millis()).millis(), 2);
        assert_eq!(q("10P").round_to_millis(), q("10P"));
        assert_eq!(q("-10P").round_to_millis(), q("-10P"));
        assert_eq!(q("9000000000000000000001m").units(), 9_000_000_000_000_000_001);
        assert_eq!(q("500000000000.00000000005Ki").millis(), 512_000_000_000_000_001);
        assert_eq!(q("7.9999999999999999999999999Ei").units(), i64::MAX);
        assert_eq!(q("1e40").units(), i64::MAX);
        assert_eq!(q("99999999999999999999999999999999999999999999").units(), i64::MAX);
    }

    #[test]
    fn numbers_in_json_are_quantities_too() {
        let q: Vec<Quantity> = serde_json::from_str(r#"[2, 0.5, " 500m ", -1]"#).unwrap();
        assert_eq!(
            q.iter().map(|q| q.millis()).collect::<Vec<_>>(),
            [2000, 500, 500, -1000]
        );
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
        /// Of every magnitude, and as people write them. The smallest i64 is no Kubernetes quantity.
        #[test]
        fn what_is_printed_is_read_as_the_same(number in -i64::MAX..=i64::MAX, shift in 0..63_u32, base in proptest::sample::select(vec![1_i64, 1_000, 1 << 10])) {
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

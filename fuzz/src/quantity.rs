//! Kubernetes quantities, against arithmetic that knows decimal digits alone.

use std::cmp::Ordering;

use edgeward_core::units::{Bytes, Millicores, Quantity};

/// # Panics
/// A quantity is read or written wrongly.
pub fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let read = Quantity::parse(text).ok();
    assert_eq!(read.is_some(), is_quantity(text), "{text:?}");

    let json = serde_json::Value::from(text).to_string();
    let trimmed: Option<Quantity> = serde_json::from_str(&json).ok();
    assert_eq!(trimmed, Quantity::parse(text.trim()).ok(), "{text:?} in JSON");
    let Some(quantity) = read else { return };

    let exact = Decimal::of(text);
    for (found, scale) in [(quantity.millis(), 3), (quantity.units(), 0)] {
        let expected = exact.rounded_away_from_zero(scale);
        let off_by = if exact.is_exact { 0 } else { 1 };
        assert!(
            found.abs_diff(expected) <= off_by,
            "{text:?}: {found}, not {expected}, at 10^-{scale}"
        );
    }
    assert_eq!(quantity.round_to_millis().millis(), quantity.millis(), "{text:?}");
    assert!(
        quantity.round_to_millis() >= quantity || quantity < Quantity::default(),
        "{text:?}"
    );
    assert_eq!(quantity + Quantity::default(), quantity);
    assert!(
        (quantity + quantity).units().unsigned_abs() >= quantity.units().unsigned_abs(),
        "{text:?} twice"
    );
    let negative = exact.is_negative && !exact.digits.is_empty();
    let sign = quantity.cmp(&Quantity::default());
    let expected = match (exact.digits.is_empty(), negative) {
        (true, _) => Ordering::Equal,
        (false, true) => Ordering::Less,
        (false, false) => Ordering::Greater,
    };
    assert_eq!(sign, expected, "{text:?}");

    // The smallest i64 is no Kubernetes quantity.
    let (millis, units) = (quantity.millis().max(-i64::MAX), quantity.units().max(-i64::MAX));
    let written =
        [Millicores(millis).to_string(), Bytes(units).to_string()].map(|text| Quantity::parse(&text).unwrap());
    assert_eq!((written[0].millis(), written[1].units()), (millis, units), "{text:?}");
}

/// Whether the API server takes it. It misses no digit: `.`, `-` and `m` are zero.
fn is_quantity(text: &str) -> bool {
    let rest = unsigned(text.strip_prefix(['+', '-']).unwrap_or(text)).2;
    !text.is_empty() && suffix(rest).is_some()
}

/// Digits before and after the point, and the rest.
fn unsigned(text: &str) -> (&str, &str, &str) {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(digits(text));
    match rest.strip_prefix('.') {
        Some(rest) => {
            let (fraction, rest) = rest.split_at(digits(rest));
            (whole, fraction, rest)
        }
        None => (whole, "", rest),
    }
}

/// Powers of ten and of two.
fn suffix(text: &str) -> Option<(i64, u32)> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(at) = decimal.iter().position(|suffix| *suffix == text) {
        return Some((at as i64 * 3 - 9, 0));
    }
    if let Some(at) = binary.iter().position(|suffix| *suffix == text) {
        return Some((0, at as u32 * 10));
    }
    let exponent = text.strip_prefix(['e', 'E'])?;
    Some((exponent.parse().ok()?, 0))
}

/// A number as its decimal digits, the most significant first and none of them zero at the beginning.
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    /// Of the last digit.
    exponent: i64,
    /// Whether the quantity has no more digits than are kept exactly.
    is_exact: bool,
    is_binary: bool,
}

impl Decimal {
    /// Of a text that is a quantity.
    fn of(text: &str) -> Self {
        let (whole, fraction, rest) = unsigned(text.strip_prefix(['+', '-']).unwrap_or(text));
        let (ten, two) = suffix(rest).unwrap();
        let digits = whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0');
        let mut digits: Vec<_> = digits.skip_while(|digit| *digit == 0).collect();
        let is_exact = digits.len() <= 38 - (two as usize * 3).div_ceil(10);
        for _ in 0..two {
            double(&mut digits);
        }
        Self {
            is_negative: text.starts_with('-'),
            exponent: ten.saturating_sub(fraction.len() as i64),
            digits,
            is_exact,
            is_binary: two > 0,
        }
    }

    /// In units of `10^-scale`.
    fn rounded_away_from_zero(&self, scale: i64) -> i64 {
        let shift = self.exponent.saturating_add(scale);
        let kept = self.digits.len() as i64 + shift.min(0);
        let mut number: i128 = 0;
        let shifted = (self.digits.iter().copied()).chain(std::iter::repeat_n(0, shift.clamp(0, 64) as usize));
        for digit in shifted.take(usize::try_from(if shift < 0 { kept } else { i64::MAX }).unwrap_or(0)) {
            number = number.saturating_mul(10).saturating_add(digit.into());
        }
        let lost = &self.digits[usize::try_from(kept.clamp(0, self.digits.len() as i64)).unwrap()..];
        number = number.saturating_add(i128::from(shift < 0 && lost.iter().any(|digit| *digit != 0)));
        if self.is_binary {
            number = number.min(i128::from(i64::MAX) * 10_i128.pow(scale as u32));
        }
        let signed = if self.is_negative { -number } else { number };
        i64::try_from(signed).unwrap_or(if self.is_negative { i64::MIN } else { i64::MAX })
    }
}

fn double(digits: &mut Vec<u8>) {
    let mut carry = 0;
    for digit in digits.iter_mut().rev() {
        let twice = *digit * 2 + carry;
        (*digit, carry) = (twice % 10, twice / 10);
    }
    if carry > 0 {
        digits.insert(0, carry);
    }
}

//! A quantity that is parsed, printed and parsed again stays the same.
#![no_main]

use edgeward_kube::units::{Bytes, Millicores, Quantity};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(quantity) = Quantity::parse(text) else { return };
    // The smallest i64 is not a Kubernetes quantity.
    let (millis, units) = (quantity.millis().max(-i64::MAX), quantity.units().max(-i64::MAX));
    let again = |text: String| Quantity::parse(&text).unwrap();
    assert_eq!(again(Millicores(millis).to_string()).millis(), millis, "{text:?}");
    assert_eq!(again(Bytes(units).to_string()).units(), units, "{text:?}");
    assert_eq!(quantity.round_to_millis().millis(), quantity.millis(), "{text:?}");
});

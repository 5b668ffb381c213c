//! Compares a forecast with the values that came, and with persistence: the forecast that a value stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Sum;

/// Values by their Unix time in seconds. A value that is not finite cannot be used.
pub type Course = BTreeMap<i64, f64>;

/// Errors of a forecast and of persistence over the same times.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Comparison {
    /// Number of times with a forecast, an actual value, and an actual value a horizon later.
    pub pairs: usize,
    /// Number of times at which one of the three values does not exist.
    pub missing: usize,
    /// Number of times at which one of the three values is not finite.
    pub unusable: usize,
    /// Sum of the absolute errors of the forecast.
    total: f64,
    /// Sum of the absolute errors of persistence.
    persistence_total: f64,
}

impl Comparison {
    /// Mean absolute error of the forecast. `None` without pairs.
    pub fn error(&self) -> Option<f64> {
        (self.pairs > 0).then(|| self.total / self.pairs as f64)
    }

    /// Mean absolute error of persistence. `None` without pairs.
    pub fn persistence_error(&self) -> Option<f64> {
        (self.pairs > 0).then(|| self.persistence_total / self.pairs as f64)
    }

    /// 1 − error / error of persistence. `None` without pairs, and if persistence makes no error.
    pub fn skill(&self) -> Option<f64> {
        (self.persistence_total > 0.0).then(|| 1.0 - self.total / self.persistence_total)
    }
}

impl Sum for Comparison {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            pairs: sum.pairs + one.pairs,
            missing: sum.missing + one.missing,
            unusable: sum.unusable + one.unusable,
            total: sum.total + one.total,
            persistence_total: sum.persistence_total + one.persistence_total,
        })
    }
}

/// Compares the forecasts that were made at `times`, for `horizon` seconds later, by place. Includes every place of either side.
pub fn backtest(
    forecast: &BTreeMap<String, Course>,
    actual: &BTreeMap<String, Course>,
    times: &[i64],
    horizon: i64,
) -> BTreeMap<String, Comparison> {
    let none = Course::new();
    let places: BTreeSet<_> = forecast.keys().chain(actual.keys()).collect();
    let compared = places.into_iter().map(|place| {
        let [forecast, actual] = [forecast, actual].map(|courses| courses.get(place).unwrap_or(&none));
        (place.clone(), compare(forecast, actual, times, horizon))
    });
    compared.collect()
}

fn compare(forecast: &Course, actual: &Course, times: &[i64], horizon: i64) -> Comparison {
    let mut found = Comparison::default();
    for time in times {
        let values = (forecast.get(time), actual.get(time), actual.get(&(time + horizon)));
        let (Some(forecast), Some(before), Some(after)) = values else {
            found.missing += 1;
            continue;
        };
        let (error, persistence) = ((forecast - after).abs(), (before - after).abs());
        if !error.is_finite() || !persistence.is_finite() {
            found.unusable += 1;
            continue;
        }
        found.pairs += 1;
        found.total += error;
        found.persistence_total += persistence;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STEP: i64 = 60;
    const HORIZON: i64 = 180;

    fn course(values: &[f64]) -> Course {
        (0..).step_by(STEP as usize).zip(values.iter().copied()).collect()
    }

    /// Returns what `ahead` seconds later is true, at the time of the forecast.
    fn ahead(actual: &Course, ahead: i64) -> Course {
        actual.iter().map(|(time, value)| (time - ahead, *value)).collect()
    }

    fn times(actual: &Course) -> Vec<i64> {
        let last = actual.keys().last().copied().unwrap_or(0);
        (0..=last - HORIZON).step_by(STEP as usize).collect()
    }

    fn skill(forecast: &Course, actual: &Course) -> Option<f64> {
        compare(forecast, actual, &times(actual), HORIZON).skill()
    }

    #[test]
    fn skill_compares_with_persistence() {
        let ramp = course(&[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        let off_by = |error: f64| {
            let perfect = ahead(&ramp, HORIZON);
            perfect.into_iter().map(|(time, value)| (time, value + error)).collect()
        };
        // Persistence is off by 30, so a third of this error has a skill of 2/3.
        for (forecast, expected) in [
            (off_by(0.0), 1.0),
            (off_by(10.0), 2.0 / 3.0),
            (off_by(-10.0), 2.0 / 3.0),
            (ramp.clone(), 0.0),
            (off_by(60.0), -1.0),
        ] {
            let found = skill(&forecast, &ramp).unwrap();
            assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
        }
    }

    #[test]
    fn other_horizon_is_no_perfect_forecast() {
        let actual = course(&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0]);
        for other in [0, HORIZON - STEP, HORIZON + STEP, -HORIZON] {
            assert!(skill(&ahead(&actual, other), &actual).unwrap_or(0.0) < 1.0, "{other}");
        }
        assert_eq!(skill(&ahead(&actual, HORIZON), &actual), Some(1.0));
    }

    #[test]
    fn skill_without_error_of_persistence_is_undefined() {
        let flat = course(&[7.0; 6]);
        assert_eq!(skill(&flat, &flat), None);
        assert_eq!(skill(&course(&[8.0; 6]), &flat), None);
        let found = compare(&flat, &flat, &times(&flat), HORIZON);
        assert_eq!(
            (found.pairs, found.error(), found.persistence_error()),
            (3, Some(0.0), Some(0.0))
        );
    }

    #[test]
    fn gaps_and_infinite_values_are_counted_and_not_zero() {
        let mut actual = course(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let mut forecast = ahead(&actual, HORIZON);
        // The value at 3 minutes is the outcome of the first forecast, and the start of the fourth.
        actual.remove(&180);
        forecast.insert(60, f64::INFINITY);
        actual.insert(420, f64::NAN);
        let found = compare(&forecast, &actual, &[0, 60, 120, 180, 240], HORIZON);
        assert_eq!((found.pairs, found.missing, found.unusable), (1, 2, 2));
        assert_eq!((found.error(), found.persistence_error()), (Some(0.0), Some(3.0)));
    }

    #[test]
    fn place_of_one_side_has_no_pairs() {
        let [one, other] =
            [("edge", 1.0), ("cloud", 2.0)].map(|(site, value)| [(site.to_owned(), course(&[value; 4]))]);
        let found = backtest(&one.into(), &other.into(), &[0], HORIZON);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["cloud", "edge"]);
        assert!(found.values().all(|site| (site.pairs, site.missing) == (0, 1)));
        let overall: Comparison = found.into_values().sum();
        assert_eq!((overall.missing, overall.error(), overall.skill()), (2, None, None));
    }

    proptest! {
        #[test]
        fn perfect_forecast_has_skill_1_and_persistence_0(
            values in prop::collection::vec(-1e9..1e9_f64, 5..50),
            scale in 0.1..10.0_f64,
        ) {
            let actual = course(&values);
            prop_assert_eq!(skill(&ahead(&actual, HORIZON), &actual), Some(1.0));
            prop_assert_eq!(skill(&actual, &actual), Some(0.0));

            // The unit does not matter.
            let forecast = ahead(&actual, STEP);
            let scaled = |course: &Course| course.iter().map(|(time, value)| (*time, value * scale)).collect();
            let [one, other] = [skill(&forecast, &actual), skill(&scaled(&forecast), &scaled(&actual))];
            prop_assert!((one.unwrap() - other.unwrap()).abs() < 1e-6);
        }
    }
}

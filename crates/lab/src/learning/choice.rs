//! Chooses an action by the numbers that a network gives to each.

use crate::random::Stream;

/// Returns the allowed action with the largest number, the first among equal ones. If no action is allowed, returns the
/// last action, which rejects.
pub(super) fn best(numbers: &[f32], mask: &[bool]) -> usize {
    let mut best = None;
    for (action, (number, _)) in numbers
        .iter()
        .zip(mask)
        .enumerate()
        .filter(|(_, (_, allowed))| **allowed)
    {
        if best.is_none_or(|(_, largest)| *number > largest) {
            best = Some((action, *number));
        }
    }
    best.map_or(mask.len().saturating_sub(1), |(action, _)| action)
}

/// Draws an allowed action with a probability proportional to e to the power of its number. Also returns the logarithm
/// of that probability.
pub(super) fn sample(numbers: &[f32], mask: &[bool], stream: &mut Stream) -> (usize, f32) {
    let allowed = || {
        numbers
            .iter()
            .zip(mask)
            .enumerate()
            .filter(|(_, (_, allowed))| **allowed)
    };
    let largest = allowed().fold(f32::NEG_INFINITY, |largest, (_, (x, _))| largest.max(*x));
    let weight = |x: f32| f64::from(x - largest).exp();
    let all: f64 = allowed().map(|(_, (x, _))| weight(*x)).sum();
    let mut left = all * stream.unit();
    let mut chosen = (best(numbers, mask), largest);
    for (action, (x, _)) in allowed() {
        left -= weight(*x);
        if left < 0.0 {
            chosen = (action, *x);
            break;
        }
    }
    (chosen.0, chosen.1 - largest - all.ln() as f32)
}

pub(super) fn any(mask: &[bool], stream: &mut Stream) -> usize {
    let count = mask.iter().filter(|allowed| **allowed).count();
    if count == 0 {
        return mask.len().saturating_sub(1);
    }
    let place = stream.below(count);
    let allowed = mask.iter().enumerate().filter(|(_, allowed)| **allowed);
    allowed.map(|(action, _)| action).nth(place).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    #[test]
    fn best_action_is_first_allowed_maximum() {
        assert_eq!(best(&[1.0, 3.0, 3.0], &[true; 3]), 1);
        assert_eq!(best(&[1.0, 3.0, 3.0], &[true, false, true]), 2);
        assert_eq!(best(&[1.0, f32::NAN, 0.5], &[false, true, true]), 1);
        assert_eq!(best(&[1.0, 3.0, 3.0], &[false; 3]), 2);
    }

    #[test]
    fn samples_follow_masked_softmax() {
        let (numbers, mask) = ([0.0, 2.0_f32.ln(), 9.0, 5.0_f32.ln()], [true, true, false, true]);
        let mut stream = Stream::new(1, Purpose::Learning, 0, 0);
        let mut counts = [0; 4];
        let mut chances = [0.0; 4];
        for _ in 0..80_000 {
            let (action, logarithm) = sample(&numbers, &mask, &mut stream);
            counts[action] += 1;
            chances[action] = logarithm.exp();
        }
        for (action, expected) in [0.125, 0.25, 0.0, 0.625].into_iter().enumerate() {
            assert!(
                (f64::from(counts[action]) / 80_000.0 - expected).abs() < 0.01,
                "{counts:?}"
            );
            assert!((f64::from(chances[action]) - expected).abs() < 1e-6, "{chances:?}");
        }
    }

    #[test]
    fn exploration_is_uniform_over_allowed_actions() {
        let mut stream = Stream::new(2, Purpose::Learning, 0, 0);
        let mut counts = [0; 5];
        (0..30_000).for_each(|_| counts[any(&[true, false, true, false, true], &mut stream)] += 1);
        assert_eq!((counts[1], counts[3]), (0, 0));
        assert!(
            [0, 2, 4]
                .iter()
                .all(|action| (9_500..10_500).contains(&counts[*action])),
            "{counts:?}"
        );
    }
}

//! Spreads replicas over clusters: first fit, decreasing.

/// Returns the number of replicas for each cluster. A replica needs this many cores and GiB. Replicas that fit nowhere
/// in two passes are dropped, as published. `free` holds cores and GiB of each cluster. O(clusters × log clusters).
pub(super) fn spread(replicas: u8, cpu: f64, memory: f64, free: &[(f64, f64)]) -> Vec<u8> {
    let mut shares = vec![0; free.len()];
    let scarcest = free
        .iter()
        .map(|(free_cpu, free_memory)| (free_cpu / cpu).min(free_memory / memory))
        .fold(f64::INFINITY, f64::min);
    // The cast saturates: a negative or too large number becomes the nearest value of the type.
    let mut batch = scarcest.ceil() as u8;
    if batch >= replicas {
        batch = replicas - 1;
    }
    let fits = |count: u8, (free_cpu, free_memory): (f64, f64)| {
        f64::from(count) * cpu < free_cpu && f64::from(count) * memory < free_memory
    };
    let mut order: Vec<usize> = (0..free.len()).collect();
    order.sort_by(|one, other| free[*other].0.total_cmp(&free[*one].0));
    let mut left = replicas;
    for cluster in order {
        if left == 0 {
            return shares;
        }
        let count = match free[cluster] {
            room if batch < left && fits(batch, room) => batch,
            room if fits(1, room) => 1,
            _ => 0,
        };
        shares[cluster] += count;
        left -= count;
    }
    for (share, room) in shares.iter_mut().zip(free) {
        if left > 0 && fits(1, *room) {
            *share += 1;
            left -= 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the replayed rows do not tell apart; they hold the rest.
    #[test]
    fn replicas_without_room_are_dropped() {
        for (replicas, free, expected) in [
            (7, &[(1.5, 1.5), (1.5, 1.5)][..], &[2, 2][..]),
            (3, &[(0.5, 0.5), (0.9, 9.0)], &[0, 0]),
            // A cluster that is full to the last has nothing in the first pass, and so has nobody.
            (3, &[(0.0, 0.0), (9.0, 9.0), (8.0, 9.0)], &[0, 1, 1]),
            // Room for exactly one is none.
            (2, &[(1.0, 1.0), (1.0, 9.0)], &[0, 0]),
        ] {
            assert_eq!(spread(replicas, 1.0, 1.0, free), expected, "{free:?}");
        }
    }
}

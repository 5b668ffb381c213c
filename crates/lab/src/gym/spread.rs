//! Spreads replicas over clusters: first fit, decreasing, or in proportion to room.

use std::cmp::Reverse;

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

/// Returns how many replicas fit into free cores and GiB. A replica needs this many of each.
pub(super) fn available(free: (f64, f64), cpu: f64, memory: f64) -> u32 {
    // The cast rounds down, and negative numbers become 0.
    (free.0 / cpu).min(free.1 / memory) as u32
}

/// Divides replicas over clusters in proportion to the replicas that fit into each, by largest remainder. Of equal
/// remainders, the first gets the replica. Returns `None` if the replicas do not fit into all clusters together.
pub(super) fn divide(replicas: u8, available: &[u32]) -> Option<Vec<u8>> {
    let (wanted, all) = (u32::from(replicas), available.iter().sum::<u32>());
    if wanted > all {
        return None;
    }
    let mut shares: Vec<u8> = available.iter().map(|room| (wanted * room / all) as u8).collect();
    let left = replicas - shares.iter().sum::<u8>();
    let mut order: Vec<usize> = (0..available.len()).collect();
    order.sort_by_key(|cluster| Reverse(wanted * available[*cluster] % all));
    for cluster in order.into_iter().take(usize::from(left)) {
        shares[cluster] += 1;
    }
    Some(shares)
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
            // A cluster that is full to the last has nothing in the first pass, and then no cluster has.
            (3, &[(0.0, 0.0), (9.0, 9.0), (8.0, 9.0)], &[0, 1, 1]),
            // Room for exactly one is none.
            (2, &[(1.0, 1.0), (1.0, 9.0)], &[0, 0]),
        ] {
            assert_eq!(spread(replicas, 1.0, 1.0, free), expected, "{free:?}");
        }
    }

    #[test]
    fn available_replicas_are_those_of_scarcer_resource() {
        for (free, expected) in [
            ((2.0, 1.0), 3), // 10 by CPU, 3.3 by memory
            ((0.5, 9.0), 2), // 2.5 by CPU, 30 by memory
            ((0.1, 9.0), 0),
            ((-0.1, 9.0), 0),
        ] {
            assert_eq!(available(free, 0.2, 0.3), expected, "{free:?}");
        }
    }

    #[test]
    fn replicas_are_divided_by_largest_remainder() {
        for (replicas, available, expected) in [
            (7, &[6, 3, 1][..], Some(&[4, 2, 1][..])), // quotas 4.2, 2.1 and 0.7
            (5, &[10, 3, 7], Some(&[2, 1, 2])),        // 2.5, 0.75 and 1.75
            (4, &[5, 3, 2, 2], Some(&[2, 1, 1, 0])),   // 1.67, 1, 0.67 and 0.67
            (1, &[2, 2], Some(&[1, 0])),
            (3, &[0, 3], Some(&[0, 3])),
            (3, &[1, 1], None),
            (1, &[0, 0], None),
        ] {
            assert_eq!(divide(replicas, available).as_deref(), expected, "{available:?}");
        }
    }
}

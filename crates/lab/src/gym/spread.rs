//! How replicas are spread over clusters: first fit, decreasing.

/// A request's replicas by cluster. At most seven clusters have any.
pub(super) type Shares = Vec<u8>;

#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) replicas: u8,
    pub(super) cpu: f64,
    pub(super) memory: f64,
}

/// Fills `shares` with how many replicas each cluster gets. Those that fit nowhere in two passes are dropped, as published.
/// `order` is room to work in; `free` are cores and GiB of each cluster. O(clusters × log clusters).
pub(super) fn spread(load: Load, free: &[(f64, f64)], order: &mut Vec<u16>, shares: &mut Shares) {
    let Load { replicas, cpu, memory } = load;
    shares.clear();
    shares.resize(free.len(), 0);
    let scarcest = free
        .iter()
        .map(|(free_cpu, free_memory)| (free_cpu / cpu).min(free_memory / memory))
        .fold(f64::INFINITY, f64::min);
    // What is negative or above the range of the type becomes the nearest that it has.
    let mut batch = scarcest.ceil() as u8;
    if batch >= replicas {
        batch = replicas - 1;
    }
    let fits = |count: u8, (free_cpu, free_memory): (f64, f64)| {
        f64::from(count) * cpu < free_cpu && f64::from(count) * memory < free_memory
    };
    order.clear();
    order.extend(0..free.len() as u16);
    order.sort_by(|one, other| free[usize::from(*other)].0.total_cmp(&free[usize::from(*one)].0));
    let mut left = replicas;
    for cluster in order.iter().map(|cluster| usize::from(*cluster)) {
        if left == 0 {
            return;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How one core and one GiB each, or another load, is spread.
    fn shares(replicas: u8, cpu: f64, memory: f64, free: &[(f64, f64)]) -> Vec<u8> {
        let (mut order, mut shares) = (Vec::new(), vec![9]);
        let load = Load { replicas, cpu, memory };
        spread(load, free, &mut order, &mut shares);
        shares
    }

    #[test]
    fn a_cluster_gets_as_many_as_the_scarcest_holds() {
        // The scarcest has room for 1.5, rounded up.
        let free = [(1.5, 9.0), (8.0, 9.0), (4.0, 9.0)];
        assert_eq!(shares(5, 1.0, 1.0, &free), [1, 2, 2]);
        // What is left after one pass goes to the first clusters, one each.
        assert_eq!(shares(7, 1.0, 1.0, &free), [2, 3, 2]);
        // Of equal ones the first is first.
        assert_eq!(shares(3, 1.0, 1.0, &[(9.0, 2.5), (9.0, 2.5)]), [2, 1]);
    }

    #[test]
    fn not_all_are_in_one_cluster_where_each_could_hold_them() {
        assert_eq!(shares(4, 1.0, 1.0, &[(9.0, 9.0), (8.0, 9.0)]), [3, 1]);
        assert_eq!(shares(2, 1.0, 1.0, &[(9.0, 9.0)]), [2], "by the second pass");
    }

    #[test]
    fn replicas_without_room_are_dropped() {
        assert_eq!(shares(7, 1.0, 1.0, &[(1.5, 1.5), (1.5, 1.5)]), [2, 2]);
        assert_eq!(shares(3, 1.0, 1.0, &[(0.5, 0.5), (0.9, 9.0)]), [0, 0]);
        // A cluster that is full to the last has nothing in the first pass, and so has nobody.
        assert_eq!(shares(3, 1.0, 1.0, &[(0.0, 0.0), (9.0, 9.0), (8.0, 9.0)]), [0, 1, 1]);
        // Room for exactly one is none.
        assert_eq!(shares(2, 1.0, 1.0, &[(1.0, 1.0), (1.0, 9.0)]), [0, 0]);
    }
}

//! Values that are remembered for a limited time.

use std::collections::{BTreeMap, BTreeSet};

use edgeward_kube::units::{Micros, Moment};

/// A map whose values count for `SECONDS` after they were inserted. If there are more than `MOST` values, the oldest is
/// forgotten. Equal calls give equal maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent<K, V, const SECONDS: u64, const MOST: usize> {
    values: BTreeMap<K, (Moment, V)>,
    by_age: BTreeSet<(Moment, K)>,
}

impl<K, V, const SECONDS: u64, const MOST: usize> Default for Recent<K, V, SECONDS, MOST> {
    fn default() -> Self {
        Self {
            values: BTreeMap::new(),
            by_age: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone, V, const SECONDS: u64, const MOST: usize> Recent<K, V, SECONDS, MOST> {
    /// Inserts a value or replaces it. Returns the key that is forgotten to make room, if any.
    pub fn insert(&mut self, key: K, value: V, now: Moment) -> Option<K> {
        self.remove(&key);
        self.by_age.insert((now, key.clone()));
        self.values.insert(key, (now, value));
        (self.values.len() > MOST).then(|| self.take_first()).flatten()
    }

    /// Returns the value if it still counts.
    pub fn get(&self, key: &K, now: Moment) -> Option<&V> {
        let (since, value) = self.values.get(key)?;
        (now < Self::end(*since)).then_some(value)
    }

    /// Removes a value, even if it no longer counts.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (since, value) = self.values.remove(key)?;
        self.by_age.remove(&(since, key.clone()));
        Some(value)
    }

    /// Removes the values that no longer count. Returns whether there were any.
    pub fn expire(&mut self, now: Moment) -> bool {
        std::iter::from_fn(|| self.take_ended(now)).count() > 0
    }

    /// Removes the next value that no longer counts, and returns its key.
    fn take_ended(&mut self, now: Moment) -> Option<K> {
        self.next_end().filter(|end| *end <= now)?;
        self.take_first()
    }

    /// When the next value stops counting.
    pub fn next_end(&self) -> Option<Moment> {
        self.by_age.first().map(|(since, _)| Self::end(*since))
    }

    /// All keys and values that have not been removed.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter().map(|(key, (_, value))| (key, value))
    }

    fn take_first(&mut self) -> Option<K> {
        let (_, key) = self.by_age.pop_first()?;
        self.values.remove(&key);
        Some(key)
    }

    fn end(since: Moment) -> Moment {
        since.after(Micros::from_secs(SECONDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = Micros::from_secs(1);

    #[test]
    fn value_expires_counting_from_its_last_insertion() {
        let mut recent: Recent<&str, u8, 10, 2> = Recent::default();
        recent.insert("a", 1, Moment(0));
        let later = Moment(0).after(SECOND);
        recent.insert("a", 2, later);
        let end = later.after(SECOND.times(10));
        assert_eq!(recent.get(&"a", end.before(Micros(1))), Some(&2));
        assert_eq!((recent.get(&"a", end), recent.next_end()), (None, Some(end)));
        assert_eq!(recent.take_ended(end.before(Micros(1))), None);
        assert_eq!((recent.take_ended(end), recent.take_ended(end)), (Some("a"), None));
    }

    #[test]
    fn oldest_entry_is_dropped_beyond_capacity() {
        let mut recent: Recent<&str, u8, 10, 2> = Recent::default();
        for (key, at) in [("a", 0), ("b", 1), ("a", 2)] {
            assert_eq!(recent.insert(key, 0, Moment(at)), None);
        }
        assert_eq!(recent.insert("c", 0, Moment(3)), Some("b"));
        assert_eq!(recent.iter().collect::<Vec<_>>(), [(&"a", &0), (&"c", &0)]);
    }
}

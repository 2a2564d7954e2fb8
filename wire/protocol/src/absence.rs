//! Reports a missing member as gone only after two consecutive looks without it.
//!
//! Folders, name servers and lists of servers are polled. One look can miss a member that exists: a volume is mounted
//! again, a folder is replaced in two steps, a list comes from a lagging replica. [`Absence`] therefore waits for a
//! second look. An empty look changes nothing: an empty mount is far more likely than an operator who removes
//! everything this way.

use std::collections::BTreeSet;

/// The members that the last look missed.
#[derive(Clone, Debug)]
pub struct Absence<K>(BTreeSet<K>);

impl<K> Default for Absence<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Clone + Ord> Absence<K> {
    /// Processes a look: the number of members in it, and which known members it has. Returns the members that are
    /// gone.
    pub fn look<'a>(
        &mut self,
        known: impl IntoIterator<Item = &'a K>,
        found: usize,
        has: impl Fn(&K) -> bool,
    ) -> BTreeSet<K>
    where
        K: 'a,
    {
        if found == 0 {
            return BTreeSet::new();
        }
        let missing: BTreeSet<K> = known.into_iter().filter(|key| !has(key)).cloned().collect();
        let (gone, missing) = missing.into_iter().partition(|key| self.0.contains(key));
        self.0 = missing;
        gone
    }

    /// Whether the last look missed this member, so that the next one decides.
    pub fn is_missed(&self, key: &K) -> bool {
        self.0.contains(key)
    }

    /// Whether the next look decides about any member.
    pub fn is_open(&self) -> bool {
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(absence: &mut Absence<char>, found: &str) -> String {
        absence.look(&['a', 'b', 'c'], found.len(), |key| found.contains(*key)).into_iter().collect()
    }

    #[test]
    fn member_is_gone_after_two_missing_looks_in_a_row() {
        let mut absence = Absence::default();
        let looks = [("abc", ""), ("ab", ""), ("abc", ""), ("a", ""), ("ab", "c"), ("abc", ""), ("bc", "")];
        for (found, gone) in looks {
            assert_eq!(look(&mut absence, found), gone, "{found}: {absence:?}");
        }
        assert!(absence.is_missed(&'a') && !absence.is_missed(&'b') && absence.is_open());
    }

    #[test]
    fn look_that_finds_nothing_changes_nothing() {
        let mut absence = Absence::default();
        for found in ["ab", "", "", "abc", "", ""] {
            assert_eq!(look(&mut absence, found), "", "{found}");
        }
        assert_eq!(look(&mut absence, "ab"), "");
        assert_eq!(look(&mut absence, ""), "");
        assert_eq!(look(&mut absence, "ab"), "c");
    }
}

//! Limits log lines to one a minute for each subject.
//!
//! An instance that flaps is ejected and returns every few seconds. The first line says so at once; the next says how
//! many were left out.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

/// Interval between lines of a subject.
const EVERY_MS: u64 = 60_000;

/// The times of the last lines.
#[derive(Debug)]
pub(crate) struct LogRate<K>(Mutex<HashMap<K, Last>>);

#[derive(Debug)]
struct Last {
    at_ms: u64,
    left_out: u64,
}

impl<K> Default for LogRate<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> LogRate<K> {
    /// Returns the number of lines left out since the last one if a line is due, otherwise counts this one.
    pub(crate) fn due(&self, now_ms: u64, subject: K) -> Option<u64> {
        let mut lasts = self.0.lock();
        match lasts.get_mut(&subject) {
            Some(last) if last.at_ms + EVERY_MS > now_ms => {
                last.left_out += 1;
                return None;
            }
            _ => {}
        }
        let before = lasts.insert(subject, Last { at_ms: now_ms, left_out: 0 });
        // Subjects that went silent are forgotten, after their count was shown or a second minute has passed.
        lasts.retain(|_, last| last.at_ms + 2 * EVERY_MS > now_ms);
        Some(before.map_or(0, |before| before.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_has_one_line_a_minute() {
        let rate = LogRate::default();
        assert_eq!((rate.due(0, "a"), rate.due(0, "b"), rate.due(1, "a")), (Some(0), Some(0), None));
        assert_eq!((rate.due(59_999, "a"), rate.due(60_000, "a")), (None, Some(2)));
        assert_eq!(rate.due(60_001, "a"), None);
        assert_eq!(rate.due(500_000, "c"), Some(0));
        assert_eq!(rate.0.lock().len(), 1, "silent subjects are forgotten");
    }
}

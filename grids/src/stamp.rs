//! The text of a lease file: its holder, a mark of this lease, and its limit.

use std::time::Duration;

/// Longest text of a lease file that is read.
pub(crate) const LONGEST: u64 = 512;
/// Longest limit that is believed.
const LARGEST: Duration = Duration::from_secs(86_400);
const HELD: &str = "held by ";
/// As long as [`HELD`], which it replaces.
const FREE: &str = "left by ";

/// The text of a lease file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The process.
    pub(crate) holder: String,
    /// Random, so that leases of processes with equal names differ.
    pub(crate) mark: String,
    /// The time after which its silent holder loses it.
    pub(crate) limit: Duration,
}

/// The content of a lease file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    /// It is held.
    Held(Stamp),
    /// Its holder gave it back.
    Free,
    /// A process creates it, or it was damaged.
    Unknown,
}

impl Stamp {
    /// Returns the text of a held lease.
    pub(crate) fn held(&self) -> String {
        self.text(HELD)
    }

    /// Returns the text of a free lease, which has the same length.
    pub(crate) fn free(&self) -> String {
        self.text(FREE)
    }

    fn text(&self, state: &str) -> String {
        format!("{state}{}\n{} {}\n", self.holder, self.mark, self.limit.as_millis())
    }
}

impl Text {
    /// Reads a text.
    pub(crate) fn read(text: &str) -> Self {
        if text.starts_with(FREE) {
            return Self::Free;
        }
        let held = || {
            let (holder, rest) = text.strip_prefix(HELD)?.split_once('\n')?;
            let (mark, limit) = rest.strip_suffix('\n')?.split_once(' ')?;
            let limit = Duration::from_millis(limit.parse().ok()?).min(LARGEST);
            Some(Stamp { holder: holder.into(), mark: mark.into(), limit })
        };
        held().map_or(Self::Unknown, Self::Held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_written_and_damage_is_unknown() {
        let stamp = Stamp { holder: "n process 1".into(), mark: "ab".into(), limit: Duration::from_secs(5) };
        assert_eq!(Text::read(&stamp.held()), Text::Held(stamp.clone()));
        assert_eq!(Text::read(&stamp.free()), Text::Free);
        assert_eq!(stamp.held().len(), stamp.free().len());
        for length in 0..stamp.held().len() {
            assert_eq!(Text::read(&stamp.held()[..length]), Text::Unknown, "{length}");
        }
        let long = stamp.held().replace("5000", "999999999999");
        assert!(matches!(Text::read(&long), Text::Held(Stamp { limit: LARGEST, .. })));
    }
}

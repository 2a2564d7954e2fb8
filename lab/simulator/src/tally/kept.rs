//! Tallies as plain values, for files: every number returns exactly as it was.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Counts, Tally};
use crate::Error;

/// A tally in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptTally {
    /// The latencies of each block with how often they occurred.
    blocks: Vec<Vec<(u64, u32)>>,
    counts: Counts,
}

impl From<&Tally> for KeptTally {
    fn from(tally: &Tally) -> Self {
        let blocks = tally.blocks.iter().map(|block| {
            block.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
        });
        Self { blocks: blocks.collect(), counts: tally.counts.clone() }
    }
}

impl TryFrom<KeptTally> for Tally {
    type Error = Error;

    fn try_from(kept: KeptTally) -> Result<Self, Error> {
        let KeptTally { blocks, counts } = kept;
        let mut tally = Tally::new(counts.expected, Duration::ZERO);
        let lengths = |of: &Counts| [&of.sums, &of.outcomes, &of.wrong, &of.slowest].map(Vec::len);
        if blocks.len() != tally.blocks.len() || lengths(&counts) != lengths(&tally.counts) {
            return Err(Error::KeptTally);
        }
        for (block, latencies) in tally.blocks.iter_mut().zip(blocks) {
            for (latency, count) in latencies {
                block.saturating_record_n(latency, count);
            }
        }
        Ok(Tally { counts, ..tally })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ended, Outcome};

    fn tally() -> Tally {
        let mut tally = Tally::new(5_000, Duration::from_secs(1));
        for number in 0..5_000 {
            let latency = 900 + number * number * 7;
            let outcome = if number % 9 == 0 { Outcome::Hedged } else { Outcome::Exact };
            tally.ended(Ended { number, latency, outcome, wrong: number % 50 == 0 });
            tally.started(number % 7 != 0, 0.1);
        }
        tally.finish(1 << 60, (1 << 60) + 1, 17);
        tally
    }

    #[test]
    fn tally_returns_from_its_file_unchanged() {
        let (tally, kept) = (tally(), KeptTally::from(&tally()));
        let read = Tally::try_from(kept.clone()).unwrap();
        assert_eq!(KeptTally::from(&read), kept);
        assert_eq!(read.blocks().collect::<Vec<_>>(), tally.blocks().collect::<Vec<_>>());
        assert_eq!((read.mean(), read.extra()), (tally.mean(), tally.extra()));
        assert_eq!(
            (read.count(), read.wrong(), read.utilisation()),
            (5_000, tally.wrong(), tally.utilisation())
        );
    }

    #[test]
    fn tally_of_another_form_is_rejected() {
        let mut kept = KeptTally::from(&tally());
        kept.counts.outcomes.pop();
        assert_eq!(Tally::try_from(kept).err(), Some(Error::KeptTally));
        let mut kept = KeptTally::from(&tally());
        kept.blocks.pop();
        assert_eq!(Tally::try_from(kept).err(), Some(Error::KeptTally));
    }
}

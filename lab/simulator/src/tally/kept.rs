//! Tallies as plain values, for files: every number returns exactly as it was.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{BLOCKS, STRETCHES, Tally};
use crate::{Error, Outcome};

/// A tally in a file. Floats are the bits of their value, because their decimal form may be read differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptTally {
    expected: u64,
    deadline: u64,
    blocks: Vec<KeptBlock>,
    outcomes: Vec<u64>,
    wrong: Vec<u64>,
    graded: bool,
    slowest: Vec<u64>,
    deployed: u64,
    extra: u64,
    busy: u64,
    capacity: u64,
    most_in_flight: usize,
}

/// The latencies of a block with how often they occurred, and the bits of their sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptBlock {
    latencies: Vec<(u64, u32)>,
    sum: u64,
}

impl From<&Tally> for KeptTally {
    fn from(tally: &Tally) -> Self {
        let latencies = |of: &Histogram<u32>| {
            of.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
        };
        let blocks = tally.blocks.iter();
        let blocks = blocks
            .map(|block| KeptBlock { latencies: latencies(&block.latencies), sum: block.sum.to_bits() });
        Self {
            expected: tally.expected,
            deadline: tally.deadline,
            blocks: blocks.collect(),
            outcomes: tally.outcomes.to_vec(),
            wrong: tally.wrong.to_vec(),
            graded: tally.graded,
            slowest: tally.slowest.clone(),
            deployed: tally.deployed.to_bits(),
            extra: tally.extra.to_bits(),
            busy: tally.busy,
            capacity: tally.capacity,
            most_in_flight: tally.most_in_flight,
        }
    }
}

impl TryFrom<KeptTally> for Tally {
    type Error = Error;

    fn try_from(kept: KeptTally) -> Result<Self, Error> {
        let counts = |of: Vec<u64>| <[u64; Outcome::ALL.len()]>::try_from(of).map_err(|_| Error::KeptTally);
        let mut tally = Tally::new(kept.expected, Duration::from_nanos(kept.deadline));
        if kept.blocks.len() != BLOCKS as usize || kept.slowest.len() != STRETCHES as usize {
            return Err(Error::KeptTally);
        }
        for (block, kept) in tally.blocks.iter_mut().zip(kept.blocks) {
            block.sum = f64::from_bits(kept.sum);
            for (latency, count) in kept.latencies {
                block.latencies.saturating_record_n(latency, count);
            }
        }
        tally.outcomes = counts(kept.outcomes)?;
        tally.wrong = counts(kept.wrong)?;
        Ok(Tally {
            graded: kept.graded,
            slowest: kept.slowest,
            deployed: f64::from_bits(kept.deployed),
            extra: f64::from_bits(kept.extra),
            busy: kept.busy,
            capacity: kept.capacity,
            most_in_flight: kept.most_in_flight,
            ..tally
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ended;

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
        kept.outcomes.pop();
        assert_eq!(Tally::try_from(kept).err(), Some(Error::KeptTally));
        let mut kept = KeptTally::from(&tally());
        kept.blocks.pop();
        assert_eq!(Tally::try_from(kept).err(), Some(Error::KeptTally));
    }
}

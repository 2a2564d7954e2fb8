//! The instances that a fault affects.

use serde::{Deserialize, Serialize};

use crate::Error;
use parm_random::Random;

/// The instances of a fault.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Targets {
    /// Each, at times of its own.
    #[default]
    Each,
    /// The listed ones, counted from 0, each at times of its own.
    Only(Vec<u32>),
    /// This share of them, chosen by the seed, each at times of its own.
    Some(f64),
    /// This share of them, chosen by the seed, all at the same times: a rack, a switch, a shared machine.
    Together(f64),
}

impl Targets {
    /// Whether an instance is affected. Shares are rounded to whole instances, at least one.
    pub(crate) fn concern(&self, instance: u32, fault: Place) -> bool {
        match self {
            Targets::Each => true,
            Targets::Only(instances) => instances.contains(&instance),
            Targets::Some(share) | Targets::Together(share) => {
                let count = (share * f64::from(fault.instances)).round().max(1.0) as u32;
                // The instances of the lowest ranks in an order drawn for this fault.
                let rank = |instance: u32| {
                    (
                        Random::of(fault.seed, [CHOICE, fault.index as u64, u64::from(instance)]).bits(),
                        instance,
                    )
                };
                let own = rank(instance);
                (0..fault.instances).filter(|other| rank(*other) < own).count() < count as usize
            }
        }
    }

    /// Returns the name of the times of this instance: instances of one name share them.
    pub(crate) fn times_of(&self, instance: u32) -> u64 {
        match self {
            Targets::Together(_) => u64::MAX,
            Targets::Each | Targets::Only(_) | Targets::Some(_) => u64::from(instance),
        }
    }

    pub(crate) fn check(&self, fault: usize, instances: u32) -> Result<(), Error> {
        match self {
            Targets::Each => Ok(()),
            Targets::Only(named) => match named.iter().find(|instance| **instance >= instances) {
                Some(instance) => Err(Error::NoSuchInstance { fault, instance: *instance, instances }),
                None => Ok(()),
            },
            Targets::Some(share) | Targets::Together(share) if (0.0..=1.0).contains(share) => Ok(()),
            Targets::Some(share) | Targets::Together(share) => {
                Err(Error::BadFault { fault, name: "on", value: *share, range: "from 0 to 1" })
            }
        }
    }
}

/// The position of a fault in its list, which names its random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) seed: u64,
    pub(crate) index: usize,
    pub(crate) instances: u32,
}

const CHOICE: u64 = 0x7A26;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_chooses_the_stated_share_of_instances() {
        let chosen = |seed| {
            let place = Place { seed, index: 0, instances: 18 };
            let targets = Targets::Some(1.0 / 9.0);
            (0..18).filter(|instance| targets.concern(*instance, place)).collect::<Vec<_>>()
        };
        assert!((0..20).all(|seed| chosen(seed).len() == 2));
        assert_eq!(chosen(1), chosen(1));
        assert!((2..20).any(|seed| chosen(seed) != chosen(1)));
    }
}

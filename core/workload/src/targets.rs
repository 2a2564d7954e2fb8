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
    /// This many of them, chosen by the seed, each at times of its own.
    Count(u32),
    /// This share of them, chosen by the seed, each at times of its own.
    Some(f64),
    /// This share of them, chosen by the seed, all at the same times: a rack, a switch, a shared machine.
    Together(f64),
}

impl Targets {
    /// Returns the affected instances: in the listed order, otherwise in an order drawn for this fault. Shares are
    /// rounded to whole instances, at least one.
    pub(crate) fn chosen(&self, fault: Place) -> Vec<u32> {
        let count = match self {
            Targets::Only(instances) => return instances.clone(),
            Targets::Each => fault.instances,
            Targets::Count(count) => *count,
            Targets::Some(share) | Targets::Together(share) => {
                (share * f64::from(fault.instances)).round().max(1.0) as u32
            }
        };
        let rank = |instance: &u32| {
            (Random::of(fault.seed, [CHOICE, fault.index as u64, u64::from(*instance)]).bits(), *instance)
        };
        let mut instances: Vec<u32> = (0..fault.instances).collect();
        instances.sort_by_cached_key(rank);
        instances.truncate(count as usize);
        instances
    }

    /// Returns the name of the times of this instance: instances of one name share them.
    pub(crate) fn times_of(&self, instance: u32) -> u64 {
        match self {
            Targets::Together(_) => u64::MAX,
            Targets::Each | Targets::Only(_) | Targets::Count(_) | Targets::Some(_) => u64::from(instance),
        }
    }

    pub(crate) fn check(&self, fault: usize, instances: u32) -> Result<(), Error> {
        match self {
            Targets::Each => Ok(()),
            Targets::Only(named) => match named.iter().find(|instance| **instance >= instances) {
                Some(instance) => Err(Error::NoSuchInstance { fault, instance: *instance, instances }),
                None => Ok(()),
            },
            Targets::Count(count) if (1..=instances).contains(count) => Ok(()),
            Targets::Count(count) => {
                let value = f64::from(*count);
                Err(Error::BadFault {
                    fault,
                    name: "on.count",
                    value,
                    range: "from 1 to the number of instances",
                })
            }
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
            Targets::Some(1.0 / 9.0).chosen(place)
        };
        assert!((0..20).all(|seed| chosen(seed).len() == 2));
        assert_eq!(chosen(1), chosen(1));
        assert!((2..20).any(|seed| chosen(seed) != chosen(1)));
    }

    #[test]
    fn count_chooses_instances_in_pools_of_any_size() {
        for instances in [1, 3, 12, 50] {
            let place = Place { seed: 5, index: 0, instances };
            assert_eq!(Targets::Count(1).chosen(place).len(), 1);
            assert_eq!(Targets::Each.chosen(place).len(), instances as usize);
        }
        assert!(Targets::Count(3).check(0, 3).is_ok() && Targets::Count(4).check(0, 3).is_err());
        let place = Place { seed: 5, index: 0, instances: 9 };
        assert_eq!(Targets::Only(vec![7, 2]).chosen(place), [7, 2], "in the listed order");
    }
}

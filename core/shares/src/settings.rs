//! Settings of shares, with their checks.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use parm_durations::Whole;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Error, Terms};

/// The configured shares, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Settings(pub BTreeMap<String, ShareSettings>);

/// A share of the instances' time, such as that of a tenant. Requests are charged to the share of their key, of their parameter
/// `parm_share`, or of their model. Configure the same shares at frontends and workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShareSettings {
    /// Weight of the share for weighted fair queueing. Other shares use what it leaves. Default 1.
    pub weight: NonZeroU16,
    /// Instances of this process that the share gets within one service time, whatever the load. Other shares use them
    /// meanwhile, but redundant jobs do not. Default 0.
    // At a frontend they are those inside of it, and those of servers without tokens.
    #[serde(with = "Whole::<0, 1_000_000>")]
    pub reserved: u32,
    /// Models whose requests are charged to the share, unless a key or the request names another. Default: none.
    pub models: Vec<String>,
    /// Names of keys whose requests are charged to the share, and no others. Workers ignore it. Default: none, every caller may
    /// use the share.
    pub keys: Vec<String>,
}

/// The longest name, in bytes: names are in metrics and in every message to a worker.
const LONGEST_NAME: usize = 64;

impl Settings {
    /// Rejects invalid names, and models or keys in two shares.
    pub fn check(&self) -> Result<(), Error> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        for name in self.0.keys() {
            if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
                return Err(Error::BadName { name: name.clone() });
            }
        }
        self.each_in_one("model", |share| &share.models)?;
        self.each_in_one("key", |share| &share.keys)
    }

    fn each_in_one(
        &self,
        what: &'static str,
        of: impl Fn(&ShareSettings) -> &Vec<String>,
    ) -> Result<(), Error> {
        let mut first = BTreeMap::new();
        for (share, settings) in &self.0 {
            for name in of(settings) {
                if let Some(one) = first.insert(name, share) {
                    let (name, one, other) = (name.clone(), one.clone(), share.clone());
                    return Err(Error::Twice { what, name, one, other });
                }
            }
        }
        Ok(())
    }

    /// Rejects reservations of more instances than exist.
    pub fn check_instances(&self, instances: usize) -> Result<(), Error> {
        let reserved: u64 = self.0.values().map(|share| u64::from(share.reserved)).sum();
        if reserved > instances as u64 {
            return Err(Error::TooManyReserved { reserved, instances });
        }
        Ok(())
    }

    /// Rejects models that are not served.
    pub fn check_models(&self, served: impl Fn(&str) -> bool) -> Result<(), Error> {
        let mut named = self.0.iter().flat_map(|(share, own)| own.models.iter().map(move |one| (share, one)));
        named.find(|(_, model)| !served(model)).map_or(Ok(()), |(share, model)| {
            Err(Error::UnknownModel { share: share.clone(), model: model.clone() })
        })
    }

    /// Rejects keys that the key file does not contain; `None` if there is none.
    pub fn check_keys(&self, known: Option<&BTreeSet<String>>) -> Result<(), Error> {
        for (share, settings) in &self.0 {
            for key in &settings.keys {
                let (share, key) = (share.clone(), key.clone());
                match known {
                    None => return Err(Error::NoKeyFile { share, key }),
                    Some(known) if !known.contains(&key) => return Err(Error::UnknownKey { share, key }),
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }
}

impl ShareSettings {
    /// Weight and reservation of the share.
    pub fn terms(&self) -> Terms {
        Terms { weight: self.weight.get().into(), reserved: self.reserved }
    }
}

impl Default for ShareSettings {
    fn default() -> Self {
        Self { weight: NonZeroU16::MIN, reserved: 0, models: Vec::new(), keys: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(shares: &[(&str, u32, &[&str], &[&str])]) -> Settings {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let share = |(name, reserved, models, keys): &(&str, u32, &[&str], &[&str])| {
            let (models, keys) = (owned(models), owned(keys));
            ((*name).to_owned(), ShareSettings { reserved: *reserved, models, keys, ..Default::default() })
        };
        Settings(shares.iter().map(share).collect())
    }

    #[test]
    fn contradictory_shares_are_rejected_with_their_names() {
        let good = shares(&[("a", 1, &["m"], &["k"]), ("b", 2, &["n"], &[])]);
        assert_eq!(good.check(), Ok(()));
        let told = |settings: Settings| settings.check().unwrap_err().to_string();
        let twice = told(shares(&[("a", 0, &["m"], &[]), ("b", 0, &["m"], &[])]));
        assert!(["'m'", "'a'", "'b'", "model"].iter().all(|word| twice.contains(word)), "{twice}");
        let twice = told(shares(&[("a", 0, &[], &["k"]), ("b", 0, &[], &["k"])]));
        assert!(["'k'", "'a'", "'b'", "key"].iter().all(|word| twice.contains(word)), "{twice}");
        for name in ["", "a b", "model:m", &"x".repeat(65)] {
            assert!(told(shares(&[(name, 0, &[], &[])])).contains("letters"), "{name}");
        }
    }

    #[test]
    fn unknown_models_keys_and_instances_are_rejected() {
        let good = shares(&[("a", 1, &["m"], &["k"]), ("b", 2, &[], &[])]);
        assert_eq!(good.check_instances(3), Ok(()));
        assert_eq!(good.check_instances(2), Err(Error::TooManyReserved { reserved: 3, instances: 2 }));
        assert_eq!(good.check_models(|model| model == "m"), Ok(()));
        assert!(matches!(good.check_models(|_| false), Err(Error::UnknownModel { .. })));
        assert_eq!(good.check_keys(Some(&BTreeSet::from(["k".to_owned()]))), Ok(()));
        assert!(matches!(good.check_keys(Some(&BTreeSet::new())), Err(Error::UnknownKey { .. })));
        assert!(matches!(good.check_keys(None), Err(Error::NoKeyFile { .. })));
    }
}

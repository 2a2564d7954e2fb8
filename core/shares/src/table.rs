//! Table of configured shares that finds the share a request is charged to.
//!
//! The order is: the share of the request's key, the share it names, the share of its model, the model's own share. A
//! key comes first, because clients of a small share could otherwise name a large one. A share with keys is closed to
//! other clients, because they could otherwise use it up.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Refusal, Settings, ShareSettings};

/// Configured shares, indexed for lookup. A share's number is its index in the order of names.
#[derive(Clone, Debug, Default)]
pub struct Table {
    shares: Vec<(Arc<str>, ShareSettings)>,
    models: BTreeMap<String, u32>,
    keys: BTreeMap<String, u32>,
}

/// Properties of a request that decide its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// Name of the client's key.
    pub key: Option<&'a str>,
    /// Share that the request names.
    pub share: Option<&'a str>,
}

impl Table {
    /// Builds the table from settings.
    pub fn new(settings: &Settings) -> Self {
        let shares: Vec<(Arc<str>, ShareSettings)> =
            settings.0.iter().map(|(name, own)| (name.as_str().into(), own.clone())).collect();
        let index = |of: fn(&ShareSettings) -> &Vec<String>| {
            let each = shares.iter().zip(0..);
            each.flat_map(|((_, own), share)| of(own).iter().map(move |name| (name.clone(), share))).collect()
        };
        let (models, keys) = (index(|own| &own.models), index(|own| &own.keys));
        Self { shares, models, keys }
    }

    /// Returns the share that a request is charged to, `None` for its model's own, or why it may not use the named one.
    pub fn charged(&self, asked: Asked<'_>) -> Result<Option<u32>, Refusal> {
        let tied = asked.key.and_then(|key| Some((key, *self.keys.get(key)?)));
        let named = match asked.share {
            None => None,
            Some(name) => Some(self.find(name).ok_or_else(|| self.unknown(name))?),
        };
        match (tied, named) {
            (Some((key, own)), Some(named)) if own != named => {
                let [own, asked] = [own, named].map(|share| self.name(share).to_string());
                Err(Refusal::Tied { key: key.to_owned(), own, asked })
            }
            (Some((_, own)), _) => Ok(Some(own)),
            (None, Some(named)) if !self.shares[named as usize].1.keys.is_empty() => {
                Err(Refusal::Closed { asked: self.name(named).to_string() })
            }
            (None, Some(named)) => Ok(Some(named)),
            (None, None) => Ok(self.of_model(asked.model)),
        }
    }

    /// Returns the share that lists a model.
    pub fn of_model(&self, model: &str) -> Option<u32> {
        self.models.get(model).copied()
    }

    /// Returns the share with this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        let at = self.shares.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        u32::try_from(at).ok()
    }

    /// Returns a share's name.
    pub fn name(&self, share: u32) -> &Arc<str> {
        &self.shares[share as usize].0
    }

    /// Iterates over shares with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<str>, &ShareSettings)> {
        self.shares.iter().zip(0..).map(|((name, settings), share)| (share, name, settings))
    }

    /// Whether no shares are configured.
    pub fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    fn unknown(&self, asked: &str) -> Refusal {
        let known = self.shares.iter().map(|(name, _)| name.to_string()).collect();
        Refusal::Unknown { asked: asked.to_owned(), known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let share = |models: &[&str], keys: &[&str]| {
            let [models, keys] =
                [models, keys].map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            ShareSettings { models, keys, ..ShareSettings::default() }
        };
        let shares = [
            ("open", share(&[], &[])),
            ("closed", share(&[], &["boss", "chief"])),
            ("heavy", share(&["m"], &[])),
        ];
        Table::new(&Settings(shares.map(|(name, share)| (name.to_owned(), share)).into()))
    }

    fn charged(model: &str, key: Option<&str>, share: Option<&str>) -> Result<Option<String>, Refusal> {
        let table = table();
        let share = table.charged(Asked { model, key, share })?;
        Ok(share.map(|share| table.name(share).to_string()))
    }

    #[test]
    fn key_decides_before_named_share_and_model() {
        for (model, key, share, wanted) in [
            ("n", None, None, None),
            ("m", None, None, Some("heavy")),
            ("m", None, Some("open"), Some("open")),
            ("m", Some("boss"), None, Some("closed")),
            ("n", Some("chief"), Some("closed"), Some("closed")),
            ("n", Some("stranger"), None, None),
            ("n", Some("stranger"), Some("open"), Some("open")),
        ] {
            let wanted = Ok(wanted.map(str::to_owned));
            assert_eq!(charged(model, key, share), wanted, "{model} {key:?} {share:?}");
        }
    }

    #[test]
    fn request_is_rejected_when_its_key_may_not_use_share() {
        let unknown = charged("m", None, Some("gold")).unwrap_err().to_string();
        assert!(unknown.contains("'gold'") && unknown.contains("open"), "{unknown}");
        let tied = charged("m", Some("boss"), Some("open")).unwrap_err();
        assert_eq!(tied.to_string().matches("'boss'").count(), 1, "{tied}");
        assert!(matches!(tied, Refusal::Tied { own, asked, .. } if (&*own, &*asked) == ("closed", "open")));
        for key in [None, Some("stranger")] {
            assert_eq!(charged("m", key, Some("closed")), Err(Refusal::Closed { asked: "closed".into() }));
        }
    }
}

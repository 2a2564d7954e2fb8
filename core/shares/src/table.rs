//! Whose share a request is charged to: its key's; or the one that it names; or its model's; or its model's own.
//!
//! A key comes first, and cannot be talked out of its share: who has a small one would name a large one. A share that names
//! keys is theirs alone: who has none would use it up.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Refusal, Settings, ShareSettings};

/// The shares that are set up, ready to be looked up. A share's number is its place among their names.
#[derive(Clone, Debug, Default)]
pub struct Table {
    shares: Vec<(Arc<str>, ShareSettings)>,
    models: BTreeMap<String, u32>,
    keys: BTreeMap<String, u32>,
}

/// What a request says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The model.
    pub model: &'a str,
    /// The name of the key that it came with.
    pub key: Option<&'a str>,
    /// The share that it names.
    pub share: Option<&'a str>,
}

impl Table {
    /// The shares of these settings.
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

    /// The share that a request is charged to, if it is not its model's own; or why it may not be.
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

    /// The share that a model is in.
    pub fn of_model(&self, model: &str) -> Option<u32> {
        self.models.get(model).copied()
    }

    /// The share of this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        let at = self.shares.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        u32::try_from(at).ok()
    }

    /// A share's name.
    pub fn name(&self, share: u32) -> &Arc<str> {
        &self.shares[share as usize].0
    }

    /// The shares, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<str>, &ShareSettings)> {
        self.shares.iter().zip(0..).map(|((name, settings), share)| (share, name, settings))
    }

    /// Whether none are set up.
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
    fn a_key_comes_first_then_what_is_asked_for_then_the_model() {
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
    fn nobody_is_charged_to_a_share_that_is_not_theirs() {
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

//! Settings in a source's text behind `?`; an unknown one is an error.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::str::FromStr;

use super::Unusable;

/// Settings by name. Reading one removes it; a remaining one is an error, since it may be misspelt.
pub(super) struct Options {
    given: RefCell<BTreeMap<String, String>>,
    known: RefCell<Vec<&'static str>>,
}

impl Options {
    /// Parses `name=value&name=value`.
    pub(super) fn parse(text: &str) -> Result<Self, Unusable> {
        let mut given = BTreeMap::new();
        for setting in text.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, "yes"));
            if given.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(Unusable::Setting {
                    name: name.into(),
                    message: "it is given twice: give it once".into(),
                });
            }
        }
        Ok(Self { given: RefCell::new(given), known: RefCell::default() })
    }

    /// The value of a setting, if it is given.
    pub(super) fn get<T: FromStr>(&self, name: &'static str, wanted: &str) -> Result<Option<T>, Unusable> {
        self.text(name)
            .map(|text| {
                let message = format!("'{text}' is not {wanted}");
                text.parse().map_err(|_| Unusable::Setting { name: name.into(), message })
            })
            .transpose()
    }

    /// The text of a setting, if it is given.
    pub(super) fn text(&self, name: &'static str) -> Option<String> {
        self.known.borrow_mut().push(name);
        self.given.borrow_mut().remove(name)
    }

    /// Two numbers with `between` between them, if given.
    pub(super) fn pair(&self, name: &'static str, between: &str) -> Result<Option<(usize, usize)>, Unusable> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let pair = text.split_once(between).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let message = format!("'{text}' is not of the form 1{between}2");
        pair.map(Some).ok_or(Unusable::Setting { name: name.into(), message })
    }

    /// Rejects settings that were not read.
    pub(super) fn finish(self) -> Result<(), Unusable> {
        match self.given.into_inner().into_keys().next() {
            None => Ok(()),
            Some(name) => {
                let message =
                    format!("unknown for this kind of source: use {}", self.known.into_inner().join(", "));
                Err(Unusable::Setting { name, message })
            }
        }
    }
}

//! Who pays for a request with a share of the instances' time.

use std::sync::Arc;

use parm_protocol::fleet::OWN_SHARE;
use parm_shares::Table;

/// A share, as instances know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Payer {
    /// One that is set up.
    Share(Arc<str>),
    /// The model's own.
    Model(Arc<str>),
}

impl Payer {
    /// Who pays for a model's requests that say nothing.
    pub(crate) fn of_model(model: &str, table: &Table) -> Self {
        match table.of_model(model) {
            Some(share) => Self::Share(table.name(share).clone()),
            None => Self::Model(model.into()),
        }
    }

    /// Who is named, if anybody here is called so; `serves` says which models there are. Frontends may have shares that are not
    /// set up here, and clients could name anything: nobody gets an account by being named.
    pub(crate) fn named(share: &str, table: &Table, serves: impl Fn(&str) -> bool) -> Option<Self> {
        match share.strip_prefix(OWN_SHARE) {
            Some(model) => serves(model).then(|| Self::of_model(model, table)),
            None => table.find(share).map(|share| Self::Share(table.name(share).clone())),
        }
    }

    /// Share and model, as metrics call them.
    pub(crate) fn labels(&self) -> [&str; 2] {
        match self {
            Self::Share(name) => [name, ""],
            Self::Model(name) => ["", name],
        }
    }
}

#[cfg(test)]
mod tests {
    use parm_shares::{Settings, ShareSettings};

    use super::*;

    #[test]
    fn who_is_not_known_gets_no_account() {
        let own = ShareSettings { models: vec!["m".into()], ..ShareSettings::default() };
        let table = Table::new(&Settings([("gold".to_owned(), own)].into()));
        let named = |share| Payer::named(share, &table, |model| ["m", "n"].contains(&model));
        assert_eq!(named("gold"), Some(Payer::Share("gold".into())));
        assert_eq!(named("model:n"), Some(Payer::Model("n".into())));
        assert_eq!(named("model:m"), Some(Payer::Share("gold".into())), "its model is in a share");
        assert_eq!([named("silver"), named("model:x"), named("n")], [None, None, None]);
    }
}

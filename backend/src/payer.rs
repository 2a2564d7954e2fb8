//! The share of instance time to which a request is charged.

use std::sync::Arc;

use parm_protocol::fleet::OWN_SHARE;
use parm_shares::Table;

/// A share, as instances identify it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Payer {
    /// A configured share.
    Share(Arc<str>),
    /// The model's own share.
    Model(Arc<str>),
}

impl Payer {
    /// The share of a model's requests that name none.
    pub(crate) fn of_model(model: &str, table: &Table) -> Self {
        match table.of_model(model) {
            Some(share) => Self::Share(table.name(share).clone()),
            None => Self::Model(model.into()),
        }
    }

    /// The share with this name, if it is configured or is that of a model for which `serves` returns true. Clients can
    /// send any name, so an unknown one gets no account.
    pub(crate) fn named(share: &str, table: &Table, serves: impl Fn(&str) -> bool) -> Option<Self> {
        match share.strip_prefix(OWN_SHARE) {
            Some(model) => serves(model).then(|| Self::of_model(model, table)),
            None => table.find(share).map(|share| Self::Share(table.name(share).clone())),
        }
    }

    /// Share and model, as labels of metrics.
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
    fn unknown_share_gets_no_account() {
        let own = ShareSettings { models: vec!["m".into()], ..ShareSettings::default() };
        let table = Table::new(&Settings([("gold".to_owned(), own)].into()));
        let named = |share| Payer::named(share, &table, |model| ["m", "n"].contains(&model));
        assert_eq!(named("gold"), Some(Payer::Share("gold".into())));
        assert_eq!(named("model:n"), Some(Payer::Model("n".into())));
        assert_eq!(named("model:m"), Some(Payer::Share("gold".into())), "its model is in a share");
        assert_eq!([named("silver"), named("model:x"), named("n")], [None, None, None]);
    }
}

//! Keeps a model that one list of an instance's models misses.
//!
//! Problem: a server that reads its repository anew, or a proxy in front of it, may return a list without a model that is there. An
//! instance that loses the model for a look gets none of its queries until the next one, and where no other instance serves the
//! model its queries fail.
//!
//! Choice: a model is gone once two looks in a row miss it, as members of DNS answers and folders are ([`Absence`]). A look is
//! believed at once where something else says the same: the list names the model as not ready or in another version, the
//! instance has refused a job for it, or an operator has unloaded it.
//!
//! Rejected: waiting for a second look always. After an update queries would go to the version that is gone until then, each
//! of them to be refused and tried elsewhere.

use std::collections::BTreeSet;

use parm_protocol::{Absence, ModelRef};

use super::describe::Offer;

/// The models that the last look at an instance missed.
#[derive(Debug, Default)]
pub(super) struct Missed(Absence<ModelRef>);

impl Missed {
    /// Takes in a look. Models of `before` that it is the first to miss stay in the offer; those in `disowned` do not.
    pub(super) fn look(&mut self, before: &Offer, now: &mut Offer, disowned: &BTreeSet<String>) {
        let stated: BTreeSet<&str> = now.models.iter().map(|own| own.model.name.as_str()).collect();
        let stated = |name: &str| {
            stated.contains(name)
                || now.absent.iter().any(|absent| absent.name == name)
                || disowned.contains(name)
        };
        let missing: BTreeSet<ModelRef> = before
            .models
            .iter()
            .map(|own| &own.model)
            .filter(|model| !stated(&model.name))
            .cloned()
            .collect();
        let known: Vec<&ModelRef> = before.models.iter().map(|own| &own.model).collect();
        // An empty list counts as well: a server may have unloaded all that it had.
        let gone = self.0.look(known.iter().copied(), known.len(), |model| !missing.contains(model));
        for (place, own) in before.models.iter().enumerate() {
            if missing.contains(&own.model) && !gone.contains(&own.model) {
                now.models.insert(place.min(now.models.len()), own.clone());
            }
        }
    }

    /// Whether the next look decides about a model.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

#[cfg(test)]
mod tests {
    use parm_protocol::{ModelIndex, ModelMetadata};

    use super::*;
    use crate::serve::Description;

    fn offer(models: &[&str]) -> Offer {
        let described = |named: &&str| {
            let (name, version) = named.split_at(1);
            let metadata = ModelMetadata {
                name: name.into(),
                versions: vec![version.into()],
                platform: "test".into(),
                inputs: Vec::new(),
                outputs: Vec::new(),
            };
            let model = ModelRef { name: name.into(), version: Some(version.into()) };
            Description { model, metadata, config: None }
        };
        Offer { models: models.iter().map(described).collect(), ..Offer::default() }
    }

    fn names(offer: &Offer) -> String {
        let named = |own: &Description| {
            format!("{}{}", own.model.name, own.model.version.clone().unwrap_or_default())
        };
        offer.models.iter().map(named).collect::<Vec<_>>().join(" ")
    }

    /// Takes in looks one after the other; returns what the instance counts as serving after each.
    fn looks(first: &[&str], looks: &[&[&str]]) -> Vec<String> {
        let (mut missed, mut known) = (Missed::default(), offer(first));
        let mut take = |models: &&[&str]| {
            let mut now = offer(models);
            missed.look(&known, &mut now, &BTreeSet::new());
            known = now;
            names(&known)
        };
        looks.iter().map(&mut take).collect()
    }

    #[test]
    fn model_stays_until_two_looks_in_a_row_miss_it() {
        let found = looks(&["a1", "b1"], &[&["b1"], &["a1", "b1"], &["b1"], &["b1"], &["b1"]]);
        assert_eq!(found, ["a1 b1", "a1 b1", "a1 b1", "b1", "b1"]);
        assert_eq!(looks(&["a1"], &[&[], &[]]), ["a1", ""], "an empty list counts as well");
    }

    #[test]
    fn replaced_version_is_gone_at_once() {
        assert_eq!(looks(&["a1", "b1"], &[&["a2", "b1"]]), ["a2 b1"]);
    }

    #[test]
    fn model_is_gone_at_once_when_the_server_says_so() {
        let (mut missed, known) = (Missed::default(), offer(&["a1", "b1"]));
        let mut now = offer(&["b1"]);
        now.absent.push(ModelIndex {
            name: "a".into(),
            version: "1".into(),
            state: "UNAVAILABLE".into(),
            reason: "unloaded".into(),
        });
        missed.look(&known, &mut now, &BTreeSet::new());
        assert_eq!((names(&now).as_str(), missed.is_open()), ("b1", false));
        let mut now = offer(&["b1"]);
        missed.look(&known, &mut now, &BTreeSet::from(["a".to_owned()]));
        assert_eq!((names(&now).as_str(), missed.is_open()), ("b1", false), "it refused a job");
    }
}

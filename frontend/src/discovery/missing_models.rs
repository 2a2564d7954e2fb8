//! Keeps a model that a single list of an instance's models misses.
//!
//! Problem: a server that is rereading its repository, or a proxy in front of it, may return an incomplete list. The
//! instance then gets no queries for the missing model until the next list. If no other instance serves the model, its
//! queries fail.
//!
//! Choice: a model is gone once two lists in a row miss it, as with DNS answers and folders ([`Absence`]). A single
//! list counts if there is other evidence: it has the model as not ready or in another version, the instance has
//! rejected a job for it, or an operator has unloaded it.
//!
//! Rejected: always waiting for a second list. After an update queries would be sent to the removed version until then,
//! and each of them would be rejected and retried.

use std::collections::BTreeSet;

use parm_protocol::{Absence, ModelRef};

use super::description::Offer;

/// Models that the last list of an instance missed.
#[derive(Debug, Default)]
pub(super) struct MissingModels(Absence<ModelRef>);

impl MissingModels {
    /// Processes a list. Models of `before` that it is the first to miss stay in the offer, unless they are `disowned`.
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
        // An empty list counts too: a server may have unloaded all its models.
        let gone = self.0.look(known.iter().copied(), known.len(), |model| !missing.contains(model));
        for (place, own) in before.models.iter().enumerate() {
            if missing.contains(&own.model) && !gone.contains(&own.model) {
                now.models.insert(place.min(now.models.len()), own.clone());
            }
        }
    }

    /// Whether the next list decides about a model.
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

    /// Processes lists one after the other; returns the instance's models after each.
    fn looks(first: &[&str], looks: &[&[&str]]) -> Vec<String> {
        let (mut missed, mut known) = (MissingModels::default(), offer(first));
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
        assert_eq!(looks(&["a1"], &[&[], &[]]), ["a1", ""], "an empty list counts too");
    }

    #[test]
    fn replaced_version_is_gone_at_once() {
        assert_eq!(looks(&["a1", "b1"], &[&["a2", "b1"]]), ["a2 b1"]);
    }

    #[test]
    fn model_is_gone_at_once_when_the_server_says_so() {
        let (mut missed, known) = (MissingModels::default(), offer(&["a1", "b1"]));
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
        assert_eq!((names(&now).as_str(), missed.is_open()), ("b1", false), "the instance rejected a job");
    }
}

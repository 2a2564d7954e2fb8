//! Concurrent changes of settings: the result must equal that of some order of the changes.

use std::collections::BTreeMap;

use parm_settings::PoolSettings;
use serde_json::Value;

use crate::admin::{self, merged};
use crate::run::Stage;
use crate::schedule::Model;

type Patch = (Option<u8>, Value);
/// Default settings, and those of single models.
type Settings = (PoolSettings, BTreeMap<String, PoolSettings>);

impl Stage {
    /// Sends patches at the same moment, and compares the settings with each order of the accepted ones.
    pub(crate) async fn change(&self, patches: Vec<Patch>) {
        let before = self.admin.settings().await;
        let sent: Vec<_> = patches
            .into_iter()
            .enumerate()
            .map(|(place, (model, patch))| {
                let admin = self.admin.clone();
                tokio::spawn(async move {
                    // Not always in the order in which they were sent.
                    for _ in 0..patch.to_string().len() % (place + 2) {
                        tokio::task::yield_now().await;
                    }
                    admin.patch(model, &patch).await.then_some((model, patch))
                })
            })
            .collect();
        let mut accepted = Vec::new();
        for sent in sent {
            accepted.extend(sent.await.expect("a change of settings does not panic"));
        }
        let after = self.admin.settings().await;
        let mut truth = self.world.0.lock();
        let found = settings(&after);
        let mut orders = orders(&accepted).into_iter();
        if !orders.any(|order| found.is_some() && settings(&after_all(&before, &order)) == found) {
            truth.breach("settings converge", || format!("{after}, from {before} by {accepted:?}"));
        }
        self.stands(&mut truth, &after, false);
        admin::note(&mut truth, &after, self.models);
    }
}

/// Requested settings; the effective ones also depend on models, which may arrive at any time.
fn settings(shown: &Value) -> Option<Settings> {
    let read = |value: &Value| serde_json::from_value(value.clone()).ok();
    let models = shown["models"].as_object()?.iter();
    let models = models.map(|(name, own)| Some((name.clone(), read(own)?)));
    Some((read(&shown["dispatch"])?, models.collect::<Option<_>>()?))
}

fn after_all(before: &Value, patches: &[Patch]) -> Value {
    let mut settings = before.clone();
    for (model, patch) in patches {
        match model.map(|model| Model::Asked(model).name()) {
            None => settings["dispatch"] = merged(&settings["dispatch"], patch),
            Some(name) => {
                let own = &settings["models"][&name];
                let own = if own.is_object() { own } else { &settings["dispatch"] };
                settings["models"][&name] = merged(own, patch);
            }
        }
    }
    settings
}

/// All orders of a few patches.
fn orders(patches: &[Patch]) -> Vec<Vec<Patch>> {
    if patches.is_empty() {
        return vec![Vec::new()];
    }
    let begun_with = |first: usize| {
        let mut others = patches.to_vec();
        let first = others.remove(first);
        orders(&others).into_iter().map(move |rest| [vec![first.clone()], rest].concat())
    };
    (0..patches.len()).flat_map(begun_with).collect()
}

//! Checks the names of models in settings, where this process runs the models and so knows them.

use std::collections::BTreeSet;

use super::Finding;
use crate::settings::Settings;
use crate::unserved::named;

/// Number of known models that are listed.
const LISTED: usize = 5;

/// Settings that name a model which the repository does not have. They would have no effect.
pub(super) fn look(settings: &Settings) -> Vec<Finding> {
    let (frontend, backend) = (&settings.frontend, &settings.backend);
    let Some(known) = known(settings) else { return Vec::new() };
    let listed = known.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if known.len() > LISTED { ", ..." } else { "" };
    // Other servers have other models, and routes are named like models.
    let is_alone =
        frontend.workers.is_empty() && frontend.workers_file.is_none() && frontend.upstreams.urls.is_empty();
    let weighed: Vec<String> = backend.weights.keys().cloned().collect();
    let listed_there = [
        ("backend.load", &backend.load),
        ("backend.batched", &backend.batched),
        ("backend.unbatched", &backend.unbatched),
        ("backend.weights", &weighed),
    ];
    let there =
        listed_there.into_iter().flat_map(|(setting, names)| names.iter().map(move |name| (setting, name)));
    let pools = frontend.models.values().chain([&frontend.dispatch]);
    let cheaper = pools.flat_map(|pool| {
        let stand_in = pool.stand_in.model.iter().map(|name| ("stand_in.model", name));
        stand_in.chain(pool.backup_model.iter().map(|name| ("backup_model", name)))
    });
    named(frontend)
        .chain(cheaper)
        .filter(|_| is_alone)
        .chain(there)
        .filter(|(_, name)| !known.contains(*name))
        .map(|(setting, name)| {
            let what =
                format!("{setting}: the model repository has no model '{name}': it has {listed}{more}");
            Finding::fails(what, "correct the name, or put the model into the repository")
        })
        .collect()
}

/// The models that this process can serve; `None` if it serves none or cannot know them.
fn known(settings: &Settings) -> Option<BTreeSet<String>> {
    settings.known_models().ok().filter(|known| settings.embeds() && !known.is_empty())
}

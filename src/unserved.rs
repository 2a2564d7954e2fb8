//! Names settings for models that no instance serves: they have no effect.

use std::time::Duration;

use parm_frontend::{Config, Frontend};
use parm_protocol::InferenceService;

/// Interval of looks at a frontend that is not ready.
const INTERVAL: Duration = Duration::from_millis(100);

/// Time in which the other servers list their models, once one has.
const MOMENT: Duration = Duration::from_secs(1);

/// Waits until the frontend is ready, and a moment longer.
pub async fn until_listed(frontend: &Frontend) {
    while !frontend.is_ready() {
        tokio::time::sleep(INTERVAL).await;
    }
    tokio::time::sleep(MOMENT).await;
}

/// The frontend's settings that name models, each with a model.
fn named(config: &Config) -> impl Iterator<Item = (&'static str, &String)> {
    let models = config.models.keys().map(|name| ("frontend.models", name));
    models.chain(config.unbatched.iter().map(|name| ("frontend.unbatched", name)))
}

/// Warns of such settings. A model may come later.
pub fn tell(frontend: &Frontend, config: &Config) {
    let unserved = frontend.unserved(named(config).map(|(_, name)| name));
    let written = |(setting, name): (&str, &String)| match setting {
        "frontend.models" => format!("{setting}.{name}"),
        _ => format!("{setting} = {name}"),
    };
    let named: Vec<String> = named(config).filter(|(_, name)| unserved.contains(name)).map(written).collect();
    if !named.is_empty() {
        tracing::warn!(
            settings = named.join(", "),
            "no instance serves these models, so their settings have no effect: check the names"
        );
    }
}

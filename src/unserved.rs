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

/// Warns of such settings. A model may come later.
pub fn tell(frontend: &Frontend, config: &Config) {
    let models = frontend.unserved(config.models.keys()).into_iter();
    let unbatched = frontend.unserved(config.unbatched.iter()).into_iter();
    let models = models.map(|name| format!("frontend.models.{name}"));
    let named: Vec<String> =
        models.chain(unbatched.map(|name| format!("frontend.unbatched = {name}"))).collect();
    if !named.is_empty() {
        tracing::warn!(
            settings = named.join(", "),
            "no instance serves these models, so their settings have no effect: check the names"
        );
    }
}

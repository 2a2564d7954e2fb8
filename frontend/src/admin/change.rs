//! Describes changes of settings in words, for the log and the event stream.

use parm_settings::PoolSettings;
use parm_transport::keys::Caller;
use serde_json::json;

use super::differences::{Difference, differences};
use crate::console::{Happening, Kind};
use crate::serve::Frontend;

/// Reports a change of one model's settings, or of the default ones. Unchanged settings are not reported.
pub(super) fn tell(
    frontend: &Frontend,
    model: Option<&str>,
    before: &PoolSettings,
    after: &PoolSettings,
    caller: &Caller,
) {
    let fields = differences(&json!(before), &json!(after));
    let changed = fields.iter().map(Difference::to_string).collect::<Vec<_>>().join(", ");
    let by = caller.name();
    tracing::info!(model = model.unwrap_or("*"), %changed, by = by.as_deref().unwrap_or("-"), "dispatch settings changed");
    if fields.is_empty() {
        return;
    }
    let pools = model.map(|name| frontend.core.catalog.versions(name)).unwrap_or_default();
    let model = pools.last().map(|pool| pool.id);
    let what = Happening { instance: None, model, text: changed, by };
    frontend.core.driver.tell(Kind::Settings, what);
}

//! How the instances' time is shared, as this frontend gave it.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::serve::Frontend;

/// Shares that are set up, and models' own that had some time.
pub(super) async fn show(State(frontend): State<Frontend>) -> Json<Value> {
    let shares = frontend.core.shared();
    let share = |(named, account): &([String; 2], parm_dispatch::Account)| {
        let [share, model] = named;
        json!({
            "share": (!share.is_empty()).then_some(share),
            "model": (!model.is_empty()).then_some(model),
            "weight": account.terms.weight,
            "reserved": account.terms.reserved,
            "used_s": account.used,
            "entitled_s": account.entitled,
            "waiting": account.waiting,
            "running": account.running,
        })
    };
    Json(Value::Array(shares.iter().map(share).collect()))
}

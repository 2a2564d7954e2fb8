//! Usage of instance time by share, as this frontend assigned it.

use axum::Json;
use axum::extract::State;
use parm_shares::Account;
use serde_json::{Value, json};

use crate::serve::Frontend;

/// Lists configured shares, and own shares of models that used time.
pub(super) async fn show(State(frontend): State<Frontend>) -> Json<Value> {
    let shares = frontend.core.shared();
    let share = |(named, account): &([String; 2], Account)| {
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

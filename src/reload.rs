//! Handles SIGHUP, which never ends the process.
//!
//! `parm serve` reads its configuration again. Dispatch settings apply at once, as with `parm ctl set`, whose changes they
//! replace. One line names the settings that need a restart.

use parm_frontend::Frontend;
use parm_frontend::admin::differences;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::Serve;
use crate::settings::{Invalid, Settings};

/// The signals. From here on they no longer end the process.
pub fn signals() -> anyhow::Result<Signal> {
    Ok(signal(SignalKind::hangup())?)
}

/// Reads the configuration of `parm serve` again. `known` is the last valid one.
pub fn reload(flags: &Serve, frontend: &Frontend, known: &mut Settings) {
    let new = match Settings::for_serve(flags) {
        Ok(new) => new,
        Err(Invalid(error)) => {
            let error = format!("{error:#}");
            tracing::warn!(error, "SIGHUP: the configuration is invalid: nothing changed");
            return;
        }
    };
    let (dispatch, models) = (new.frontend.dispatch.clone(), new.frontend.models.clone());
    if let Err(error) = frontend.change_dispatch(dispatch, models) {
        tracing::warn!(%error, "SIGHUP: the dispatch settings cannot apply: nothing changed");
        return;
    }
    // Without the values: some are secret.
    let changed = differences(&json!(known), &json!(new)).into_iter().map(|field| field.path);
    let (applied, restart): (Vec<_>, Vec<_>) = changed
        .partition(|path| path.starts_with("frontend.dispatch") || path.starts_with("frontend.models"));
    if applied.is_empty() && restart.is_empty() {
        tracing::info!("SIGHUP: configuration read again: nothing changed");
    } else {
        tracing::info!(applied = applied.join(", "), "SIGHUP: configuration read again");
    }
    if !restart.is_empty() {
        tracing::warn!(settings = restart.join(", "), "SIGHUP: these changes need a restart");
    }
    // Named again by the next signal: they still differ from what runs.
    known.frontend.dispatch = new.frontend.dispatch;
    known.frontend.models = new.frontend.models;
}

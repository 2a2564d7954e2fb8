//! Handles SIGHUP, which never ends the process.
//!
//! `parm serve` reads its configuration again. Dispatch settings that differ from those read before apply at once; changes by
//! `parm ctl set` to others stay. So do servers that were added to or removed from a list. One line names live changes that the file replaces, another the settings that need a restart, and
//! another those of models that no instance serves.

use std::path::PathBuf;
use std::time::Duration;

use parm_frontend::admin::differences;
use parm_frontend::discovery::Name;
use parm_frontend::discovery::kubernetes::Service;
use parm_frontend::{Config, Dispatch, Frontend, Reloaded, upstreams};
use parm_protocol::InferenceService;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::Serve;
use crate::settings::Settings;

/// The signals. From here on they no longer end the process.
pub fn signals() -> anyhow::Result<Signal> {
    Ok(signal(SignalKind::hangup())?)
}

/// Reads the configuration of `parm serve` again. `known` is the last valid one.
pub fn reload(flags: &Serve, frontend: &Frontend, known: &mut Settings) {
    // A pipe gives its text once: a second read is empty, or waits for a writer that never comes.
    let is_pipe = |path: &PathBuf| path.metadata().is_ok_and(|file| !file.is_file() && !file.is_dir());
    if flags.common.config.as_ref().is_some_and(is_pipe) {
        tracing::warn!(
            "SIGHUP: the configuration came from a pipe and cannot be read again: nothing changed"
        );
        return;
    }
    let new = match Settings::for_serve(flags) {
        Ok(new) => new,
        Err(error) => {
            let error = format!("{error:#}");
            tracing::warn!(error, "SIGHUP: the configuration is invalid: nothing changed");
            return;
        }
    };
    let Reloaded { mut applied, overridden } =
        match frontend.reload_dispatch(&dispatch(known), &dispatch(&new)) {
            Ok(reloaded) => reloaded,
            Err(error) => {
                tracing::warn!(%error, "SIGHUP: the dispatch settings cannot apply: nothing changed");
                return;
            }
        };
    // Without the values: some are secret.
    let changed = differences(&json!(known), &json!(new)).into_iter().map(|field| field.path);
    let mut restart: Vec<_> = changed
        .filter(|path| !path.starts_with("frontend.dispatch") && !path.starts_with("frontend.models"))
        .collect();
    let lists = [
        ("frontend.workers", known.frontend.workers.clone(), new.frontend.workers.clone()),
        ("frontend.upstreams.urls", upstream(known), upstream(&new)),
    ];
    for (path, before, now) in lists {
        if before != now && follows(frontend, &before, &now) {
            restart.retain(|own| own != path);
            applied.push(path.to_owned());
        }
    }
    if !applied.is_empty() {
        tracing::info!(applied = applied.join(", "), "SIGHUP: configuration read again");
    } else if restart.is_empty() {
        tracing::info!("SIGHUP: configuration read again: nothing changed");
    }
    if !overridden.is_empty() {
        tracing::warn!(
            settings = overridden.join(", "),
            "SIGHUP: the file replaces live changes of these settings"
        );
    }
    if !restart.is_empty() {
        tracing::warn!(settings = restart.join(", "), "SIGHUP: these changes need a restart");
    }
    tell_unserved(frontend, &new.frontend);
    // Named again by the next signal: they still differ from what runs.
    known.frontend.dispatch = new.frontend.dispatch;
    known.frontend.models = new.frontend.models;
    let is_live = |path: &str| !restart.iter().any(|own| own == path);
    if is_live("frontend.workers") {
        known.frontend.workers = new.frontend.workers;
    }
    if is_live("frontend.upstreams.urls") {
        known.frontend.upstreams.urls = new.frontend.upstreams.urls;
    }
}

/// Adds and removes the servers of a list that changed. False if this needs a restart: if names of several servers changed, or
/// the list was or becomes empty, which is more likely a mistake.
fn follows(frontend: &Frontend, before: &[String], now: &[String]) -> bool {
    let without = |all: &[String], other: &[String]| -> Vec<String> {
        all.iter().filter(|url| !other.contains(url)).cloned().collect()
    };
    let (added, removed) = (without(now, before), without(before, now));
    let is_name = |url: &String| Service::read(url).is_some() || Name::read(url).is_some();
    if before.is_empty() || now.is_empty() || added.iter().chain(&removed).any(is_name) {
        return false;
    }
    let done = frontend.replace_servers(&added, &removed);
    done.inspect_err(|error| tracing::warn!(%error, "SIGHUP: cannot add a server")).is_ok()
}

/// The addresses of upstream servers as the frontend knows them.
fn upstream(settings: &Settings) -> Vec<String> {
    settings.frontend.upstreams.urls.iter().map(|url| upstreams::address(url)).collect()
}

fn dispatch(settings: &Settings) -> Dispatch {
    (settings.frontend.dispatch.clone(), settings.frontend.models.clone())
}

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

/// Warns of settings for models that no instance serves: they have no effect. A model may come later.
pub fn tell_unserved(frontend: &Frontend, config: &Config) {
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

//! `parm serve`: runs a frontend over embedded instances, remote workers, or both.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use parm_backend::{Embedded, Metrics};
use parm_frontend::admin::Api;
use parm_frontend::discovery::Wire;
use parm_frontend::{Frontend, Timers};
use parm_protocol::InferenceService;
use parm_transport::server::{Page, Server};
use prometheus::Registry;
use tokio_util::sync::CancellationToken;

use crate::cli;
use crate::example::{self, Example};
use crate::nets::Engine;
use crate::settings::Settings;
use crate::{Failure, reload, runtime, shutdown};

/// Time for captures and the recording to be written at the end.
const LONGEST_WRITE: std::time::Duration = std::time::Duration::from_secs(10);

/// Time in which servers that are already running join, so that who waits for the readiness file can send requests.
const JOINING: std::time::Duration = std::time::Duration::from_secs(1);

/// Runs the command.
pub fn main(flags: &cli::Serve) -> Result<(), Failure> {
    let settings = Settings::for_serve(flags).map_err(Failure::Configuration)?;
    if runtime::dumped(&flags.common, &settings)? {
        return Ok(());
    }
    runtime::run(&settings, ("parm-serve", settings.embeds()), async {
        serve(flags, settings.clone(), shutdown::token()?).await
    })
}

/// Serves until `stop` is cancelled and accepted requests are answered.
pub async fn serve(
    flags: &cli::Serve,
    mut settings: Settings,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let mut hangups = reload::signals()?;
    let mut known = settings.clone();
    runtime::bound_connections(&mut settings.server);
    let tls = runtime::tls(&mut settings)?;
    let embeds = settings.embeds();
    let example = if settings.serves_example { Some(Example::of_serve()?) } else { None };
    if let Some(example) = &example {
        tracing::info!(
            models = example::MODELS,
            "no models, workers or upstream servers are named: serving the built-in example; name yours with --models \
             FOLDER, --worker URL or --upstream URL"
        );
        settings.backend.models = Some(example.models());
        settings.frontend.bundles.get_or_insert_with(|| example.models());
    }
    let drain_delay = settings.server.drain_delay;
    let connection_age = settings.server.max_connection_age;
    let wire = Wire::new(settings.frontend.client.clone());
    let wire = Arc::new(wire.with_name_servers(settings.frontend.instances.name_servers.clone()));
    let nets = Arc::new(Engine(settings.backend.engine.clone()));
    if let Some(folder) = &settings.frontend.capture.folder {
        let share = settings.frontend.capture.share.get();
        tracing::warn!(
            folder = %folder.display(),
            share,
            "a share of the clients' requests is stored in this folder unchanged: restrict access to it"
        );
    }
    let frontend =
        Frontend::start_with_nets(settings.frontend, wire, Timers::Precise, nets).map_err(configuration)?;
    let recording = frontend.record_to_file().await.map_err(configuration)?;
    let registry = Registry::new();
    let pages = (frontend.clone(), registry.clone(), tls.clone());
    let server = Server::bind(settings.server, Arc::new(frontend.clone()))
        .await
        .map_err(runtime::server_failure)?
        .with_tls(tls.clone())
        .with_page(Page::metrics(move || {
            pages.0.metrics() + &runtime::metrics_page(&pages.1) + &pages.2.metrics()
        }));
    let addresses = server.addresses();
    let closing = CancellationToken::new();
    let api = frontend.admin().guarded_by(server.keys()).with_tls(tls).with_connection_age(connection_age);
    let admin = admin(&frontend, api, &closing).await?;
    let mut serving = tokio::spawn(server.run(closing.clone()));

    if embeds {
        tracing::info!("loading models");
        tokio::select! {
            embedded = embed(&frontend, settings.backend, &registry, flags.hosting.exit_on_error) => embedded?,
            // A model that hangs in its first run must not keep the process from ending.
            () = stop.cancelled() => {
                tracing::info!("stopped before all models were loaded");
                return Ok(());
            }
            broken = frontend.broken() => return Err(Failure::Panicked(broken.into())),
        }
    }
    tokio::select! {
        () = until_settled(&frontend) => {}
        () = stop.cancelled() => {}
        broken = frontend.broken() => return Err(Failure::Panicked(broken.into())),
    }
    tracing::info!(http = %addresses.http, grpc = %addresses.grpc, metrics = %addresses.metrics, "serving");
    tokio::select! {
        () = until_ready(&frontend) => {}
        () = stop.cancelled() => {}
        () = tokio::time::sleep(JOINING) => {
            tracing::info!("no instance has joined yet: /v2/health/ready returns 503 until one does");
        }
    }
    runtime::announce(&flags.common, &addresses, admin)?;

    // A reload tells its own.
    let (at_start, mut is_told) = (Box::new(known.frontend.clone()), false);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = reload::until_listed(&frontend), if !is_told => {
                is_told = true;
                reload::tell_unserved(&frontend, &at_start);
            }
            Some(()) = hangups.recv() => reload::reload(flags, &frontend, &mut known),
            broken = frontend.broken() => return Err(Failure::Panicked(broken.into())),
            ended = &mut serving => {
                ended.context("the server task failed")?;
                return Err(anyhow::Error::msg("the server ended without a shutdown: please report it").into());
            }
        }
    }
    // Readiness is false from here on. New requests are still answered, until load balancers have noticed.
    frontend.start_draining();
    tokio::time::sleep(drain_delay).await;
    // Then listening ends, even under load: there would never be a moment without a new request. The server waits for
    // accepted requests, and cuts those that exceed its timeout.
    closing.cancel();
    let cut = serving.await.context("the server task failed")?;
    // A disk that hangs must not keep the process from ending.
    let written = async {
        frontend.settle_capture().await;
        match recording {
            Some(recording) => recording.end().await,
            None => Ok(()),
        }
    };
    match tokio::time::timeout(LONGEST_WRITE, written).await {
        Ok(written) => written.map_err(anyhow::Error::from)?,
        Err(_) => tracing::warn!("captures or the recording were not written within {LONGEST_WRITE:?}"),
    }
    runtime::drained(cut)
}

/// Loads the models on the embedded instances and joins them to the frontend. Loading blocks a thread of its own, so that
/// health checks are answered meanwhile.
async fn embed(
    frontend: &Frontend,
    config: parm_backend::Config,
    registry: &Registry,
    exit_on_error: bool,
) -> Result<(), Failure> {
    let metrics = Metrics::embedded(registry).map_err(anyhow::Error::from)?;
    let loading = tokio::task::spawn_blocking(move || Embedded::start(config, metrics));
    let instances = loading.await.context("the loading task failed")?.map_err(runtime::backend_failure)?;
    if exit_on_error {
        runtime::all_loaded(
            instances.first().map(|instance| instance.worker().absent()).unwrap_or_default(),
        )?;
    }
    for instance in instances {
        frontend.embed(Arc::new(instance), None).map_err(anyhow::Error::from)?;
    }
    Ok(())
}

async fn admin(
    frontend: &Frontend,
    api: Api,
    closing: &CancellationToken,
) -> Result<Option<SocketAddr>, Failure> {
    let Some(bound) = api.bind().await.map_err(configuration)? else { return Ok(None) };
    let address = bound.address().map_err(anyhow::Error::from)?;
    tracing::info!(%address, "admin API");
    let closing = closing.clone().cancelled_owned();
    frontend.spawn("the admin API", bound.run(closing));
    Ok(Some(address))
}

/// Waits until the embedded instances have joined, before the readiness file is written. Remote workers may join later: a
/// supervisor must not restart this process because they are down. The poll is cheap, and only the file depends on it.
async fn until_settled(frontend: &Frontend) {
    while !frontend.is_settled() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

async fn until_ready(frontend: &Frontend) {
    while !frontend.is_ready() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn configuration(error: parm_frontend::Error) -> Failure {
    Failure::Configuration(error.into())
}

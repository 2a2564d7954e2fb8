//! `parm worker`: serves the models of a repository without a frontend.

use std::sync::Arc;

use anyhow::Context;
use parm_backend::{Metrics, Worker};
use parm_protocol::Error;
use parm_transport::server::{Page, Server};
use prometheus::Registry;

use crate::cli;
use crate::settings::Settings;
use crate::{Failure, reload, runtime, shutdown};

/// Runs the command.
pub fn main(flags: &cli::Worker) -> Result<(), Failure> {
    let settings = Settings::for_worker(flags).map_err(Failure::Configuration)?;
    if runtime::dumped(&flags.common, &settings)? {
        return Ok(());
    }
    runtime::run(&settings, ("parm-worker", false), serve(flags, settings.clone()))
}

async fn serve(flags: &cli::Worker, mut settings: Settings) -> Result<(), Failure> {
    let stop = shutdown::token()?;
    let mut hangups = reload::signals()?;
    runtime::bound_connections(&mut settings.server);
    let tls = runtime::tls(&mut settings)?;
    let shown = tls.clone();
    let registry = Registry::new();
    let counted = Metrics::worker(&registry).map_err(anyhow::Error::from)?;
    let worker = Worker::start(settings.backend.clone(), counted).map_err(runtime::backend_failure)?;
    let chat = worker.chat(&registry).map_err(runtime::backend_failure)?;
    let drain_delay = settings.server.drain_delay;
    let mut server = Server::bind(settings.server, Arc::new(worker.clone()))
        .await
        .map_err(runtime::server_failure)?
        .with_tls(tls)
        .with_page(Page::metrics(move || runtime::metrics_page(&registry) + &shown.metrics()));
    if let Some(chat) = chat {
        server = server.with_guest(Arc::new(chat));
    }
    if worker.faults().is_ok() {
        server = server.with_page(faults_page(worker.clone()));
    }
    let addresses = server.addresses();
    let closing = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(server.run(closing.clone()));

    tracing::info!("loading models");
    tokio::select! {
        loaded = load(&worker, flags.hosting.exit_on_error) => loaded?,
        // A model that hangs in its first run must not keep the process from ending.
        () = stop.cancelled() => {
            tracing::info!("stopped before all models were loaded");
            return Ok(());
        }
    }
    tracing::info!(http = %addresses.http, grpc = %addresses.grpc, metrics = %addresses.metrics, "serving");
    runtime::announce(&flags.common, &addresses, None)?;

    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(()) = hangups.recv() => tracing::info!(
                "SIGHUP: ignored: keys, certificates and models are followed, other settings need a restart"
            ),
        }
    }
    // Readiness is false from here on. New requests are still answered, until load balancers have noticed.
    let draining = worker.clone();
    let drained = tokio::spawn(async move { draining.drain(std::time::Duration::MAX).await });
    tokio::time::sleep(drain_delay).await;
    closing.cancel();
    let cut = serving.await.context("the server task failed")?;
    drained.abort();
    runtime::drained(cut)
}

/// Loads the models on a thread of its own. Health checks are answered meanwhile, and readiness is false.
async fn load(worker: &Worker, exit_on_error: bool) -> Result<(), Failure> {
    let loading = worker.clone();
    tokio::task::spawn_blocking(move || loading.load())
        .await
        .context("the loading task failed")?
        .map_err(runtime::backend_failure)?;
    if exit_on_error { runtime::all_loaded(worker.absent()) } else { Ok(()) }
}

/// Serves fault injection at run time: `GET` and `POST /faults` with a plan in JSON.
fn faults_page(worker: Worker) -> Page {
    let plan_of = |worker: &Worker| {
        let plan = worker.faults()?.plan();
        serde_json::to_string(&plan).map_err(|error| Error::Internal { message: error.to_string() })
    };
    let reading = worker.clone();
    Page::document(
        parm_backend::faults::ROUTES,
        move || plan_of(&reading),
        move |body| {
            let plan = serde_json::from_slice(body)
                .map_err(|error| Error::Malformed { message: error.to_string() })?;
            worker.faults()?.set(plan)?;
            plan_of(&worker)
        },
    )
}

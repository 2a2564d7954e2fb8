//! Probes ejected instances, off the data path.
//!
//! A positive health check proves little: a stalled model thread may be behind a responsive HTTP server. A probe
//! therefore also runs inputs that were answered before, if there are any, and discards the result. It uses the ejected
//! model, or all models of the instance.

use std::sync::Arc;

use parm_dispatch::{Event, PoolId};
use parm_protocol::Error;
use parm_protocol::client::CallContext;
use tokio::time::timeout;

use super::driver::Driver;
use super::inputs::{self, Row};
use super::instance::Instance;

/// Sends a probe; its result is an event.
pub(super) fn send(driver: &Arc<Driver>, instance: Arc<Instance>, of: Option<PoolId>) {
    let driver = driver.clone();
    driver.runtime.clone().spawn(async move {
        let answer = timeout(driver.limits.health_timeout, works(&driver, &instance, of)).await;
        let works = matches!(answer, Ok(Ok(true)));
        tracing::debug!(instance = %instance.name, works, "probed an ejected instance");
        driver.on(Event::ProbeAnswered(instance.id, of, works));
    });
}

async fn works(driver: &Driver, instance: &Instance, of: Option<PoolId>) -> Result<bool, Error> {
    if !instance.client.is_ready().await? {
        return Ok(false);
    }
    for pool in instance.pools().iter().filter(|pool| of.is_none_or(|of| pool.id == of)) {
        // Where each query is sent once, a client's must not run again.
        let Some(sample) = pool.sample.get().filter(|_| !pool.is_once()) else { continue };
        let request = inputs::request(&pool.model, &[Row { inputs: sample.clone(), index: 0 }], None)?;
        let deadline = Some(tokio::time::Instant::now() + driver.limits.health_timeout);
        instance.client.infer(request, CallContext { deadline, ..CallContext::default() }).await?;
    }
    Ok(true)
}

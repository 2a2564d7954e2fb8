//! Probes of instances that are out of service, where no copy of a query may try them.
//!
//! A positive health check proves little: a stalled model thread may be behind a responsive HTTP server. A probe
//! therefore also runs inputs that were answered before, if there are any, and discards the result.

use std::sync::Arc;

use parm_dispatcher::InstanceKey;
use parm_protocol::Error;
use parm_protocol::client::CallContext;
use tokio::time::timeout;

use super::driver::Driver;
use super::inputs::{self, Row};
use super::instance::Instance;

/// Sends a probe, and tells the driver its result.
pub(super) fn send(driver: &Arc<Driver>, key: InstanceKey, instance: Arc<Instance>) {
    let driver = driver.clone();
    driver.runtime.clone().spawn(async move {
        let answer = timeout(driver.limits.health_timeout, works(&driver, &instance)).await;
        let works = matches!(answer, Ok(Ok(true)));
        tracing::debug!(instance = %instance.name, works, "probed an instance");
        if works {
            driver.probed(key);
        }
    });
}

async fn works(driver: &Driver, instance: &Instance) -> Result<bool, Error> {
    if !instance.client.is_ready().await? {
        return Ok(false);
    }
    for pool in instance.pools() {
        // Where each query is sent once, a client's must not run again.
        let Some(sample) = pool.sample.get().filter(|_| !pool.is_once()) else { continue };
        let request = inputs::request(&pool.model, &[Row { inputs: sample.clone(), index: 0 }], None)?;
        let deadline = Some(tokio::time::Instant::now() + driver.limits.health_timeout);
        instance.client.infer(request, CallContext { deadline, ..CallContext::default() }).await?;
    }
    Ok(true)
}

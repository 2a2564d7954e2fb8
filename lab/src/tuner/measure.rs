//! Measures the service times of a worker, with one request at a time so that none waits for another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::simulator::Progress;
use parm_loadgen::inputs::Inputs;
use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_protocol::ModelRef;
use parm_protocol::client::{CallContext, Client};
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;

use crate::Error;

/// Requests that are not counted, while caches and compilers are cold.
const WARM_UP: usize = 5;
/// Timeout of one request.
const PATIENCE: Duration = Duration::from_secs(30);
/// Share of the time for requests of one row, if batches are measured too.
const ALONE: f64 = 0.8;

/// Measures a model of workers for so long, all at the same time. Batches of `rows` give the cost of a further row; 1 disables them.
/// Progress counts requests.
pub async fn service(
    workers: &[Arc<dyn Client>],
    model: &str,
    length: Duration,
    rows: u16,
    progress: Arc<dyn Progress>,
) -> Result<Service, Error> {
    let measured = workers.iter().map(|worker| {
        let (worker, model, progress) = (worker.clone(), model.to_owned(), progress.clone());
        tokio::spawn(async move { one(&*worker, &model, length, rows, &*progress).await })
    });
    let (mut values, mut batches) = (Vec::new(), Vec::new());
    for measured in measured.collect::<Vec<_>>() {
        let (alone, batched) = measured.await.unwrap_or_else(|error| {
            Err(Error::Unmeasured { url: "a worker".into(), reason: error.to_string() })
        })?;
        values.extend(alone);
        batches.extend(batched);
    }
    let row_share = share(&mut values.clone(), &mut batches, rows);
    Ok(Service { time_ms: Distribution::Sample { values }, row_share, ..Service::default() })
}

/// Returns the milliseconds of requests of one row, and of batches.
async fn one(
    worker: &dyn Client,
    model: &str,
    length: Duration,
    rows: u16,
    progress: &dyn Progress,
) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let failed = |error: parm_protocol::Error| Error::Unmeasured {
        url: worker.peer().to_owned(),
        reason: error.to_string(),
    };
    let metadata = worker.model_metadata(&ModelRef::latest(model)).await.map_err(failed)?;
    let alone = if rows > 1 { length.mul_f64(ALONE) } else { length };
    let mut times = [Vec::new(), Vec::new()];
    for (times, (rows, length)) in times.iter_mut().zip([(1, alone), (rows, length - alone)]) {
        let inputs = Inputs::generate(&metadata, usize::from(rows), 1)?;
        let mut until = Instant::now() + length;
        let count = if length.is_zero() { 0 } else { usize::MAX };
        for number in 0..count {
            let began = Instant::now();
            let context = CallContext { deadline: Some((began + PATIENCE).into()), ..CallContext::default() };
            worker.infer(inputs.request(number), context).await.map_err(failed)?;
            if number < WARM_UP {
                until = Instant::now() + length;
                continue;
            }
            times.push(began.elapsed().as_secs_f64() * 1e3);
            progress.advanced(1);
            if Instant::now() >= until {
                break;
            }
        }
    }
    let [alone, batched] = times;
    Ok((alone, batched))
}

fn share(alone: &mut [f64], batched: &mut [f64], rows: u16) -> f64 {
    if rows < 2 || batched.is_empty() {
        return 1.0;
    }
    let (one, many) = (quantile_of(alone, 0.5), quantile_of(batched, 0.5));
    ((many / one - 1.0) / f64::from(rows - 1)).clamp(0.0, 1.0)
}

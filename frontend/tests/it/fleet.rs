//! Kit of fake workers: instances with common models and times, and frontends over them.

use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use parm_encoder::Kind;
use parm_frontend::{Config, Frontend};
use parm_protocol::{InferRequest, ModelMetadata};
use parm_settings::{PolicyKind, StandInSettings};

use crate::rig::{config, frontend, infer};
use crate::scripted::{Scripted, doubler};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Workers `i0`, `i1` and so on, with the model `double` and jobs of this many milliseconds.
pub(crate) fn workers(count: usize, millis: u64) -> Vec<Arc<Scripted>> {
    (0..count).map(|number| Scripted::quick(&format!("i{number}"), millis)).collect()
}

/// Workers with these models and jobs of 10 ms.
pub(crate) fn workers_with(count: usize, models: &[ModelMetadata]) -> Vec<Arc<Scripted>> {
    let workers = workers(count, 10);
    workers.iter().for_each(|worker| worker.serve(models));
    workers
}

/// Workers with queries of 10 ms and the stand-in `small`, whose jobs take 2 ms.
pub(crate) fn workers_with_stand_ins(count: usize) -> Vec<Arc<Scripted>> {
    let workers = workers_with(count, &[doubler("double"), doubler("small")]);
    workers.iter().for_each(|worker| worker.model_takes("small", 2 * MS));
    workers
}

/// A frontend with these workers as embedded instances, once all have joined.
pub(crate) async fn over(config: Config, workers: &[Arc<Scripted>]) -> Frontend {
    frontend(config, &workers.iter().collect::<Vec<_>>()).await
}

/// Lets a frontend learn from requests like this one how long a run takes.
pub(crate) async fn warm(frontend: &Frontend, request: &InferRequest) {
    for _ in 0..40 {
        infer(frontend, request.clone()).await.expect("an answer");
    }
}

/// The policy `stand-in` with the model `small`.
pub(crate) fn stand_in(change: impl FnOnce(&mut StandInSettings)) -> Config {
    let mut config = config(PolicyKind::StandIn);
    config.dispatch.stand_in.model = Some("small".into());
    change(&mut config.dispatch.stand_in);
    config
}

/// A coding policy with groups of `k` at any load and without hedges.
pub(crate) fn coding(policy: PolicyKind, k: u8) -> Config {
    let mut config = config(policy);
    let coding = &mut config.dispatch.coding;
    coding.k = NonZeroU8::new(k).unwrap();
    coding.parm_plus.k_follows_load = false;
    coding.parm_plus.hedge = false;
    config
}

/// Like `coding`, with `r` parities by the code for linear models.
pub(crate) fn coded(policy: PolicyKind, k: u8, r: u8) -> Config {
    let mut config = coding(policy, k);
    config.dispatch.coding.r = NonZeroU8::new(r).unwrap();
    config.dispatch.coding.code = Some(Kind::Mds);
    config
}

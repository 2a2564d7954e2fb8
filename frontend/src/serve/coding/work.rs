//! Runs the arithmetic of codes inline or on blocking threads.
//!
//! Adding up a few kilobytes takes a microsecond, and handing it to another thread takes several. Small work therefore
//! runs inline, outside of the lock. Large work, and every code that runs a model, goes to the runtime's blocking
//! threads. Their number is bounded, and a group beyond the bound has no parities.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parm_encoder::Workspace;
use tokio::sync::Semaphore;

use super::{Decoding, Encoding};
use crate::error::Error;
use crate::metrics::CodeMetric;
use crate::serve::clock::Timers;
use crate::serve::driver::Driver;

/// Bytes up to which work runs inline: about ten microseconds.
const AT_ONCE: usize = 64 << 10;
/// Maximum large work that waits or runs, which bounds the memory of its groups.
const MOST: usize = 64;

/// Arithmetic to do.
pub(crate) enum Work {
    Encode(Encoding),
    Decode(Decoding),
}

/// The places of large work that waits or runs.
pub(crate) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MOST))
}

thread_local! {
    /// Memory that is reused.
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

impl Work {
    /// Does the work now or soon, and reports to the driver.
    pub(crate) fn start(self, driver: &Arc<Driver>) {
        let (bytes, runs_models) = match &self {
            Self::Encode(work) => (work.bytes(), work.runs_models()),
            Self::Decode(work) => (work.bytes(), work.runs_models()),
        };
        if driver.timers == Timers::Runtime || (bytes <= AT_ONCE && !runs_models) {
            self.finish(driver);
        } else if let Ok(place) = driver.coding.clone().try_acquire_owned() {
            let driver = driver.clone();
            driver.runtime.clone().spawn_blocking(move || {
                self.finish(&driver);
                drop(place);
            });
        } else {
            self.refuse(driver);
        }
    }

    fn finish(self, driver: &Arc<Driver>) {
        match self {
            Self::Encode(work) => {
                let timed = work.pool.metrics.coded(CodeMetric::EncodeTime).start_timer();
                let made = caught(|workspace| work.encode(workspace));
                drop(timed);
                driver.with(|state| state.encoded(driver, work.group, made));
            }
            Self::Decode(work) => {
                let timed = work.pool.metrics.coded(CodeMetric::DecodeTime).start_timer();
                let made = caught(|workspace| work.decode(workspace));
                drop(timed);
                driver.with(|state| state.decoded(driver, &work, made));
            }
        }
    }

    fn refuse(self, driver: &Arc<Driver>) {
        let busy = Error::NotCoded(format!("coders are busy: {MOST} groups are being coded"));
        match self {
            Self::Encode(work) => driver.with(|state| state.encoded(driver, work.group, Err(busy))),
            Self::Decode(work) => driver.with(|state| state.decoded(driver, &work, Err(busy))),
        }
    }
}

/// Catches panics: the driver must get a result, or the group would never end.
fn caught<T>(work: impl FnOnce(&mut Workspace) -> Result<T, Error>) -> Result<T, Error> {
    let work = AssertUnwindSafe(|| WORKSPACE.with_borrow_mut(work));
    catch_unwind(work)
        .unwrap_or_else(|_| Err(Error::NotCoded("a code panicked: please report this bug".to_owned())))
}

//! Who does the arithmetic. Adding up a few kilobytes takes a microsecond, handing that to another thread takes several; so
//! small work is done by whoever comes by, outside of the lock. Large work goes to the runtime's blocking threads, and so
//! does every code that runs a model: not more at a time than a bound, beyond which a group goes without parities.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parm_dispatch::Judgement;
use parm_encoder::Workspace;

use super::{Checking, Comparing, Decoding, Encoding, Judging};
use crate::error::Error;
use crate::serve::clock::Timers;
use crate::serve::driver::Driver;

/// Bytes that are read where the work comes up: some ten microseconds of it.
const AT_ONCE: usize = 64 << 10;
/// Large work that may wait or run; the memory of its groups is what this bounds.
const MOST: usize = 64;

/// Arithmetic that is to be done.
pub(crate) enum Work {
    Encode(Encoding),
    Decode(Decoding),
    Compare(Comparing),
    Judge(Judging),
    Check(Checking),
}

/// Counts the large work that waits or runs.
#[derive(Default)]
pub(crate) struct Desk {
    busy: AtomicUsize,
}

/// Memory that is used from work to work.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) workspace: Workspace,
    /// Queries that lie at odd addresses.
    pub(super) aligned: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Work {
    /// Does it, now or soon, and tells the driver.
    pub(crate) fn start(self, driver: &Arc<Driver>) {
        let (bytes, runs_models) = match &self {
            Self::Encode(work) => (work.bytes(), work.runs_models()),
            Self::Decode(work) => (work.bytes(), work.runs_models()),
            Self::Compare(work) => (work.bytes(), work.runs_models()),
            Self::Judge(work) => (work.bytes(), false),
            Self::Check(work) => (work.bytes(), false),
        };
        let simulated = matches!(driver.timers, Timers::Simulated { .. });
        if simulated || (bytes <= AT_ONCE && !runs_models) {
            self.finish(driver);
        } else if driver.desk.busy.fetch_add(1, Ordering::Relaxed) >= MOST {
            driver.desk.busy.fetch_sub(1, Ordering::Relaxed);
            self.refuse(driver);
        } else {
            let driver = driver.clone();
            driver.runtime.clone().spawn_blocking(move || {
                self.finish(&driver);
                driver.desk.busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    fn finish(self, driver: &Arc<Driver>) {
        match self {
            Self::Encode(work) => {
                let timed = work.pool.metrics.coding.encode_time.start_timer();
                let made = caught(|scratch| work.encode(&driver.stock, scratch));
                drop(timed);
                driver.encoded(work.group, made);
            }
            Self::Decode(work) => {
                let timed = work.pool.metrics.coding.decode_time.start_timer();
                let made = caught(|scratch| work.decode(scratch));
                drop(timed);
                driver.decoded((work.group, work.query), made);
            }
            Self::Compare(work) => driver.compared(work.group, caught(|scratch| work.compare(scratch))),
            Self::Judge(work) => {
                let judgement = caught(|_| Ok(work.judge())).unwrap_or(Judgement::Unfit);
                driver.judged((work.query, work.output), judgement);
            }
            Self::Check(work) => {
                let said = caught(|_| Ok(work.check())).unwrap_or_else(|_| work.unknown());
                driver.checked(said);
            }
        }
    }

    fn refuse(self, driver: &Arc<Driver>) {
        let busy = Error::CodersBusy { limit: MOST };
        match self {
            Self::Encode(work) => driver.encoded(work.group, Err(busy)),
            Self::Decode(work) => driver.decoded((work.group, work.query), Err(busy)),
            Self::Compare(work) => driver.compared(work.group, Err(busy)),
            // A client waits for it, and to look takes less than to refuse.
            Self::Judge(work) => Self::Judge(work).finish(driver),
            Self::Check(work) => driver.checked(work.unknown()),
        }
    }
}

/// Whatever happens the driver must hear of it, or the group would never end.
fn caught<T>(work: impl FnOnce(&mut Scratch) -> Result<T, Error>) -> Result<T, Error> {
    let work = AssertUnwindSafe(|| SCRATCH.with_borrow_mut(work));
    catch_unwind(work).unwrap_or(Err(Error::CoderPanicked))
}

//! Shows the progress of the search, and stops it at an interrupt.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parm_stand_ins::Progress;

use crate::progress::Bar;

/// The progress of a search.
pub struct Watch {
    bar: Bar,
    stopped: Arc<AtomicBool>,
}

impl Watch {
    /// Handles interrupts from now on: the first ends the search after its step, the second ends the process at once.
    pub fn new() -> anyhow::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let asked = stopped.clone();
        crate::shutdown::on_signal(move || asked.store(true, Ordering::Relaxed))?;
        Ok(Self { bar: Bar::steps(), stopped })
    }
}

impl Progress for Watch {
    fn doing(&self, what: &str) {
        self.bar.step(what, true);
    }

    fn within(&self, what: &str) {
        self.bar.step(what, false);
    }

    fn tell(&self, what: &str) {
        self.bar.tell(what);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

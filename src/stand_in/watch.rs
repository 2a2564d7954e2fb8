//! Shows the progress of the search on stderr, and stops it at an interrupt.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use parm_stand_ins::Progress;

/// A line with the present step, on terminals only.
pub struct Watch {
    line: ProgressBar,
    stopped: Arc<AtomicBool>,
}

impl Watch {
    /// Handles interrupts from now on: the first ends the search after its step, the second ends the process at once.
    pub fn new() -> anyhow::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let asked = stopped.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                let Ok(token) = crate::shutdown::token() else { return };
                token.cancelled().await;
                asked.store(true, Ordering::Relaxed);
                std::future::pending::<()>().await;
            });
        })?;
        let line = ProgressBar::new_spinner();
        line.enable_steady_tick(Duration::from_millis(100));
        Ok(Self { line, stopped })
    }

    /// Removes the line.
    pub fn done(&self) {
        self.line.finish_and_clear();
    }
}

impl Progress for Watch {
    fn doing(&self, what: &str) {
        self.line.set_message(what.to_owned());
    }

    fn tell(&self, what: &str) {
        self.line.suspend(|| eprintln!("{what}"));
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

//! Shows the progress of the search on stderr, and stops it at an interrupt.
//!
//! Terminals get one line with the present step, logs a line per step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use parm_stand_ins::Progress;

/// The least time between two lines about the same step.
const BETWEEN: Duration = Duration::from_secs(30);

/// The progress of a search.
pub struct Watch {
    line: ProgressBar,
    /// The lines in a log, if stderr is not a terminal.
    log: Option<Mutex<Steps>>,
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
        let log = line.is_hidden().then(Mutex::default);
        Ok(Self { line, log, stopped })
    }

    /// Removes the line.
    pub fn done(&self) {
        self.line.finish_and_clear();
    }
}

impl Watch {
    fn show(&self, what: &str, is_step: bool) {
        self.line.set_message(what.to_owned());
        let Some(log) = &self.log else { return };
        if log.lock().unwrap_or_else(PoisonError::into_inner).admit(what, is_step, Instant::now()) {
            eprintln!("{what}");
        }
    }
}

/// Chooses the lines for a log: each step once, and its progress every half minute.
#[derive(Default)]
struct Steps {
    step: String,
    shown: Option<Instant>,
}

impl Steps {
    fn admit(&mut self, what: &str, is_step: bool, now: Instant) -> bool {
        let is_due = self.shown.is_none_or(|shown| now.duration_since(shown) >= BETWEEN);
        let is_new = is_step && self.step != what;
        if is_step {
            self.step = what.into();
        }
        if is_new || is_due {
            self.shown = Some(now);
        }
        is_new || is_due
    }
}

impl Progress for Watch {
    fn doing(&self, what: &str) {
        self.show(what, true);
    }

    fn within(&self, what: &str) {
        self.show(what, false);
    }

    fn tell(&self, what: &str) {
        self.line.suspend(|| eprintln!("{what}"));
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_shows_each_step_once_and_progress_every_half_minute() {
        let (mut steps, start) = (Steps::default(), Instant::now());
        let mut at =
            |what, is_step, seconds| steps.admit(what, is_step, start + Duration::from_secs(seconds));
        assert!(at("rewriting", true, 0));
        assert!(!at("rewriting", true, 1), "the same step");
        assert!(at("cutting: a", true, 1) && at("cutting: b", true, 1));
        let shown = (2..=62).filter(|second| at("layer 1 of 50", false, *second)).count();
        assert_eq!(shown, 2, "a minute of progress");
    }
}

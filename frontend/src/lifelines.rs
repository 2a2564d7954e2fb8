//! Detects panics of the threads and tasks that a frontend cannot run without.
//!
//! These are the timer, the supervisors of instances, the loops that poll for changes, and whoever calls the dispatcher.
//!
//! Problem: a panic ends only its own thread or task. The frontend would go on without hedges, deadlines or discovery,
//! and without an error. That is worse than an exit, after which a supervisor restarts the process.
//!
//! Choice: each such task holds a line, which breaks when a panic unwinds through it. The first break is logged and
//! stored. The owner of the frontend waits for it and exits.
//!
//! Rejected: aborting at once, because the embedding program may want to clean up; catching the panic and going on,
//! because it may have left inconsistent state.

use std::future::Future;
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::watch;

/// All lines of one frontend, and the first that broke.
#[derive(Clone, Debug)]
pub(crate) struct Lifelines(watch::Sender<Option<&'static str>>);

/// Breaks its line if it is dropped by a panic.
pub(crate) struct Line<'a> {
    lines: &'a Lifelines,
    part: &'static str,
}

impl Lifelines {
    /// Returns a guard that breaks if a panic unwinds through it.
    pub(crate) fn hold(&self, part: &'static str) -> Line<'_> {
        Line { lines: self, part }
    }

    /// Spawns a task that must not panic.
    pub(crate) fn spawn(
        &self,
        runtime: &Handle,
        part: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let lines = self.clone();
        runtime.spawn(async move {
            let _line = lines.hold(part);
            task.await;
        });
    }

    /// Waits until a line breaks, and returns its part.
    pub(crate) async fn broken(&self) -> &'static str {
        let mut broken = self.0.subscribe();
        let part = broken.wait_for(Option::is_some).await.map(|part| *part);
        match part {
            Ok(Some(part)) => part,
            // The sender lives as long as `self`, and the awaited value is set.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let part = self.part;
        tracing::error!(code = %parm_protocol::StableCode::FrontendPanicked, %part, "panicked: this frontend cannot continue: please report the message above");
        self.lines.0.send_if_modified(|broken| {
            let first = broken.is_none();
            broken.get_or_insert(part);
            first
        });
    }
}

impl Default for Lifelines {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn first_panicking_thread_is_reported() {
        let lines = Lifelines::default();
        for part in ["a thread", "another"] {
            let lines = lines.clone();
            let panics = move || {
                let _line = lines.hold(part);
                panic!("intended by the test");
            };
            thread::spawn(panics).join().unwrap_err();
        }
        assert_eq!(lines.broken().now_or_never(), Some("a thread"));
    }
}

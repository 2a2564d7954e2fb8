//! Threads and tasks without which a frontend is half alive: the timer, supervisors of instances, loops that look for
//! changes.
//!
//! A panic ends only the thread or task that it happens in. The rest goes on, and nobody notices that hedges, deadlines or
//! discovery are gone: that is worse than a process that ends, which is restarted. So each of them holds a line that
//! breaks when a panic unwinds through it. The first break is logged and kept, and whoever runs the frontend waits for it
//! and ends. Rejected: to abort on the spot, as the program that a frontend is embedded in may have better plans; and to
//! catch the panic and go on, as nobody knows what it left half done.

use std::future::Future;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The lines of one frontend.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lifelines(Arc<Broken>);

#[derive(Debug)]
struct Broken {
    first: watch::Sender<Option<&'static str>>,
    /// What is known of the panic that is unwinding, for the log.
    told: Mutex<Option<String>>,
}

/// Breaks its line when it is dropped by a panic.
pub(crate) struct Line<'a> {
    lines: &'a Lifelines,
    part: &'static str,
}

impl Lifelines {
    /// A line that breaks if a panic unwinds through whoever holds it.
    pub(crate) fn hold(&self, part: &'static str) -> Line<'_> {
        Line { lines: self, part }
    }

    /// Says more of the panic that is about to unwind through a line.
    pub(crate) fn explain(&self, what: String) {
        *self.0.told.lock() = Some(what);
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

    /// Waits until a line breaks, and says whose.
    pub(crate) async fn broken(&self) -> &'static str {
        let mut broken = self.0.first.subscribe();
        let part = broken.wait_for(Option::is_some).await.map(|part| *part);
        match part {
            Ok(Some(part)) => part,
            // The sender lives as long as we do, and what was waited for is there.
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
        match self.lines.0.told.lock().take() {
            Some(what) => {
                tracing::error!(%part, %what, "panicked: this frontend cannot go on; please report it")
            }
            None => {
                tracing::error!(%part, "panicked: this frontend cannot go on; please report the message above")
            }
        }
        self.lines.0.first.send_if_modified(|broken| {
            let first = broken.is_none();
            broken.get_or_insert(part);
            first
        });
    }
}

impl Default for Broken {
    fn default() -> Self {
        Self { first: watch::channel(None).0, told: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_breaks_its_line() {
        let lines = Lifelines::default();
        lines.spawn(&Handle::current(), "a task", async {
            tokio::task::yield_now().await;
            panic!("as the test wants it");
        });
        assert_eq!(lines.broken().await, "a task");
    }

    #[test]
    fn a_thread_that_panics_breaks_its_line_and_the_first_is_kept() {
        let lines = Lifelines::default();
        for part in ["a thread", "another"] {
            let lines = lines.clone();
            let panics = move || {
                let _line = lines.hold(part);
                panic!("as the test wants it");
            };
            thread::spawn(panics).join().unwrap_err();
        }
        assert_eq!(lines.broken().now_or_never(), Some("a thread"));
    }

    #[tokio::test]
    async fn what_ends_well_breaks_nothing() {
        let lines = Lifelines::default();
        let (done, ended) = tokio::sync::oneshot::channel();
        lines.spawn(&Handle::current(), "a task", async {
            let _ = done.send(());
        });
        ended.await.unwrap();
        drop(lines.hold("a block"));
        assert_eq!(lines.broken().now_or_never(), None);
    }
}

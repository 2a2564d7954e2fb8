//! The thread that writes what was drawn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parm_captures::{Keep, Record, Source};
use tokio::sync::{mpsc, oneshot};

use crate::metrics::Captured;

/// A request that is to be kept.
pub(super) struct Sample {
    pub(super) source: Source,
    pub(super) record: Record,
    /// What it holds while it waits.
    pub(super) bytes: usize,
}

/// What the thread is told.
pub(super) enum Told {
    Sample(Sample),
    /// Somebody waits until all before is written.
    Settle(oneshot::Sender<()>),
}

/// Says that nothing is written any more, also where a panic ends the thread.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts the thread. It ends when nobody can tell it anything any more, and when it cannot write.
pub(super) fn start(
    mut keep: Box<dyn Keep>,
    mut told: mpsc::Receiver<Told>,
    (waiting, ended): (Arc<AtomicUsize>, Arc<AtomicBool>),
    counted: Captured,
) -> std::io::Result<()> {
    let write = move || {
        let ended = Ended(ended);
        while let Some(told) = told.blocking_recv() {
            let Sample { source, record, bytes } = match told {
                Told::Sample(sample) => sample,
                Told::Settle(written) => {
                    // Whoever asked may have gone.
                    let _ = written.send(());
                    continue;
                }
            };
            let kept = if ended.0.load(Ordering::Relaxed) { Ok(false) } else { keep.keep(&source, &record) };
            waiting.fetch_sub(bytes, Ordering::Relaxed);
            match kept {
                Ok(true) => counted.kept(),
                Ok(false) => counted.dropped(),
                Err(error) => {
                    counted.failed();
                    tracing::error!(
                        %error,
                        "no more queries are captured: make room or give another folder, and restart; serving goes on"
                    );
                    // What still comes is taken and let go.
                    ended.0.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    thread::Builder::new().name("capture".into()).spawn(write).map(drop)
}

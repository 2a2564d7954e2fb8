//! Thread that writes sampled requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parm_captures::{Keep, Record, Source};
use tokio::sync::{mpsc, oneshot};

use crate::metrics::Captured;

/// A request to write.
pub(super) struct Sample {
    pub(super) source: Source,
    pub(super) record: Record,
    /// Bytes that it holds while it waits.
    pub(super) bytes: usize,
}

/// Messages to the thread.
pub(super) enum Told {
    Sample(Sample),
    /// A request to confirm that everything before it is written.
    Settle(oneshot::Sender<()>),
}

/// Marks the capture as ended, also if the thread panics.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts the thread. It ends when all senders are gone, and when it cannot write.
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
                    // The receiver may be gone.
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
                        code = %parm_protocol::StableCode::CaptureStopped,
                        %error,
                        "query capture stopped; serving goes on: free disk space or set another folder, and restart"
                    );
                    // Later samples are received and dropped.
                    ended.0.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    thread::Builder::new().name("capture".into()).spawn(write).map(drop)
}

//! Samples requests and passes them to the writer thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use parm_captures::{Folder, Keep, Limits, Record, Source};
use parm_protocol::NamedTensor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::Config;
use crate::error::Error;
use crate::metrics::Captured;
use crate::serve::Outcome;

/// 2^64 divided by the golden ratio: its multiples are spread evenly.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Selects requests and hands them over.
pub(crate) struct Sampler {
    share: f64,
    drawn: AtomicU64,
    /// Closed once the thread cannot write.
    samples: mpsc::Sender<Told>,
    /// Bytes that may wait to be written.
    room: Arc<Semaphore>,
    counted: Captured,
}

impl Sampler {
    /// Opens the configured folder; `None` if there is none.
    pub(crate) fn start(config: &Config, counted: impl FnOnce() -> Captured) -> Result<Option<Self>, Error> {
        let Some(folder) = &config.folder else { return Ok(None) };
        let limits = Limits { bytes: config.max_mb.get().saturating_mul(1 << 20), age: config.max_age };
        let failed = |reason: String| Error::Capture { path: folder.clone(), reason };
        let open = Folder::open(folder, limits).map_err(|error| failed(error.to_string()))?;
        let sampler = Self::over(Box::new(open), config, counted());
        sampler.map(Some).map_err(|error| failed(error.to_string()))
    }

    fn over(keep: Box<dyn Keep>, config: &Config, counted: Captured) -> std::io::Result<Self> {
        let (samples, told) = mpsc::channel(config.buffer.get());
        start(keep, told, counted.clone())?;
        let room = config.buffer_mb.get().saturating_mul(1 << 20).min(Semaphore::MAX_PERMITS);
        let (share, room) = (config.share.get(), Arc::new(Semaphore::new(room)));
        Ok(Self { share, drawn: AtomicU64::new(0), samples, room, counted })
    }

    /// Whether the next request is sampled.
    pub(crate) fn draws(&self) -> bool {
        let place = self.drawn.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        (place as f64) < self.share * 2f64.powi(64) && !self.has_stopped()
    }

    /// Whether it could not write and has ended.
    pub(crate) fn has_stopped(&self) -> bool {
        self.samples.is_closed()
    }

    /// Hands over a request and its answer, if there is room.
    pub(crate) fn keep(
        &self,
        source: Source,
        (inputs, outputs): (&[NamedTensor], &[NamedTensor]),
        outcome: Outcome,
    ) {
        let is_deployed = matches!(outcome, Outcome::Exact | Outcome::Hedged);
        let outputs = if is_deployed { outputs } else { &[] };
        let bytes: usize = inputs.iter().chain(outputs).map(|named| named.tensor.data().len()).sum();
        let room =
            u32::try_from(bytes).ok().and_then(|bytes| self.room.clone().try_acquire_many_owned(bytes).ok());
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_taken = room.is_some_and(|room| {
            let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
            let record = Record { unix_ms: unix.as_millis() as u64, inputs, outputs };
            self.samples.try_send(Told::Sample(source, record, room)).is_ok()
        });
        if !is_taken {
            self.counted.dropped.inc();
        }
    }

    /// Waits until everything handed over so far is written.
    pub(crate) async fn settled(&self) {
        let (told, written) = oneshot::channel();
        if self.samples.send(Told::Settle(told)).await.is_ok() {
            // An error means that the thread has ended and writes nothing more.
            let _ = written.await;
        }
    }
}

/// Messages to the thread.
enum Told {
    /// A request to write, with the room that its bytes take while it waits.
    Sample(Source, Record, OwnedSemaphorePermit),
    /// A request to confirm that everything before it is written.
    Settle(oneshot::Sender<()>),
}

/// Starts the thread. It ends when all senders are gone, and when it cannot write.
fn start(mut keep: Box<dyn Keep>, mut told: mpsc::Receiver<Told>, counted: Captured) -> std::io::Result<()> {
    let write = move || {
        while let Some(next) = told.blocking_recv() {
            let (source, record, _room) = match next {
                Told::Sample(source, record, room) => (source, record, room),
                Told::Settle(written) => {
                    // The receiver may be gone.
                    let _ = written.send(());
                    continue;
                }
            };
            match keep.keep(&source, &record) {
                Ok(true) => counted.kept.inc(),
                Ok(false) => counted.dropped.inc(),
                Err(error) => {
                    counted.failed.inc();
                    counted.dropped.inc_by(told.len() as u64);
                    tracing::error!(
                        code = %parm_protocol::StableCode::CaptureStopped,
                        %error,
                        "query capture stopped; serving goes on: free disk space or set another folder, and restart"
                    );
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("capture".into()).spawn(write).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::num::NonZeroUsize;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use parm_protocol::Tensor;
    use parm_settings::Fraction;

    use super::*;
    use crate::metrics::Metrics;

    /// A disk that is full after this many records.
    struct Full(usize);

    impl Keep for Full {
        fn keep(&mut self, _: &Source, _: &Record) -> io::Result<bool> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            Ok(true)
        }

        fn forget(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    /// A disk that blocks until the test lets it go on.
    struct Slow(SyncSender<Record>, Receiver<()>);

    impl Keep for Slow {
        fn keep(&mut self, _: &Source, record: &Record) -> io::Result<bool> {
            let _ = self.0.send(record.clone());
            let _ = self.1.recv();
            Ok(true)
        }

        fn forget(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    fn tensors() -> Vec<NamedTensor> {
        vec![NamedTensor::new("x", Tensor::from_f32([1, 2].as_slice(), &[1.0, 2.0]).unwrap())]
    }

    fn source() -> Source {
        Source { model: "m".into(), version: "1".into() }
    }

    fn over(keep: impl Keep + 'static, config: &Config) -> (Sampler, Metrics) {
        let metrics = Metrics::new();
        (Sampler::over(Box::new(keep), config, metrics.captured()).unwrap(), metrics)
    }

    fn count(metrics: &Metrics, event: &str) -> u64 {
        let line = format!("parm_captured_requests_total{{event=\"{event}\"}} ");
        let page = metrics.text();
        page.lines().find_map(|had| had.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
    }

    #[tokio::test]
    async fn requests_are_sampled_evenly() {
        for share in [0.0, 0.01, 0.25, 1.0] {
            let config = Config { share: Fraction::try_from(share).unwrap(), ..Config::default() };
            let (sampler, _metrics) = over(Full(0), &config);
            for _ in 0..5 {
                let drawn = (0..1000).filter(|_| sampler.draws()).count() as f64;
                assert!((drawn - 1000.0 * share).abs() <= 2.0, "{drawn} of 1000 for {share}");
            }
        }
    }

    #[tokio::test]
    async fn full_disk_ends_only_the_capture() {
        let config = Config { share: Fraction::percent(100), ..Config::default() };
        let (sampler, metrics) = over(Full(2), &config);
        for _ in 0..5 {
            sampler.keep(source(), (&tensors(), &[]), Outcome::Exact);
        }
        sampler.settled().await;
        assert!(!sampler.draws(), "ended capture must not sample");
        assert_eq!((count(&metrics, "kept"), count(&metrics, "failed")), (2, 1));
        sampler.keep(source(), (&tensors(), &[]), Outcome::Exact);
        sampler.settled().await;
        assert_eq!(sampler.room.available_permits(), 64 << 20, "no bytes may be held");
    }

    #[tokio::test]
    async fn slow_disk_drops_samples_and_bounds_memory() {
        let (asked, seen) = sync_channel(1);
        let (go, gone) = sync_channel(16);
        let config = Config { buffer: NonZeroUsize::new(3).unwrap(), ..Config::default() };
        let (sampler, metrics) = over(Slow(asked, gone), &config);
        sampler.keep(source(), (&tensors(), &tensors()), Outcome::Exact);
        assert_eq!(seen.recv().unwrap().outputs, tensors());
        // The disk has one record, three wait and two are dropped.
        for _ in 0..5 {
            sampler.keep(source(), (&tensors(), &tensors()), Outcome::StandIn);
        }
        assert_eq!(count(&metrics, "dropped"), 2);
        (0..4).for_each(|_| go.send(()).unwrap());
        let others: Vec<Record> = (0..3).map(|_| seen.recv().unwrap()).collect();
        assert!(
            others.iter().all(|record| record.outputs.is_empty()),
            "answers of stand-ins must not be kept"
        );
        sampler.settled().await;
        assert_eq!((count(&metrics, "kept"), sampler.room.available_permits()), (4, 64 << 20));
    }
}

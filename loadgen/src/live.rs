//! A run in progress: records results and shows them while the run continues.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::chat::{Answer, Answers};
use crate::failures::Failure;
use crate::outcome::{Outcome, Tally};
use crate::recorder::{Sample, Times};
use crate::run::Run;

/// A run, shared between the tasks that execute it and the threads that display it.
#[derive(Debug, Default)]
pub struct Live {
    state: Mutex<State>,
    stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    run: Run,
    /// The latencies of the run's samples.
    counted: Times,
    /// Those since the last snapshot, counted or not.
    window: Times,
}

/// The end of one request.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) sample: Sample,
    /// False during the warm-up.
    pub(crate) counted: bool,
    /// For each labelled row: its outcome, and whether it is right.
    pub(crate) rows: Vec<(Outcome, bool)>,
    /// The answer of a chat.
    pub(crate) chat: Option<Answer>,
    pub(crate) failure: Option<Failure>,
}

/// The visible state of a run.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The latencies of the requests that ended since the last snapshot.
    pub recent: Times,
    /// Those of the counted requests since the start.
    pub counted: Times,
    /// The counted requests by outcome.
    pub tally: Tally,
}

impl Live {
    /// Ends the run early: no further request is sent, and the results so far are kept.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the run was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns the current state and starts a new window of recent requests.
    pub fn look(&self) -> Snapshot {
        let mut state = self.state.lock();
        let recent = std::mem::take(&mut state.window);
        Snapshot { recent, counted: state.counted.clone(), tally: state.run.tally }
    }

    pub(crate) fn expect(&self, samples: usize) {
        self.state.lock().run.samples.reserve(samples);
    }

    pub(crate) fn record(&self, ended: Ended) {
        let mut state = self.state.lock();
        state.window.record(ended.sample.latency);
        if !ended.counted {
            return;
        }
        state.counted.record(ended.sample.latency);
        let run = &mut state.run;
        run.samples.push(ended.sample);
        run.tally.request(ended.sample.outcome);
        for (outcome, right) in ended.rows {
            run.tally.row(outcome, right);
        }
        if let Some(answer) = ended.chat {
            run.chats.get_or_insert_default().add(ended.sample.intended, answer);
        }
        if let Some(failure) = ended.failure {
            run.failures.add(&failure);
        }
    }

    pub(crate) fn recorded(&self) -> usize {
        self.state.lock().run.samples.len()
    }

    /// Takes the records. What the caller counts is 0: the offered requests, the dropped ones, and the length.
    pub(crate) fn take(&self) -> Run {
        let mut run = std::mem::take(&mut self.state.lock().run);
        run.samples.sort_by_key(|sample| sample.intended);
        run.chats = run.chats.map(Answers::in_order);
        run
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ended(latency_ms: u64, counted: bool) -> Ended {
        let latency = Duration::from_millis(latency_ms);
        let sample =
            Sample { intended: Duration::ZERO, latency, lag: Duration::ZERO, outcome: Outcome::Exact };
        Ended { sample, counted, rows: vec![(Outcome::Exact, true)], chat: None, failure: None }
    }

    #[test]
    fn snapshot_shows_recent_and_counted_requests() {
        let live = Live::default();
        (0..50).for_each(|_| live.record(ended(1, false)));
        (0..200).for_each(|_| live.record(ended(8, true)));
        let first = live.look();
        assert_eq!((first.recent.count(), first.counted.count()), (250, 200));
        let [p50, p99, p999] =
            [0.5, 0.99, 0.999].map(|share| first.counted.known(share).map(|time| time.as_secs_f64() * 1e3));
        assert!([p50, p99].iter().all(|ms| (ms.unwrap() / 8.0 - 1.0).abs() < 0.002), "{p50:?} {p99:?}");
        assert_eq!(p999, None, "200 requests are too few for p99.9");
        assert_eq!(first.tally.of(Outcome::Exact).requests, 200);
        let second = live.look();
        assert_eq!((second.recent.count(), second.counted.count()), (0, 200));
        let recorded = live.take();
        assert_eq!((recorded.samples.len(), recorded.tally.total().right), (200, 200));
    }
}

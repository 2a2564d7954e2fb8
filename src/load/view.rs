//! Shows a run in progress: a line that is redrawn every second on a terminal, otherwise one every 5 s.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parm_loadgen::live::{Live, Snapshot};
use parm_loadgen::outcome::Outcome;

use super::flags::Load;
use crate::progress::Page;

/// Time between two looks at the run.
const EVERY: Duration = Duration::from_secs(1);

/// The view of a run in progress, until [`LiveView::end`].
pub struct LiveView(Option<(SyncSender<()>, JoinHandle<()>)>);

impl LiveView {
    pub fn start(live: Arc<Live>, flags: &Load, length: Duration) -> Self {
        if flags.quiet {
            return Self(None);
        }
        let (end, ended) = sync_channel(0);
        let clock = Clock { start: Instant::now(), warm_up: flags.warm_up(), length };
        let watch = move || {
            let (mut shown, mut last) = (Page::of_stderr(), clock.start);
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if !shown.is_due() {
                    continue;
                }
                // A look begins the next period.
                let (snapshot, now) = (live.look(), Instant::now());
                let (elapsed, period) = (now - clock.start, now - std::mem::replace(&mut last, now));
                let line = || line(&clock, elapsed, &snapshot, period);
                if let Some(line) = shown.show(line, line) {
                    eprintln!("{line}");
                }
            }
            shown.clear();
        };
        Self(Some((end, std::thread::spawn(watch))))
    }

    pub fn end(self) {
        if let Some((end, watch)) = self.0 {
            drop(end);
            // A failed view does not make the run fail.
            let _ = watch.join();
        }
    }
}

struct Clock {
    start: Instant,
    warm_up: Duration,
    length: Duration,
}

fn line(clock: &Clock, elapsed: Duration, snapshot: &Snapshot, period: Duration) -> String {
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| match snapshot.recent.known(share) {
        Some(time) => format!("{:.3}", time.as_secs_f64() * 1e3),
        None => "-".to_owned(),
    });
    let rate = snapshot.recent.count() as f64 / period.as_secs_f64();
    let (time, outcomes) = (time(clock, elapsed), outcomes(snapshot));
    format!("{time}: {rate:.0} requests/s, p50 {p50}, p99 {p99}, p99.9 {p999} ms  {outcomes}")
}

fn time(clock: &Clock, elapsed: Duration) -> String {
    let phase = match elapsed {
        elapsed if elapsed < clock.warm_up => ", warming up",
        elapsed if elapsed > clock.length => ", waiting for the last answers",
        _ => "",
    };
    format!("{:.0} of {:.0} s{phase}", elapsed.as_secs_f64(), clock.length.as_secs_f64())
}

fn outcomes(snapshot: &Snapshot) -> String {
    let total = snapshot.tally.total().requests.max(1) as f64;
    let seen = Outcome::ALL.into_iter().map(|outcome| (outcome, snapshot.tally.of(outcome).requests));
    let shares = seen
        .filter(|(_, requests)| *requests > 0)
        .map(|(outcome, requests)| format!("{} {:.2} %", outcome.name(), 100.0 * requests as f64 / total));
    shares.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use parm_loadgen::outcome::Tally;

    use super::*;

    fn seen() -> (Clock, Snapshot) {
        let second = Duration::from_secs(1);
        let clock = Clock { start: Instant::now(), warm_up: second, length: 11 * second };
        let mut tally = Tally::default();
        (0..3).for_each(|_| tally.request(Outcome::Exact));
        tally.request(Outcome::Reconstructed);
        let mut snapshot = Snapshot { tally, ..Snapshot::default() };
        (0..4).for_each(|_| snapshot.recent.record(Duration::from_micros(1500)));
        (clock, snapshot)
    }

    #[test]
    fn line_has_rate_quantiles_and_outcomes() {
        let (clock, snapshot) = seen();
        let second = Duration::from_secs(1);
        assert_eq!(
            line(&clock, 3 * second, &snapshot, 2 * second),
            "3 of 11 s: 2 requests/s, p50 1.500, p99 -, p99.9 - ms  exact 75.00 %, reconstructed 25.00 %"
        );
        for (at, phase) in [(0, "warming up"), (5, "5 of 11 s:"), (12, "waiting for the last answers")] {
            assert!(line(&clock, at * second, &snapshot, second).contains(phase));
        }
    }
}

//! Costs of candidates relative to the deployed model, on this engine and machine.
//!
//! A machine's speed changes during a measurement. Therefore the deployed model and all candidates take turns in one
//! run, and a cost is the ratio of two lower quartiles of that run: other work on the machine only adds time, to some
//! turns more than to others. An engine with one thread runs in the calling thread, whose processor time is measured: it
//! does not pass while other processes run.
//!
//! A long run is disturbed more often than a short one, and finds its caches replaced. So a model with shorter runs makes
//! several in its turn, until it has taken about as long as the deployed model: then both are disturbed alike. With four
//! endless loops on two cores, a candidate of 0.125 was measured at 0.01 by wall time, at 0.145 by processor time, and at
//! 0.13 with turns of equal length.

use std::time::{Duration, Instant};

use parm_protocol::MEASURED_ROWS;

use crate::Error;
use crate::memory::fitting;
use crate::rows::Rows;
use crate::workshop::{Clock, Progress, Runner};

/// The number of turns, unless the time budget ends earlier, and the fewest that give a result. Runs of several rows
/// take most of the time and rank no candidate, so fewer of them are enough.
const TURNS: usize = 101;
const FEWEST: usize = 11;
const FEWEST_TOGETHER: usize = 4;

/// Rows that are copied next to one another, in bytes.
const COPIED: u64 = 64 << 20;

/// The shortest turn, and the most runs in one: reading the clock takes a quarter of a microsecond.
const SHORTEST: Duration = Duration::from_micros(200);
const MOST_RUNS: f64 = 32.0;

/// Times of runs of 1, 2, 4 and 8 rows, as shares of the deployed model's time for one.
pub(crate) type Shares = [f64; 4];

/// The measured costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Costs {
    pub(crate) deployed: Duration,
    pub(crate) shares: Vec<Shares>,
    /// The largest lower quartile of a model's times, relative to its minimum. Near 1 on an idle machine.
    pub(crate) spread: f64,
    /// The share of the time in which the thread did not have a processor.
    pub(crate) waited: f64,
}

/// Spread above which costs of another measurement would differ.
const BUSY: f64 = 1.25;
/// The share of the time without a processor above which they would differ.
const WAITED: f64 = 0.1;

impl Costs {
    /// Adds the costs of other candidates, measured later.
    pub(crate) fn extend(&mut self, other: Self) {
        let is_first = self.deployed.is_zero();
        self.deployed = if is_first { other.deployed } else { self.deployed.min(other.deployed) };
        self.shares.extend(other.shares);
        self.spread = self.spread.max(other.spread);
        self.waited = self.waited.max(other.waited);
    }

    /// The warning that other work disturbed the measurement, if it did.
    pub(crate) fn doubt(&self) -> Option<String> {
        if self.waited > WAITED {
            return Some(format!(
                "the machine is busy: other processes had the processor for {:.0} % of the measurement, so costs are rough: \
                 stop them and repeat the command",
                100.0 * self.waited
            ));
        }
        (self.spread > BUSY).then(|| {
            let percent = 100.0 * (self.spread - 1.0);
            format!(
                "the machine is busy: run times vary by {percent:.0} %, so costs are rough: measure again"
            )
        })
    }
}

/// Times the first runner, which is the deployed model, and the candidates behind it for about `budget`, in runs of
/// `counts` rows: the first of [`MEASURED_ROWS`]. Runs of more rows take as long as several of the largest.
pub(crate) fn costs(
    runners: &mut [Runner],
    (rows, clock, counts): (&Rows, Clock, &[usize]),
    budget: Duration,
    progress: &dyn Progress,
) -> Result<Costs, Error> {
    // Copies of large rows would count as time of the model.
    let rows =
        &rows.first(fitting(COPIED, rows.bytes()).clamp(MEASURED_ROWS[3], TURNS + MEASURED_ROWS[3]))?;
    let mut runs: Vec<[usize; 4]> = Vec::with_capacity(runners.len());
    let mut whole = SHORTEST;
    for (place, runner) in runners.iter_mut().enumerate() {
        let counts = if place == 0 { &counts[..1] } else { counts };
        let mut own = [1; 4];
        for (own, &count) in own.iter_mut().zip(counts) {
            runner.prepare(rows, count)?;
            runner.run(rows, 0..count)?;
            let before = clock.now();
            runner.run(rows, 0..count)?;
            let took = clock.now().saturating_sub(before);
            if place == 0 {
                whole = whole.max(took);
            }
            *own = runs_of_turn(whole, took);
        }
        runs.push(own);
    }
    let mut times: Vec<[Vec<Duration>; 4]> = vec![Default::default(); runners.len()];
    let (started, used) = (Instant::now(), clock.used());
    for turn in 0..TURNS {
        match progress.is_stopped() {
            true if turn < FEWEST => return Err(Error::Stopped),
            true => break,
            false => {}
        }
        let is_late = started.elapsed() > budget;
        if is_late && turn >= FEWEST {
            break;
        }
        let is_short = is_late && turn >= FEWEST_TOGETHER;
        for (place, runner) in runners.iter_mut().enumerate() {
            let counts = if place == 0 || is_short { &counts[..1] } else { counts };
            // An untimed run first: the caches hold the previous model's data, whereas a worker runs one model again
            // and again.
            runner.run(rows, 0..1)?;
            for ((times, &count), &runs) in times[place].iter_mut().zip(counts).zip(&runs[place]) {
                let before = clock.now();
                for run in 0..runs {
                    let from = (turn + run) % (rows.len() - count + 1);
                    runner.run(rows, from..from + count)?;
                }
                times.push(clock.now().saturating_sub(before) / runs as u32);
            }
        }
    }
    let used = clock.used().zip(used).map(|(after, before)| after.saturating_sub(before));
    let waited = used.map_or(0.0, |used| waited(used, started.elapsed()));
    let spread = times.iter_mut().map(|times| spread(&mut times[0])).fold(1.0, f64::max);
    let deployed = quartile(&mut times[0][0]);
    let share = |times: &mut Vec<Duration>| quartile(times).as_secs_f64() / deployed.as_secs_f64().max(1e-9);
    let last = counts.len() - 1;
    let shares = times[1..].iter_mut().map(|times| {
        let measured = times.each_mut().map(share);
        let more = |at: usize| measured[last] * MEASURED_ROWS[at] as f64 / counts[last] as f64;
        std::array::from_fn(|at| if at <= last { measured[at] } else { more(at) })
    });
    let shares = shares.collect();
    Ok(Costs { deployed, shares, spread, waited })
}

/// The runs that a model makes in its turn, if one took so long and a turn takes `whole`.
fn runs_of_turn(whole: Duration, took: Duration) -> usize {
    (whole.as_secs_f64() / took.as_secs_f64().max(1e-9)).round().clamp(1.0, MOST_RUNS) as usize
}

/// The share of a time in which a thread did not have a processor, if it used one for `used`.
fn waited(used: Duration, passed: Duration) -> f64 {
    (1.0 - used.as_secs_f64() / passed.as_secs_f64().max(1e-9)).max(0.0)
}

fn quartile(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 4).copied().unwrap_or_default()
}

/// The lower quartile relative to the minimum.
fn spread(times: &mut [Duration]) -> f64 {
    let quartile = quartile(times).as_secs_f64();
    times.first().map_or(1.0, |least| quartile / least.as_secs_f64().max(1e-9))
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Value};
    use parm_protocol::Tensor;

    use super::*;
    use crate::testing::{Alone, Stage};

    #[test]
    fn varying_run_times_are_a_doubt() {
        let times = |least: u64| {
            let mut times: Vec<Duration> = (0..20).map(|_| Duration::from_micros(100)).collect();
            times[7] = Duration::from_micros(least);
            spread(&mut times)
        };
        let doubt = |spread| Costs { spread, ..Costs::default() }.doubt();
        assert_eq!(doubt(times(90)), None);
        let said = "the machine is busy: run times vary by 100 %, so costs are rough: measure again";
        assert_eq!(doubt(times(50)).as_deref(), Some(said));
    }

    #[test]
    fn time_without_a_processor_is_a_doubt() {
        let doubt = |used: u64| {
            let waited = waited(Duration::from_millis(used), Duration::from_millis(1_000));
            Costs { spread: 1.0, waited, ..Costs::default() }.doubt()
        };
        assert_eq!((doubt(1_001), doubt(950)), (None, None), "clocks differ, and so do interrupts");
        let said = doubt(70).unwrap();
        assert!(said.contains("for 93 % of") && said.contains("stop them and repeat"), "{said}");
        let mut all = Costs { waited: 0.5, ..Costs::default() };
        all.extend(Costs { waited: 0.0, ..Costs::default() });
        assert!(all.doubt().is_some(), "a later measurement does not hide it");
    }

    #[test]
    fn shorter_runs_fill_a_turn_of_the_same_length() {
        let micros = Duration::from_micros;
        let runs = |took| runs_of_turn(micros(8_000), micros(took));
        assert_eq!([9_000, 8_000, 4_100, 1_000, 10].map(runs), [1, 1, 2, 8, 32]);
    }

    #[test]
    fn cost_is_relative_to_the_deployed_model_without_a_budget() {
        let (mut builder, x) = Builder::reading("model", 1, Value::batch_of_f32("x", &[64]));
        builder.node("Relu", "y", &[&x]);
        builder.output(Value::batch_of_f32("y", &[64]));
        let (stage, model) = (Stage::new(), builder.build().unwrap());
        let values = vec![0.5; 16 * 64];
        let rows = stage.rows(&model, &[Tensor::from_f32([16, 64].as_slice(), &values).unwrap()]);
        let mut runners: Vec<Runner> =
            (0..2).map(|_| stage.workshop.load("model", model.bytes()).unwrap()).collect();
        let clock = stage.workshop.clock();
        let found = costs(&mut runners, (&rows, clock, &MEASURED_ROWS), Duration::ZERO, &Alone).unwrap();
        assert!(found.deployed > Duration::ZERO && found.spread >= 1.0, "{found:?}");
        assert!(found.shares.len() == 1 && found.shares[0].iter().all(|share| *share > 0.0), "{found:?}");
        let few = costs(&mut runners, (&rows, clock, &MEASURED_ROWS[..2]), Duration::ZERO, &Alone).unwrap();
        let [_, two, four, eight] = few.shares[0];
        assert_eq!((four, eight), (2.0 * two, 4.0 * two), "large runs are not made");
    }
}

//! Costs of candidates relative to the deployed model, on this engine and machine.
//!
//! A machine's speed changes during a measurement. Therefore the deployed model and all candidates take turns in one
//! run, and a cost is the ratio of two lower quartiles of that run: other work on the machine only adds time, to some
//! turns more than to others. An engine with one thread runs in the calling thread, whose processor time is measured: it
//! does not pass while other processes run.

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

/// Times of runs of 1, 2, 4 and 8 rows, as shares of the deployed model's time for one.
pub(crate) type Shares = [f64; 4];

/// The measured costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Costs {
    /// Time of a query on the deployed model.
    pub(crate) deployed: Duration,
    /// The candidates' shares, in their order.
    pub(crate) shares: Vec<Shares>,
    /// The largest lower quartile of a model's times, relative to its minimum. Near 1 on an idle machine.
    pub(crate) spread: f64,
}

/// Spread above which costs of another measurement would differ.
const BUSY: f64 = 1.25;

impl Costs {
    /// Adds the costs of other candidates, measured later.
    pub(crate) fn extend(&mut self, other: Self) {
        let is_first = self.deployed.is_zero();
        self.deployed = if is_first { other.deployed } else { self.deployed.min(other.deployed) };
        self.shares.extend(other.shares);
        self.spread = self.spread.max(other.spread);
    }

    /// The warning that other work disturbed the measurement, if it did.
    pub(crate) fn doubt(&self) -> Option<String> {
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
    for (place, runner) in runners.iter_mut().enumerate() {
        let counts = if place == 0 { &counts[..1] } else { counts };
        for &count in counts {
            runner.prepare(rows, count)?;
            runner.run(rows, 0..count)?;
        }
    }
    let mut times: Vec<[Vec<Duration>; 4]> = vec![Default::default(); runners.len()];
    let started = Instant::now();
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
            for (times, &count) in times[place].iter_mut().zip(counts) {
                let from = turn % (rows.len() - count + 1);
                let before = clock.now();
                runner.run(rows, from..from + count)?;
                times.push(clock.now().saturating_sub(before));
            }
        }
    }
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
    Ok(Costs { deployed, shares, spread })
}

/// The lower quartile.
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
    fn cost_is_relative_to_the_deployed_model_without_a_budget() {
        let mut builder = Builder::new("model", 1);
        let x = builder.input(Value::batch_of_f32("x", &[64]));
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

//! Costs of candidates relative to the deployed model, on this engine and machine.
//!
//! A machine's speed changes during a measurement. Therefore the deployed model and all candidates take turns in one
//! run, and a cost is the ratio of two lower quartiles of that run: other work on the machine only adds time, to some
//! turns more than to others.

use std::time::{Duration, Instant};

use parm_protocol::MEASURED_ROWS;

use crate::Error;
use crate::rows::Rows;
use crate::workshop::{Progress, Runner};

/// The number of turns, unless the time budget ends earlier, and the fewest that give a result. Runs of several rows
/// take most of the time and rank no candidate, so fewer of them are enough.
const TURNS: usize = 101;
const FEWEST: usize = 11;
const FEWEST_TOGETHER: usize = 4;

/// Times of runs of 1, 2, 4 and 8 rows, as shares of the deployed model's time for one.
pub(crate) type Shares = [f64; 4];

/// The measured costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Costs {
    /// Time of a query on the deployed model.
    pub(crate) deployed: Duration,
    /// The candidates' shares, in their order.
    pub(crate) shares: Vec<Shares>,
}

/// Times the first runner, which is the deployed model, and the candidates behind it for about `budget`.
pub(crate) fn costs(
    runners: &mut [&mut Runner],
    rows: &Rows,
    budget: Duration,
    progress: &dyn Progress,
) -> Result<Costs, Error> {
    for (place, runner) in runners.iter_mut().enumerate() {
        let counts = if place == 0 { &MEASURED_ROWS[..1] } else { &MEASURED_ROWS[..] };
        for &count in counts {
            runner.prepare(rows, count)?;
            runner.run(rows, 0..count)?;
        }
    }
    let mut times: Vec<[Vec<Duration>; 4]> = vec![Default::default(); runners.len()];
    let started = Instant::now();
    for turn in 0..TURNS {
        if progress.is_stopped() {
            return Err(Error::Stopped);
        }
        let is_late = started.elapsed() > budget;
        if is_late && turn >= FEWEST {
            break;
        }
        let is_short = is_late && turn >= FEWEST_TOGETHER;
        for (place, runner) in runners.iter_mut().enumerate() {
            let counts = if place == 0 || is_short { &MEASURED_ROWS[..1] } else { &MEASURED_ROWS[..] };
            // An untimed run first: the caches hold the previous model's data, whereas a worker runs one model again
            // and again.
            runner.run(rows, 0..1)?;
            for (times, &count) in times[place].iter_mut().zip(counts) {
                let from = turn % (rows.len() - count + 1);
                let started = Instant::now();
                runner.run(rows, from..from + count)?;
                times.push(started.elapsed());
            }
        }
    }
    let deployed = quartile(&mut times[0][0]);
    let share = |times: &mut Vec<Duration>| quartile(times).as_secs_f64() / deployed.as_secs_f64().max(1e-9);
    let shares = times[1..].iter_mut().map(|times| times.each_mut().map(share)).collect();
    Ok(Costs { deployed, shares })
}

/// The lower quartile.
fn quartile(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 4).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Value};
    use parm_protocol::Tensor;

    use super::*;
    use crate::testing::{Alone, Stage};

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
        let mut runners: Vec<&mut Runner> = runners.iter_mut().collect();
        let found = costs(&mut runners, &rows, Duration::ZERO, &Alone).unwrap();
        assert!(found.deployed > Duration::ZERO);
        assert!(found.shares.len() == 1 && found.shares[0].iter().all(|share| *share > 0.0), "{found:?}");
    }
}

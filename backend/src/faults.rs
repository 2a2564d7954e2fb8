//! Faults on purpose, for experiments: a plan, changed at run time, that instances obey.
//!
//! A worker carries this only when its configuration allows it. Everything random comes from the plan's seed and the
//! instance's number, so a run can be repeated. Setting a plan takes effect at once: an instance that stalls under the
//! old plan wakes up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use parm_protocol::Tensor;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::{Distribution, Error, pause};

/// What shall go wrong. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// The only instance concerned, counted from 0; all by default.
    pub instance: Option<usize>,
    /// Seed of everything drawn.
    pub seed: u64,
    /// Time added to a run.
    pub delay: Option<Distribution>,
    /// Share of the runs that `delay` is added to, 0 to 1; all by default.
    pub delay_rate: Rate,
    /// How many times as long as the model a run shall take: 10 makes a straggler. Default 1.
    pub slowdown: Slowdown,
    /// Milliseconds for which nothing is answered, from the moment the plan is set.
    pub stall_ms: u64,
    /// Share of the runs that fail, 0 to 1.
    pub error_rate: f64,
    /// How answers are falsified.
    pub wrong: Option<Wrong>,
    /// Share of the runs that `wrong` falsifies, 0 to 1; all by default.
    pub wrong_rate: Rate,
    /// End the process at the next run, as a crash would.
    pub crash: bool,
}

/// A share of runs, all by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub f64);

/// A factor on service times, 1 by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slowdown(pub f64);

/// A way to falsify FP32 answers; their shape stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// Every row's values move by one place: a confident answer for another class.
    Permute,
    /// Every value changes its sign.
    Negate,
    /// Values drawn between the answer's least and greatest.
    Random,
}

/// The plan in force.
#[derive(Debug, Default)]
pub struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    plan: Plan,
    stalled_until: Option<Instant>,
    rngs: BTreeMap<usize, Pcg64Mcg>,
}

/// What one run shall suffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Injection {
    delay: Duration,
    slowdown: f64,
    fails: bool,
    wrong: Option<(Wrong, u64)>,
}

impl Default for Rate {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Default for Slowdown {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Plan {
    fn check(&self) -> Result<(), Error> {
        self.delay.map_or(Ok(()), |delay| delay.check())?;
        for (name, rate) in [
            ("delay_rate", self.delay_rate.0),
            ("error_rate", self.error_rate),
            ("wrong_rate", self.wrong_rate.0),
        ] {
            if !(0.0..=1.0).contains(&rate) {
                return Err(Error::Plan { message: format!("{name} is {rate}, it must lie in 0 to 1") });
            }
        }
        let slowdown = self.slowdown.0;
        if !(1.0..=1e6).contains(&slowdown) {
            return Err(Error::Plan { message: format!("slowdown is {slowdown}, it must lie in 1 to 1e6") });
        }
        Ok(())
    }
}

impl Faults {
    /// Puts a plan in force, in place of the one before.
    pub fn set(&self, plan: Plan) -> Result<(), Error> {
        plan.check()?;
        tracing::warn!(?plan, "fault injection");
        let mut state = self.state.lock();
        let stalled_until = Instant::now().checked_add(Duration::from_millis(plan.stall_ms));
        *state = State { stalled_until, plan, rngs: BTreeMap::new() };
        self.changed.notify_all();
        Ok(())
    }

    /// The plan in force.
    pub fn plan(&self) -> Plan {
        self.state.lock().plan.clone()
    }

    /// Before a run on an instance: stalls and crashes happen here, the rest is drawn.
    pub(crate) fn before(&self, instance: usize) -> Injection {
        let mut state = self.state.lock();
        loop {
            if state.plan.instance.is_some_and(|only| only != instance) {
                return Injection::NONE;
            }
            if state.plan.crash {
                tracing::error!("crashing, as the fault plan asks");
                std::process::abort();
            }
            match state.stalled_until {
                Some(end) if end > Instant::now() => drop(self.changed.wait_until(&mut state, end)),
                _ => return state.draw(instance),
            }
        }
    }
}

impl State {
    fn draw(&mut self, instance: usize) -> Injection {
        let Self { plan, rngs, .. } = self;
        let seed = plan.seed ^ (instance as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let rng = rngs.entry(instance).or_insert_with(|| Pcg64Mcg::seed_from_u64(seed));
        // The same draws in the same order whatever the plan holds: plans that differ in one thing stay comparable.
        let (delayed, fails, falsified) = (rng.random::<f64>(), rng.random::<f64>(), rng.random::<f64>());
        let noise = rng.random::<u64>();
        let mut own = Pcg64Mcg::seed_from_u64(noise);
        let delay = plan.delay.filter(|_| delayed < plan.delay_rate.0);
        Injection {
            delay: delay.map_or(Duration::ZERO, |delay| delay.sample(&mut own)),
            slowdown: plan.slowdown.0,
            fails: fails < plan.error_rate,
            wrong: plan.wrong.filter(|_| falsified < plan.wrong_rate.0).map(|wrong| (wrong, noise)),
        }
    }
}

impl Injection {
    /// No fault.
    pub(crate) const NONE: Injection =
        Injection { delay: Duration::ZERO, slowdown: 1.0, fails: false, wrong: None };

    /// After a run that began at `started`: waits, then fails or falsifies.
    pub(crate) fn apply(&self, started: Instant, outputs: Vec<Tensor>) -> Result<Vec<Tensor>, Error> {
        let more = started.elapsed().mul_f64(self.slowdown - 1.0) + self.delay;
        if !more.is_zero() {
            pause::until(Instant::now() + more);
        }
        if self.fails {
            return Err(Error::Run { message: "an injected fault".into() });
        }
        match self.wrong {
            Some((wrong, noise)) => outputs.into_iter().map(|output| falsify(output, wrong, noise)).collect(),
            None => Ok(outputs),
        }
    }
}

fn falsify(output: Tensor, wrong: Wrong, noise: u64) -> Result<Tensor, Error> {
    let Ok(values) = output.as_f32() else {
        return Ok(output);
    };
    let mut values = values.into_owned();
    match wrong {
        Wrong::Permute => {
            let row = (values.len() / output.rows().max(1)).max(1);
            values.chunks_mut(row).for_each(|row| row.rotate_right(1));
        }
        Wrong::Negate => values.iter_mut().for_each(|value| *value = -*value),
        Wrong::Random => {
            let (least, greatest) = values
                .iter()
                .filter(|value| value.is_finite())
                .fold((f32::MAX, f32::MIN), |(least, greatest), &value| {
                    (least.min(value), greatest.max(value))
                });
            let mut rng = Pcg64Mcg::seed_from_u64(noise);
            let mut draw = || least + (greatest - least).max(0.0) * rng.random::<f32>();
            values.iter_mut().for_each(|value| *value = draw());
        }
    }
    Tensor::from_f32(output.shape(), &values).map_err(|error| Error::Run { message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Vec<Tensor> {
        vec![Tensor::from_f32([2, 3].as_slice(), &[1., 2., 3., 4., 5., 6.]).unwrap()]
    }

    fn falsified(wrong: Wrong) -> Vec<f32> {
        let faults = Faults::default();
        faults.set(Plan { wrong: Some(wrong), ..Plan::default() }).unwrap();
        let outputs = faults.before(0).apply(Instant::now(), answer()).unwrap();
        outputs[0].as_f32().unwrap().into_owned()
    }

    #[test]
    fn the_default_plan_changes_nothing() {
        assert_eq!(Faults::default().before(3).apply(Instant::now(), answer()), Ok(answer()));
    }

    #[test]
    fn wrong_answers_keep_their_shape_and_range() {
        assert_eq!(falsified(Wrong::Permute), [3., 1., 2., 6., 4., 5.]);
        assert_eq!(falsified(Wrong::Negate), [-1., -2., -3., -4., -5., -6.]);
        let random = falsified(Wrong::Random);
        assert!(random.iter().all(|value| (1. ..=6.).contains(value)), "{random:?}");
        assert_ne!(random, [1., 2., 3., 4., 5., 6.]);
    }

    #[test]
    fn drawn_faults_repeat_with_the_seed_and_hit_their_share() {
        let draw = |seed| {
            let faults = Faults::default();
            let delay = Some(Distribution::Exponential { mean_ms: 1.0, shift_ms: 0.0 });
            let delay_rate = Rate(0.25);
            faults.set(Plan { seed, delay, delay_rate, error_rate: 0.1, ..Plan::default() }).unwrap();
            (0..2000).map(|_| faults.before(1)).collect::<Vec<_>>()
        };
        let injections = draw(5);
        assert_eq!(injections, draw(5));
        assert_ne!(injections, draw(6));
        let delayed = injections.iter().filter(|injection| !injection.delay.is_zero()).count();
        let failing = injections.iter().filter(|injection| injection.fails).count();
        assert!((400..600).contains(&delayed) && (130..270).contains(&failing), "{delayed} {failing}");
    }

    #[test]
    fn a_plan_for_one_instance_spares_the_others() {
        let faults = Faults::default();
        faults.set(Plan { instance: Some(1), error_rate: 1.0, ..Plan::default() }).unwrap();
        assert_eq!(faults.before(0), Injection::NONE);
        assert!(faults.before(1).apply(Instant::now(), answer()).is_err());
    }

    #[test]
    fn a_new_plan_ends_a_stall() {
        let faults = Faults::default();
        faults.set(Plan { stall_ms: 3_600_000, ..Plan::default() }).unwrap();
        std::thread::scope(|scope| {
            let stalled = scope.spawn(|| faults.before(0));
            faults.set(Plan::default()).unwrap();
            assert_eq!(stalled.join().unwrap(), Injection::NONE);
        });
    }

    #[test]
    fn rates_beyond_one_are_refused() {
        let plan = Plan { error_rate: 1.5, ..Plan::default() };
        let message = "error_rate is 1.5, it must lie in 0 to 1".into();
        assert_eq!(Faults::default().set(plan), Err(Error::Plan { message }));
    }
}

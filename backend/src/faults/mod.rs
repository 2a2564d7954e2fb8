//! Fault injection for experiments: a plan, changed at run time, that instances follow.
//!
//! A worker has this only if its configuration allows it. All random numbers depend on the plan's seed and the
//! instance's number, so a run can be repeated. A new plan takes effect at once: an instance that stalls under the old
//! plan wakes up. `replay` plays the fault schedules of experiments.

mod replay;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use parm_durations::Millis;
use parm_protocol::Tensor;
use parm_transport::keys::{Access, Method, Route};
use parm_workload::Random;
use parm_workload::distribution::Distribution;
use serde::{Deserialize, Serialize};

use crate::{Error, pause};
use replay::{Fate, Playing};

pub use replay::Replay;

/// `/faults`, at the metrics address of a worker, and the access that each route requires.
pub static ROUTES: &[Route] = &[
    Route::page(Method::GET, "/faults", Access::Read),
    Route::page(Method::POST, "/faults", Access::Control),
    Route::page(Method::PUT, "/faults", Access::Control),
];

/// The faults to inject, as an operator or an experiment sends them to a worker. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// The only affected instance, counted from 0. Default: all.
    pub instance: Option<usize>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Milliseconds added to a run, at most a minute, as in experiment files. Default: none.
    pub delay_ms: Option<Distribution>,
    /// Share of the runs to which `delay_ms` is added, 0 to 1. Default: all.
    pub delay_rate: Factor,
    /// Factor on the run time of the model: 10 makes a straggler. Default 1.
    pub slowdown: Factor,
    /// Milliseconds without any answer, from the moment the plan is set.
    #[serde(rename = "stall_ms", with = "Millis")]
    pub stall: Duration,
    /// Share of the runs that fail, 0 to 1.
    pub error_rate: f64,
    /// Share of the runs whose answers are falsified, 0 to 1.
    pub wrong_rate: f64,
    /// A complete fault schedule of an experiment, in addition to the rest. Default: none.
    pub schedule: Option<Replay>,
}

/// A share of runs, or a factor. Default 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Factor(pub f64);

impl Default for Factor {
    fn default() -> Self {
        Self(1.0)
    }
}

/// The current plan.
#[derive(Debug, Default)]
pub struct Faults {
    state: Mutex<InForce>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct InForce {
    plan: Plan,
    stalled_until: Option<Instant>,
    /// Random numbers, by instance.
    random: BTreeMap<usize, Random>,
    playing: Option<Playing>,
    /// Number of changes of the plan.
    changes: u64,
}

/// The faults of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Injection {
    delay: Duration,
    slowdown: f64,
    fails: bool,
    wrong: bool,
}

impl Injection {
    const NONE: Injection = Injection { delay: Duration::ZERO, slowdown: 1.0, fails: false, wrong: false };
}

/// The end of a long wait, which is a precise pause.
const PRECISELY: Duration = Duration::from_millis(1);

impl Plan {
    fn check(&self) -> Result<(), Error> {
        self.delay_ms.as_ref().map_or(Ok(()), Distribution::check)?;
        self.schedule.as_ref().map_or(Ok(()), Replay::check)?;
        for (name, number, range, said) in [
            ("delay_rate", self.delay_rate.0, 0.0..=1.0, "0 to 1"),
            ("error_rate", self.error_rate, 0.0..=1.0, "0 to 1"),
            ("wrong_rate", self.wrong_rate, 0.0..=1.0, "0 to 1"),
            ("slowdown", self.slowdown.0, 1.0..=1e6, "1 to 1e6"),
        ] {
            if !range.contains(&number) {
                let message = format!("{name} is {number}: give a number from {said}");
                return Err(Error::Plan { message });
            }
        }
        Ok(())
    }
}

impl Faults {
    /// Replaces the current plan.
    pub fn set(&self, plan: Plan) -> Result<(), Error> {
        plan.check()?;
        let told = serde_json::to_string(&plan).unwrap_or_default();
        tracing::warn!(plan = %told, "fault plan changed");
        let now = Instant::now();
        let playing = plan.schedule.as_ref().map(|schedule| schedule.play(now)).transpose()?;
        let stalled_until = now.checked_add(plan.stall);
        let mut state = self.state.lock();
        let changes = state.changes + 1;
        *state = InForce { stalled_until, plan, random: BTreeMap::new(), playing, changes };
        self.changed.notify_all();
        Ok(())
    }

    /// The current plan.
    pub fn plan(&self) -> Plan {
        self.state.lock().plan.clone()
    }

    /// A run on an instance, with all faults of the plan: first those of its fields, then those of the schedule.
    pub(crate) fn around(
        &self,
        instance: usize,
        inputs: &[Tensor],
        run: impl FnOnce() -> Result<Vec<Tensor>, Error>,
    ) -> Result<Vec<Tensor>, Error> {
        let Injection { delay, slowdown, fails, wrong } = self.before(instance);
        let began = Instant::now();
        let mut outputs = run()?;
        let more = began.elapsed().mul_f64(slowdown - 1.0) + delay;
        if !more.is_zero() {
            pause::until(Instant::now() + more);
        }
        if fails {
            return Err(Error::Run { message: "an injected fault".into() });
        }
        if wrong {
            outputs = falsified(outputs)?;
        }
        let mut state = self.state.lock();
        let Some(playing) = &mut state.playing else { return Ok(outputs) };
        let Some(fate) = playing.fate(instance, inputs, began, began.elapsed()) else { return Ok(outputs) };
        match self.suffer(state, fate) {
            Some((_, true)) => falsified(outputs),
            _ => Ok(outputs),
        }
    }

    /// Waits for the end of an iteration of an emulated chat server that began at a moment and takes this long without
    /// faults. Returns when it was to end: a thread that wakes up late can begin the next one in time.
    pub(crate) fn iterate(&self, instance: usize, began: Instant, took: Duration) -> Instant {
        let injection = self.before(instance);
        let mut state = self.state.lock();
        let affected = state.plan.instance.is_none_or(|only| only == instance);
        let began = state.stalled_until.filter(|_| affected).map_or(began, |stalled| stalled.max(began));
        let took = took.mul_f64(injection.slowdown) + injection.delay;
        let fate = state.playing.as_mut().and_then(|playing| playing.fate(instance, &[], began, took));
        let ended = self.suffer(state, fate.unwrap_or(Fate::Answers(began + took, false)));
        ended.map_or_else(Instant::now, |(at, _)| at)
    }

    /// Draws the faults of a request to an emulated chat server that do not take time: whether it fails, and whether its answer
    /// is wrong.
    pub(crate) fn of_request(&self, instance: usize, number: u64) -> (bool, bool) {
        let state = self.state.lock();
        let plan = &state.plan;
        if plan.instance.is_some_and(|only| only != instance) {
            return (false, false);
        }
        let mut random = Random::of(plan.seed, [instance as u64, number]);
        let (fails, falsified) = (random.unit(), random.unit());
        (fails < plan.error_rate, falsified < plan.wrong_rate)
    }

    /// The start of a run: stalls happen here, other faults are drawn.
    fn before(&self, instance: usize) -> Injection {
        let mut state = self.state.lock();
        loop {
            if state.plan.instance.is_some_and(|only| only != instance) {
                return Injection::NONE;
            }
            match state.stalled_until {
                Some(end) if end > Instant::now() => drop(self.changed.wait_until(&mut state, end)),
                _ => return state.draw(instance),
            }
        }
    }

    /// Waits until an answer is ready, for ever if it never is. Returns when that was and whether it is wrong; `None`, and
    /// early, if the plan changes.
    fn suffer(&self, mut state: MutexGuard<'_, InForce>, fate: Fate) -> Option<(Instant, bool)> {
        let end = match fate {
            Fate::Answers(at, _) | Fate::Dies(at) => Some(at),
            Fate::Never => None,
        };
        let changes = state.changes;
        let nearly = end.map(|end| end.checked_sub(PRECISELY).unwrap_or(end));
        while state.changes == changes && nearly.is_none_or(|nearly| nearly > Instant::now()) {
            match nearly {
                Some(nearly) => drop(self.changed.wait_until(&mut state, nearly)),
                None => self.changed.wait(&mut state),
            }
        }
        if state.changes != changes {
            return None;
        }
        drop(state);
        end.into_iter().for_each(pause::until);
        match fate {
            Fate::Answers(at, wrong) => Some((at, wrong)),
            Fate::Never => None,
            Fate::Dies(_) => {
                tracing::error!("crash injected by the fault schedule");
                std::process::abort();
            }
        }
    }
}

impl InForce {
    fn draw(&mut self, instance: usize) -> Injection {
        let Self { plan, random, .. } = self;
        let random = random.entry(instance).or_insert_with(|| Random::of(plan.seed, [instance as u64]));
        // Draws in the same order for every plan, so that plans with one difference stay comparable.
        let (delayed, fails, falsified) = (random.unit(), random.unit(), random.unit());
        let noise = random.bits();
        let delay = plan.delay_ms.as_ref().filter(|_| delayed < plan.delay_rate.0);
        Injection {
            delay: delay
                .map_or(Duration::ZERO, |delay| pause::millis(delay.sample(&mut Random::of(noise, [])))),
            slowdown: plan.slowdown.0,
            fails: fails < plan.error_rate,
            wrong: falsified < plan.wrong_rate,
        }
    }
}

/// Wrong answers of the same shapes: every row of floats has its values moved by one place, a confident answer for another class.
fn falsified(outputs: Vec<Tensor>) -> Result<Vec<Tensor>, Error> {
    let falsify = |output: Tensor| {
        let Ok(values) = output.as_f32() else {
            return Ok(output);
        };
        let mut values = values.into_owned();
        let row = (values.len() / output.rows().max(1)).max(1);
        values.chunks_mut(row).for_each(|row| row.rotate_right(1));
        Ok(Tensor::from_f32(output.shape(), &values)?)
    };
    outputs.into_iter().map(falsify).collect()
}

#[cfg(test)]
mod tests {
    use parm_workload::{Fault, Targets, When};

    use super::*;

    fn answer() -> Vec<Tensor> {
        vec![Tensor::from_f32([2, 3].as_slice(), &[1., 2., 3., 4., 5., 6.]).unwrap()]
    }

    /// The first output of a run on an instance under a plan.
    fn output(plan: Plan, instance: usize) -> Result<Vec<f32>, Error> {
        let faults = Faults::default();
        faults.set(plan)?;
        Ok(faults.around(instance, &[], || Ok(answer()))?[0].as_f32().unwrap().into_owned())
    }

    fn scheduled(fault: Fault) -> Option<Replay> {
        let faults = parm_workload::Faults(vec![fault]);
        Some(Replay { scenario: None, faults, seed: 1, first: 0, instances: 1, starts_in_ms: -10 })
    }

    #[test]
    fn wrong_answers_keep_their_shape() {
        let falsified = |wrong_rate| output(Plan { wrong_rate, ..Plan::default() }, 3).unwrap();
        assert_eq!(falsified(0.0), [1., 2., 3., 4., 5., 6.]);
        assert_eq!(falsified(1.0), [3., 1., 2., 6., 4., 5.]);
        let schedule = scheduled(Fault::Wrong { share: 1.0, when: When::Always, on: Targets::Each });
        let both = output(Plan { schedule, wrong_rate: 1.0, ..Plan::default() }, 0).unwrap();
        assert_eq!(both[0], 2.0, "the plan and its schedule falsify an answer twice");
    }

    #[test]
    fn drawn_faults_depend_on_the_seed_and_have_their_share() {
        let draw = |seed| {
            let faults = Faults::default();
            let delay_ms = Some(Distribution::Exponential { mean: 1.0, shift: 0.0 });
            let delay_rate = Factor(0.25);
            faults.set(Plan { seed, delay_ms, delay_rate, error_rate: 0.1, ..Plan::default() }).unwrap();
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
    fn plan_for_one_instance_does_not_affect_others() {
        let plan = || Plan { instance: Some(1), error_rate: 1.0, ..Plan::default() };
        assert!(output(plan(), 0).is_ok() && output(plan(), 1).is_err());
    }

    #[test]
    fn new_plan_ends_a_stall_and_a_hang_of_a_schedule() {
        let schedule = scheduled(Fault::Hang { when: When::Always, on: Targets::Each });
        for plan in [
            Plan { stall: Duration::from_secs(3600), ..Plan::default() },
            Plan { schedule, ..Plan::default() },
        ] {
            let faults = Faults::default();
            faults.set(plan).unwrap();
            std::thread::scope(|scope| {
                let hung = scope.spawn(|| faults.around(0, &[], || Ok(answer())));
                faults.set(Plan::default()).unwrap();
                assert_eq!(hung.join().unwrap(), Ok(answer()));
            });
        }
    }

    #[test]
    fn hang_of_a_schedule_lasts_as_long_as_it_says() {
        let when = When::Once { at: Duration::ZERO, length: Duration::from_millis(60) };
        let schedule = scheduled(Fault::Hang { when, on: Targets::Each });
        let set = Instant::now();
        output(Plan { schedule, ..Plan::default() }, 0).unwrap();
        assert!(set.elapsed() >= Duration::from_millis(45), "the hang must last for the rest of 60 ms");
    }

    #[test]
    fn invalid_plans_are_rejected() {
        let message = "error_rate is 1.5: give a number from 0 to 1".into();
        assert_eq!(output(Plan { error_rate: 1.5, ..Plan::default() }, 0), Err(Error::Plan { message }));
        let schedule = scheduled(Fault::Hang { when: When::Always, on: Targets::Only(vec![3]) });
        assert!(matches!(output(Plan { schedule, ..Plan::default() }, 0), Err(Error::Plan { .. })));
    }
}

//! Fault injection for experiments: a plan, changed at run time, that instances follow.
//!
//! A worker has this only if its configuration allows it. All random numbers depend on the plan's seed and the
//! instance's number, so a run can be repeated. A new plan takes effect at once: an instance that stalls under the old
//! plan wakes up. `plan` has the settings, `injection` the faults of one run, and `replay` plays the fault schedules of
//! experiments. `queries` names queries, for faults that follow them.

mod access;
mod injection;
mod plan;
mod queries;
mod replay;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use injection::Injection;
use parking_lot::{Condvar, Mutex, MutexGuard};
use parm_protocol::Tensor;
use parm_workload::Random;
use replay::{Fate, Playing};

use crate::chat::RequestFaults;
use crate::{Error, pause};
pub use access::ROUTES;
pub use plan::{Plan, Rate, Slowdown, Wrong};
pub use replay::Replay;

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

/// The end of a long wait, which is a precise pause.
const PRECISELY: Duration = Duration::from_millis(1);

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

    /// A run on an instance, with all faults of the plan.
    pub(crate) fn around(
        &self,
        instance: usize,
        inputs: &[Tensor],
        run: impl FnOnce() -> Result<Vec<Tensor>, Error>,
    ) -> Result<Vec<Tensor>, Error> {
        let injection = self.before(instance);
        let began = Instant::now();
        let outputs = injection.apply(began, run()?)?;
        self.live_through(instance, inputs, began, outputs)
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
        let changes = state.changes;
        let end = match fate {
            None => Some(began + took),
            Some(Fate::Answers(at, _) | Fate::Dies(at)) => Some(at),
            Some(Fate::Never) => None,
        };
        if self.hold(state, end, changes) {
            return Instant::now();
        }
        if let Some(Fate::Dies(_)) = fate {
            tracing::error!("crash injected by the fault schedule");
            std::process::abort();
        }
        end.unwrap_or(began)
    }

    /// Waits until `end`, for ever without one. Returns early, and whether it did so, if the plan changes.
    fn hold(&self, mut state: MutexGuard<'_, InForce>, end: Option<Instant>, changes: u64) -> bool {
        let nearly = end.map(|end| end.checked_sub(PRECISELY).unwrap_or(end));
        while state.changes == changes && nearly.is_none_or(|nearly| nearly > Instant::now()) {
            match nearly {
                Some(nearly) => drop(self.changed.wait_until(&mut state, nearly)),
                None => self.changed.wait(&mut state),
            }
        }
        if state.changes != changes {
            return true;
        }
        drop(state);
        end.into_iter().for_each(pause::until);
        false
    }

    /// Draws the faults of a request to an emulated chat server that do not take time.
    pub(crate) fn of_request(&self, instance: usize, number: u64) -> RequestFaults {
        let state = self.state.lock();
        let plan = &state.plan;
        if plan.instance.is_some_and(|only| only != instance) {
            return RequestFaults::default();
        }
        let mut random = Random::of(plan.seed, [instance as u64, number]);
        let (fails, falsified) = (random.unit(), random.unit());
        let wrong = plan.wrong.is_some() && falsified < plan.wrong_rate.0;
        RequestFaults { fails: fails < plan.error_rate, wrong }
    }

    /// The start of a run: stalls and crashes happen here, other faults are drawn.
    fn before(&self, instance: usize) -> Injection {
        let mut state = self.state.lock();
        loop {
            if state.plan.instance.is_some_and(|only| only != instance) {
                return Injection::NONE;
            }
            if state.plan.crash {
                tracing::error!("crash injected by the fault plan");
                std::process::abort();
            }
            match state.stalled_until {
                Some(end) if end > Instant::now() => drop(self.changed.wait_until(&mut state, end)),
                _ => return state.draw(instance),
            }
        }
    }

    /// Holds the answer of a run back for as long as the schedule says, and falsifies it if the schedule says so.
    fn live_through(
        &self,
        instance: usize,
        inputs: &[Tensor],
        began: Instant,
        outputs: Vec<Tensor>,
    ) -> Result<Vec<Tensor>, Error> {
        let mut state = self.state.lock();
        let Some(playing) = &mut state.playing else { return Ok(outputs) };
        let (fate, changes) = (playing.fate(instance, inputs, began, began.elapsed()), state.changes);
        let wrong = state.plan.wrong.unwrap_or(Wrong::Permute);
        let end = match fate {
            None => return Ok(outputs),
            Some(Fate::Answers(at, _) | Fate::Dies(at)) => Some(at),
            Some(Fate::Never) => None,
        };
        if self.hold(state, end, changes) {
            return Ok(outputs);
        }
        match fate {
            Some(Fate::Dies(_)) => {
                tracing::error!("crash injected by the fault schedule");
                std::process::abort();
            }
            Some(Fate::Answers(at, true)) => {
                let noise = at.saturating_duration_since(began).as_nanos() as u64;
                outputs.into_iter().map(|output| injection::falsify(output, wrong, noise)).collect()
            }
            _ => Ok(outputs),
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
            wrong: plan.wrong.filter(|_| falsified < plan.wrong_rate.0).map(|wrong| (wrong, noise)),
        }
    }
}

#[cfg(test)]
mod tests {
    use parm_workload::distribution::Distribution;
    use parm_workload::{Fault, Targets, When};

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
    fn default_plan_injects_no_faults() {
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
    fn drawn_faults_depend_on_the_seed_and_have_their_share() {
        let draw = |seed| {
            let faults = Faults::default();
            let delay_ms = Some(Distribution::Exponential { mean: 1.0, shift: 0.0 });
            let delay_rate = Rate(0.25);
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
        let faults = Faults::default();
        faults.set(Plan { instance: Some(1), error_rate: 1.0, ..Plan::default() }).unwrap();
        assert_eq!(faults.before(0), Injection::NONE);
        assert!(faults.before(1).apply(Instant::now(), answer()).is_err());
    }

    #[test]
    fn new_plan_ends_a_stall() {
        let faults = Faults::default();
        faults.set(Plan { stall: Duration::from_secs(3600), ..Plan::default() }).unwrap();
        std::thread::scope(|scope| {
            let stalled = scope.spawn(|| faults.before(0));
            faults.set(Plan::default()).unwrap();
            assert_eq!(stalled.join().unwrap(), Injection::NONE);
        });
    }

    #[test]
    fn rates_above_one_are_rejected() {
        let plan = Plan { error_rate: 1.5, ..Plan::default() };
        let message = "error_rate is 1.5: give a number from 0 to 1".into();
        assert_eq!(Faults::default().set(plan), Err(Error::Plan { message }));
    }

    fn scheduled(fault: Fault) -> Option<Replay> {
        let faults = parm_workload::Faults(vec![fault]);
        Some(Replay { scenario: None, faults, seed: 1, first: 0, instances: 1, starts_in_ms: -10 })
    }

    #[test]
    fn new_plan_ends_a_hang_of_a_schedule() {
        let faults = Faults::default();
        let schedule = scheduled(Fault::Hang { when: When::Always, on: Targets::Each });
        faults.set(Plan { schedule, ..Plan::default() }).unwrap();
        std::thread::scope(|scope| {
            let hung = scope.spawn(|| faults.around(0, &[], || Ok(answer())));
            faults.set(Plan::default()).unwrap();
            assert_eq!(hung.join().unwrap(), Ok(answer()));
        });
    }

    #[test]
    fn schedule_delays_and_falsifies_answers() {
        let faults = Faults::default();
        let schedule = scheduled(Fault::Wrong { share: 1.0, when: When::Always, on: Targets::Each });
        faults.set(Plan { schedule, wrong: Some(Wrong::Negate), ..Plan::default() }).unwrap();
        let outputs = faults.around(0, &[], || Ok(answer())).unwrap();
        assert_eq!(
            outputs[0].as_f32().unwrap()[0],
            1.0,
            "`wrong` of the plan and of the schedule must negate twice"
        );
        let when = When::Once { at: Duration::ZERO, length: Duration::from_millis(60) };
        let schedule = scheduled(Fault::Hang { when, on: Targets::Each });
        let set = Instant::now();
        faults.set(Plan { schedule, ..Plan::default() }).unwrap();
        assert_eq!(faults.around(0, &[], || Ok(answer())), Ok(answer()));
        assert!(set.elapsed() >= Duration::from_millis(45), "the hang must last for the rest of 60 ms");
    }

    #[test]
    fn invalid_schedule_is_rejected() {
        let schedule = scheduled(Fault::Hang { when: When::Always, on: Targets::Only(vec![3]) });
        assert!(matches!(
            Faults::default().set(Plan { schedule, ..Plan::default() }),
            Err(Error::Plan { .. })
        ));
    }
}

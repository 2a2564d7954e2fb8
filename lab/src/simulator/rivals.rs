//! A run of a rival, with several frontends, or with messages that take time: the simulation of
//! [`rivals`](crate::world::rivals) becomes a tally.

use std::num::NonZeroU16;

use parm_dispatcher::Time;
use parm_settings::{InForce, ModelRole};

use crate::Error;
use crate::simulator::simulation::plan;
use crate::simulator::{Answered, Progress, Run, Tally};
use crate::world::rivals::{Ended, Setup, Simulated};

impl Run {
    /// Whether the virtual world of the tests is too simple for it.
    pub(crate) fn has_clients(&self) -> bool {
        self.rival.is_some() || self.frontends > 1 || self.simulated != Simulated::default()
    }
}

pub(super) fn run(
    run: &Run,
    progress: &dyn Progress,
    watcher: Option<&mut dyn FnMut(Answered)>,
) -> Result<Tally, Error> {
    let role = ModelRole::StandIn { max_rows: NonZeroU16::MAX };
    let of_stand_in = run.settings.model_settings(&InForce::as_wished(&run.settings), role);
    let setup = Setup {
        rival: run.rival,
        stand_in: (of_stand_in, run.stand_in),
        simulated: run.simulated,
        clients: run.frontends,
        grants: run.frontends > 1,
        ..Setup::new(plan(run))
    };
    let report = setup.run()?;
    let mut tally = Tally::new(run.queries - run.warm_up, run.deadline);
    for (number, Ended { latency, outcome, .. }) in (0..).zip(report.counted()) {
        tally.ended(number, *latency, *outcome, false);
    }
    tally.started(true, report.needed);
    tally.started(false, report.extra);
    let lanes = u64::from(run.simulated.lanes.get());
    let capacity = u64::from(run.instances) * lanes * report.end.since(Time::ZERO).as_nanos() as u64;
    tally.finish(report.busy, capacity, report.most_open);
    if let Some(sees) = watcher {
        for (number, Ended { arrived, latency, outcome }) in (0..).zip(&report.queries) {
            let (counted, arrived) = (number >= run.warm_up, *arrived);
            let (latency, outcome) = (*latency, *outcome);
            sees(Answered { number, counted, arrived, latency, outcome, members: 0, wrong: false });
        }
    }
    progress.advanced(run.queries);
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use parm_settings::{PolicyKind, PoolSettings};
    use parm_workload::{Pattern, Scenario};

    use super::*;
    use crate::simulator::Quiet;

    #[test]
    fn run_of_parm_is_the_same_in_both_simulations() {
        for (policy, profile) in [(PolicyKind::Hedge, "A+hang"), (PolicyKind::StandIn, "sick+lengths")] {
            let scenario = Scenario::named(profile).unwrap();
            let settings = PoolSettings { policy, ..PoolSettings::default() };
            let arrivals = scenario.at(Pattern::Poisson, 400.0);
            let of = Run { queries: 20_000, ..Run::new(arrivals, scenario.faults.clone(), 12, settings) };
            let (one, other) = (of.simulate(&Quiet).unwrap(), run(&of, &Quiet, None).unwrap());
            assert_eq!(one.blocks(), other.blocks(), "{profile}");
        }
    }
}

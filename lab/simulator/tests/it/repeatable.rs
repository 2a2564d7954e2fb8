//! A witness sees a run and does not change it.

use parm_settings::PolicyKind;
use parm_settings::recording::RecordedRole;
use parm_simulator::{Answered, Execution, Outcome, Quiet, Run, Witness};
use parm_workload::Scenario;
use parm_workload::clock::Moment;

use crate::support::{run, simulate};

#[derive(Default)]
struct Watching {
    arrived: u64,
    executed: Vec<Execution>,
    answered: Vec<Answered>,
}

impl Witness for Watching {
    fn arrived(&mut self, _at: Moment) {
        self.arrived += 1;
    }

    fn executed(&mut self, execution: Execution) {
        self.executed.push(execution);
    }

    fn answered(&mut self, answered: Answered) {
        self.answered.push(answered);
    }
}

#[test]
fn witness_sees_every_query_and_job_and_changes_nothing() {
    let mut run = Run { queries: 5_000, warm_up: 1_000, ..run(18, 0.5) };
    run.faults = Scenario::named("AB").unwrap().faults;
    run.settings.policy = PolicyKind::Hedge;
    let mut watching = Watching::default();
    let watched = run.watched(&Quiet, &mut watching).unwrap();
    assert_eq!(watched.mean(), simulate(&run).mean());
    assert_eq!((watching.arrived, watching.answered.len() as u64), (5_000, watched.count()));
    let hedged = watching.answered.iter().filter(|answered| answered.outcome == Outcome::Hedged).count();
    assert_eq!(hedged as f64 / 4_000.0, watched.share(Outcome::Hedged));
    // Jobs that were overtaken may still run when the last query is answered.
    let copies = watching.executed.iter().filter(|execution| execution.role == RecordedRole::Copy).count();
    assert!(watching.executed.len() - copies > 4_980 && copies > 10, "{copies} copies");
    assert!(
        watching.executed.iter().all(|execution| execution.ended > execution.given && execution.rows == 1)
    );
}

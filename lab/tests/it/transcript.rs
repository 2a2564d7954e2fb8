//! Records a simulated frontend.

use std::collections::BTreeMap;

use parm_dispatcher::{Action, End, JobKey, Time, Why};
use parm_lab::simulator::Run;
use parm_lab::tuner::{Job, Recording};
use parm_lab::world::Event;
use parm_settings::recording::RecordedRole;

/// Records a run as a frontend does, in microseconds.
pub(crate) fn recorded(run: &Run) -> Recording {
    eprintln!("seed {}", run.seed);
    let mut world = run.world().unwrap();
    let names = (0..run.instances).map(|number| (number, format!("test://{number}")));
    let mut recording = Recording { instances: names.collect(), ..Recording::default() };
    let mut held: BTreeMap<JobKey, (Time, Job)> = BTreeMap::new();
    let micros = |at: Time| at.as_nanos() / 1000;
    let seconds = |micros: u64| micros as f64 / 1e6;
    while world.advance() {
        world.replies.clear();
        let now = seconds(micros(world.now));
        for event in std::mem::take(&mut world.log) {
            match event {
                Event::Arrived(_, query) if query.model == world.model => recording.arrivals.push(now),
                Event::Asks(Action::Run { job, instance, model, why, rows }) => {
                    let Some(instance) = world.server(instance) else { continue };
                    let role = match why {
                        _ if Some(model) == world.stand_in => RecordedRole::StandIn,
                        _ if model != world.model => RecordedRole::Parity,
                        Why::First | Why::Retry => RecordedRole::Deployed,
                        Why::Hedge | Why::Copy | Why::Explore | Why::StandIn => RecordedRole::Copy,
                    };
                    let arrived =
                        world.open.get(&rows[0].query).map(|(_, arrived)| seconds(micros(*arrived)));
                    let (instance, rows, ok) = (instance as u32, rows.len() as u32, true);
                    let job_here = Job { instance, at: now, took: 0.0, rows, role, ok, arrived };
                    held.insert(job, (world.now, job_here));
                }
                Event::Ended(job, End::Answered(_)) => {
                    let Some((given, job)) = held.remove(&job) else { continue };
                    let end = seconds(micros(given) + world.now.since(given).as_micros() as u64);
                    recording.jobs.push(Job { took: end - job.at, ..job });
                    recording.seconds = recording.seconds.max(end);
                }
                _ => {}
            }
        }
    }
    recording.jobs.sort_by(|one, other| one.at.total_cmp(&other.at));
    recording.seconds = recording.seconds.max(recording.arrivals.last().copied().unwrap_or_default());
    recording
}

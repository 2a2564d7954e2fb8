//! The world's records of stand-ins: answers to judge or compare, and the number given.

use std::collections::BTreeSet;

use parm_dispatch::{
    Accept, Answer, Event, JobId, JobSpec, Judgement, Output, Pair, PoolId, QueryId, Role, Rows, Urgency,
};
use parm_settings::{PolicyKind, PoolSettings};

use super::happening::POOLS;
use super::world::{Fate, State, World};

/// The reports about stand-ins that the driver owes.
#[derive(Default)]
pub(crate) struct Twins {
    pub(crate) judging: BTreeSet<(QueryId, Output)>,
    pub(crate) checking: BTreeSet<Pair>,
    fit: BTreeSet<(QueryId, Output)>,
}

impl Twins {
    /// Notes what the driver reports.
    pub(crate) fn note(&mut self, event: &Event) {
        match event {
            Event::Judged(query, output, judgement) => {
                self.judging.remove(&(*query, *output));
                if matches!(judgement, Judgement::Fit(_)) {
                    self.fit.insert((*query, *output));
                }
            }
            Event::Checked(pair, _) => {
                self.checking.remove(pair);
            }
            _ => {}
        }
    }

    /// Whether the outputs of a job are still read.
    pub(crate) fn read(&self, job: JobId) -> bool {
        self.judging.iter().any(|(_, output)| output.job == job)
            || self.checking.iter().any(|pair| [pair.prediction.job, pair.stand_in.job].contains(&job))
    }
}

impl World {
    /// Checks a started stand-in: its queries are unanswered, held by other instances, and have no other stand-in.
    pub(crate) fn stands_in(&self, job: JobSpec, rows: &Rows, urgency: Urgency) {
        assert!(!rows.is_empty());
        let here = self.running().filter(|(_, held)| held.job.instance == job.instance).count();
        assert!(urgency == Urgency::Late || here == 0, "{job:?} is spare, and waits for another");
        for id in rows {
            assert_ne!(self.queries[id].query.accept, Accept::Exact, "{id:?} accepts no stand-in");
            for (_, held) in
                self.running().filter(|(_, held)| held.rows.contains(id) && held.job.role != Role::Backup)
            {
                assert_ne!(held.job.instance, job.instance, "{id:?} is there already");
                // In an outage the one next to the deployed model is given up.
                let given_up = self.dispatcher.status(job.pool).is_some_and(|of| of.counters.outages > 0);
                assert!(given_up || !matches!(held.job.role, Role::StandIn(_)), "{id:?} has a stand-in");
            }
        }
    }

    pub(crate) fn judge(&mut self, query: QueryId, output: Output) {
        assert_eq!(self.queries[&query].fate, Fate::Waiting, "{query:?} is answered already");
        assert_eq!(self.output(output, true), query);
        assert!(self.twins.judging.insert((query, output)), "asked twice");
    }

    pub(crate) fn check(&mut self, pair: Pair) {
        assert_eq!(self.output(pair.prediction, false), self.output(pair.stand_in, true), "{pair:?}");
        assert!(self.twins.checking.insert(pair), "asked twice");
    }

    /// The query of a row of kept outputs.
    fn output(&self, output: Output, of_stand_in: bool) -> QueryId {
        let held = &self.jobs[&output.job];
        assert_eq!((held.state, held.released), (State::Completed, false), "{held:?}");
        assert_eq!(matches!(held.job.role, Role::StandIn(_)), of_stand_in, "{held:?}");
        held.rows[output.row as usize]
    }

    /// Checks a stand-in's answer: the driver had found it fit.
    pub(crate) fn stood_in(&self, id: QueryId, output: Output) {
        assert!(self.twins.fit.contains(&(id, output)), "{id:?}: {output:?} was not judged");
    }

    /// Checks that clients with a bound of their own get no more approximations than their answers earned.
    pub(crate) fn check_clients_bounds(&self) {
        let mut accounts: std::collections::BTreeMap<_, [u32; 2]> = Default::default();
        for (_, action) in &self.log {
            let parm_dispatch::Action::Answer(id, answer) = action else { continue };
            let query = &self.queries[id].query;
            if let (Accept::AtMost(asked), false) = (query.accept, matches!(answer, Answer::Rejected(_))) {
                let [given, answered] = accounts.entry((query.pool, query.share, asked)).or_default();
                *given += u32::from(matches!(answer, Answer::StandIn { .. }));
                *answered += 1;
                assert!(
                    f64::from(*given) <= f64::from(*answered) * f64::from(asked) / 1000.0 + 1e-9,
                    "{given} of {answered} answers are approximate for clients that take {asked} of 1000"
                );
            }
        }
    }

    /// Checks that no window of answers holds more approximations than the bound allows.
    pub(crate) fn check_bound(&self, settings: &PoolSettings) {
        // It does not count answers in outages.
        let bridged =
            |pool| self.dispatcher.status(PoolId(pool)).is_some_and(|of| of.counters.stand_ins_outage > 0);
        if settings.policy != PolicyKind::StandIn || (0..POOLS).any(bridged) {
            return;
        }
        let size = settings.stand_in.bound_window.get() as usize;
        let most = (size as f64 * settings.stand_in.bound.get() + 1e-9) as usize;
        // At most 20 more than the share of any 1,000, unless there are fewer in the window.
        let in_thousand = (1000.0 * settings.stand_in.bound.get() + 20.0 + 1e-9) as usize;
        let windows = if size > 1000 { vec![(size, most), (1000, in_thousand)] } else { vec![(size, most)] };
        let mut given: std::collections::BTreeMap<_, Vec<bool>> = Default::default();
        for (_, action) in &self.log {
            let parm_dispatch::Action::Answer(id, answer) = action else { continue };
            if !matches!(answer, Answer::Rejected(_)) {
                let pool = self.queries[id].query.pool;
                given.entry(pool).or_default().push(matches!(answer, Answer::StandIn { .. }));
            }
        }
        for answers in given.values() {
            for (size, most) in &windows {
                let starts = 0..=answers.len().saturating_sub(*size);
                let count = |from: usize| answers[from..].iter().take(*size).filter(|given| **given).count();
                assert!(
                    starts.into_iter().all(|from| count(from) <= *most),
                    "more than {most} of {size}: {answers:?}"
                );
            }
        }
    }
}

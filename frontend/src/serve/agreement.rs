//! Stand-ins as clients of the dispatcher: what they say is compared with what their models say.
//!
//! A stand-in may answer only while it agrees with its model, and an instance whose answers disagree far more often than those of
//! others has a wrong model. Both are known from comparisons: the first outputs of a query's model and of its stand-in are kept
//! with the query, and whichever run ends later compares them. Where a stand-in answered and no run of the model began, some queries
//! run once more on an idle instance; and while answers are withheld the stand-in runs for some queries only ([`Agreement`] says
//! which).

use std::sync::Arc;

use parm_dispatcher::{Accept, Agreement, Doubts, InstanceKey, Shape, Submission, Time, Why};
use smallvec::SmallVec;

use super::attempt::{Ending, Job, Payload, Role};
use super::call::{Output, QueryRow};
use super::driver::Driver;
use super::lines::Lines;
use super::pool::{Pool, PoolId};
use super::state::{State, patience};
use crate::console::{Happening, Kind};

/// What is known about the stand-in of a pool.
pub(super) struct Known {
    pub(super) agreement: Agreement,
    pub(super) doubts: Doubts<InstanceKey>,
    pub(super) counts: Counts,
}

/// What happened so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    /// Answers of the stand-in, and outputs that it was not sure enough of.
    pub(super) answered: u64,
    pub(super) unsure: u64,
    pub(super) compared: u64,
    pub(super) disagreed: u64,
    pub(super) suspected: u64,
    /// Instances that were taken out of service for their answers.
    pub(super) ejected: u64,
}

/// A prediction and an answer of the stand-in to compare, and whether the prediction came later.
pub(super) struct Pair {
    row: QueryRow,
    prediction: Output,
    answer: Output,
    is_late: bool,
}

/// The comparisons that the end of an attempt makes possible.
pub(super) fn pairs(job: &Job, ending: &Ending) -> SmallVec<[Pair; 1]> {
    let Ending::Completed(outputs) = ending else { return SmallVec::new() };
    let stands_in = job.role == Role::StandIn;
    if job.stand_in.is_none() || !(stands_in || job.predicts()) || job.why == Why::Explore {
        return SmallVec::new();
    }
    let of_row = |(payload, output): (&Payload, &Option<Output>)| {
        let (row, output) = (payload.row()?, output.as_ref()?);
        row.with(|record| {
            let first = if stands_in { &mut record.approximate } else { &mut record.exact };
            if first.is_some() {
                return None;
            }
            *first = Some(output.clone());
            let (prediction, answer) = (record.exact.clone()?, record.approximate.clone()?);
            Some(Pair { row: row.clone(), prediction, answer, is_late: !stands_in })
        })
    };
    job.payloads().zip(outputs).filter_map(of_row).collect()
}

/// Compares, and tells the driver.
pub(super) fn compare(driver: &Arc<Driver>, job: &Job, pairs: SmallVec<[Pair; 1]>) {
    let Some(stand_in) = &job.stand_in else { return };
    let said = pairs.into_iter().filter_map(|pair| {
        let agrees = stand_in.agrees(&job.pool, &pair.prediction, &pair.answer)?;
        Some((pair, agrees))
    });
    let said: Vec<_> = said.collect();
    if !said.is_empty() {
        driver.with(|state| state.compared(driver, job, &said));
    }
}

impl Default for Known {
    fn default() -> Self {
        Self { agreement: Agreement::new(0.0), doubts: Doubts::default(), counts: Counts::default() }
    }
}

impl Known {
    /// Begins anew with another stand-in, whose floor is to be configured, but goes on counting.
    pub(super) fn restart(&mut self) {
        *self = Self { counts: self.counts, ..Self::default() };
    }

    /// Takes note of a stand-in's outputs.
    pub(super) fn answered(&mut self, outputs: &[Option<Output>]) {
        let sure = outputs.iter().flatten().count() as u64;
        self.counts.answered += sure;
        self.counts.unsure += outputs.len() as u64 - sure;
    }
}

impl State {
    /// What is known about a pool's stand-in, if it ever had one.
    pub(super) fn stand_in_of(&mut self, pool: PoolId) -> Option<&mut Known> {
        self.pools.get_mut(&pool)?.stand_in.as_mut()
    }

    /// Takes note of comparisons.
    pub(super) fn compared(&mut self, driver: &Driver, job: &Job, said: &[(Pair, bool)]) {
        let pool = job.pool.id;
        for (pair, agrees) in said {
            let query = pair.row.with(|record| record.query);
            if let Some(query) = query.filter(|_| pair.is_late) {
                self.agrees(query, job.place().job, *agrees);
            }
        }
        let Some(known) = self.stand_in_of(pool) else { return };
        let before = known.agreement.is_withheld();
        let mut suspects = SmallVec::<[InstanceKey; 2]>::new();
        for (place, (Pair { prediction, answer, .. }, agrees)) in said.iter().enumerate() {
            known.agreement.note(*agrees);
            known.counts.compared += 1;
            known.counts.disagreed += u64::from(!agrees);
            if let (Some((_, one)), Some((_, other))) = (prediction.by, answer.by) {
                // The rows of a batch are wrong together.
                let is_first = place == 0;
                suspects.extend(known.doubts.compared([(one, is_first), (other, is_first)], *agrees));
            }
        }
        known.counts.suspected += suspects.len() as u64;
        let (after, share) = (known.agreement.is_withheld(), known.agreement.share());
        if before != after {
            self.tell_withheld(driver, &job.pool, after, share);
            self.configure_own(driver, pool);
        }
        for instance in suspects {
            self.suspect(driver, &job.pool, instance);
        }
    }

    /// A query was answered by its stand-in: where no run of the model has begun, one is made to compare the two.
    pub(super) fn check(&mut self, now: Time, row: &QueryRow) {
        let Some(lines) = self.pools.get_mut(&row.call.pool.id) else { return };
        let model = lines.own;
        if row.with(|record| record.sent) {
            return;
        }
        if lines.stand_in.as_mut().is_some_and(|known| known.agreement.is_compared()) {
            self.submit_check(now, model, row);
        }
    }

    /// A query arrives: while its stand-in's answers are withheld, one in some runs it for comparison.
    pub(super) fn try_withheld(&mut self, now: Time, row: &QueryRow) {
        let Some(Lines { helper: Some((_, model)), stand_in: Some(known), .. }) =
            self.pools.get_mut(&row.call.pool.id)
        else {
            return;
        };
        if known.agreement.is_withheld() && known.agreement.is_tried() {
            let model = *model;
            self.submit_check(now, model, row);
        }
    }

    fn submit_check(&mut self, now: Time, model: parm_dispatcher::ModelKey, row: &QueryRow) {
        let shape = Shape { name: row.call.pool.shapes.alone(), size: row.call.shape.size };
        let deadline = now + patience(&row.call);
        let payload = Payload::Check(row.clone());
        let submission = Submission::new(model, payload, deadline);
        let accept = Accept::Exact;
        self.dispatcher.submit(now, Submission { accept, shape, background: true, ..submission });
    }

    /// Reports when stand-ins begin to agree too rarely to be used, and when they agree again.
    fn tell_withheld(&self, driver: &Driver, pool: &Pool, withheld: bool, share: Option<f64>) {
        let share = share.unwrap_or_default() * 100.0;
        let (kind, what) = match withheld {
            true => (Kind::Withheld, "stand-ins' answers are withheld"),
            false => (Kind::Resumed, "stand-ins' answers are used again"),
        };
        let text = format!("{what}: {share:.1} % agree with predictions");
        driver.tell(kind, Happening { model: Some(pool.id), text, ..Happening::default() });
    }

    /// Reports an instance suspected of wrong answers, and takes it out of service if the settings say so.
    fn suspect(&mut self, driver: &Driver, pool: &Pool, instance: InstanceKey) {
        let Some(known) = self.instances.get(&instance) else { return };
        let text = "its answers disagree with stand-ins far more often than those of other instances";
        let happening = Happening {
            instance: Some(known.number),
            model: Some(pool.id),
            text: text.to_owned(),
            ..Happening::default()
        };
        driver.tell(Kind::Suspect, happening);
        tracing::warn!(
            code = %parm_protocol::StableCode::InstanceSuspected,
            instance = %known.name,
            model = %pool.model.name,
            "instance is suspected of wrong answers: they disagree with stand-ins far more often than those of others: \
             check its model"
        );
        let Some(lines) = self.pools.get(&pool.id) else { return };
        let model = lines.own;
        if !lines.settings.as_ref().is_some_and(|(settings, _)| settings.stand_in.agreement.eject) {
            return;
        }
        let is_ejected = self.react(driver, |state, now| state.dispatcher.distrust(now, instance, model));
        if let Some(known) = self.stand_in_of(pool.id) {
            known.counts.ejected += u64::from(is_ejected);
        }
    }
}

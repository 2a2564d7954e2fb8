//! Judges stand-ins' answers for the dispatcher, and compares them with predictions that arrive.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parm_dispatch::{Event, JobId, Judgement, Output, Pair, QueryId};
use smallvec::{SmallVec, smallvec};

use super::coding::{Checking, Judging, Twin, Work};
use super::driver::Driver;
use super::effect::{Effect, Effects};
use super::outputs::Outputs;
use super::pool::Pool;
use super::state::State;
use crate::console::{Happening, Kind};

impl State {
    /// Starts to judge an answer, unless its data is gone.
    pub(super) fn judge(&mut self, query: QueryId, output: Output, effects: &mut Effects) {
        match self.judging(query, output) {
            Some(judging) => effects.push(Effect::Code(Box::new(Work::Judge(judging)))),
            None => self.follow_up.push_back(Event::Judged(query, output, Judgement::Unfit)),
        }
    }

    fn judging(&mut self, query: QueryId, output: Output) -> Option<Judging> {
        let inputs = self.ledger.known(query)?.row.inputs.clone();
        let outputs = self.outputs_of(output.job)?;
        let job = self.ledger.jobs.get(&output.job)?;
        let (pool, stand_in) = (job.pool.clone(), job.stand_in.clone()?);
        Some(Judging { query, output, pool, stand_in, outputs, inputs })
    }

    /// Adds a prediction to compare with its stand-in's answer. All pairs of one event are compared together.
    pub(super) fn check_pair(&mut self, pair: Pair, effects: &mut Effects) {
        let Some(twin) = self.twin(pair) else {
            self.follow_up.push_back(Event::Checked(pair, None));
            return;
        };
        if let Some(Effect::Code(work)) = effects.last_mut()
            && let Work::Check(checking) = &mut **work
        {
            checking.twins.push(twin);
            return;
        }
        let checking = Checking { twins: smallvec![twin] };
        effects.push(Effect::Code(Box::new(Work::Check(checking))));
    }

    fn twin(&self, pair: Pair) -> Option<Twin> {
        let pool = self.ledger.jobs.get(&pair.stand_in.job)?.pool.clone();
        let stand_in = pool.codes().stand_in.clone()?;
        let prediction = self.outputs_of(pair.prediction.job)?;
        let answer = self.outputs_of(pair.stand_in.job)?;
        Some(Twin { pair, pool, stand_in, prediction, answer })
    }

    fn outputs_of(&self, job: JobId) -> Option<Arc<Outputs>> {
        self.ledger.jobs.get(&job)?.outputs.clone()
    }

    /// Processes comparisons of predictions with their stand-ins' answers.
    pub(super) fn checked(
        &mut self,
        driver: &Driver,
        said: Vec<(Pair, Option<bool>)>,
        effects: &mut Effects,
    ) {
        let mut pools: SmallVec<[Arc<Pool>; 1]> = SmallVec::new();
        for (pair, agrees) in said {
            self.agrees(pair, agrees);
            let pool = self.ledger.jobs.get(&pair.prediction.job).map(|job| job.pool.clone());
            self.react(driver, Event::Checked(pair, agrees), effects);
            pools.extend(pool.filter(|pool| !pools.iter().any(|known| known.id == pool.id)));
        }
        pools.iter().for_each(|pool| self.tell_withheld(driver, pool));
    }

    /// Reports when stand-ins begin to agree too rarely to be used, and when they agree again.
    fn tell_withheld(&self, driver: &Driver, pool: &Pool) {
        let Some(status) = self.dispatcher.status(pool.id) else { return };
        if pool.withheld.swap(status.withheld, Ordering::Relaxed) == status.withheld {
            return;
        }
        let share = status.agreement.unwrap_or_default() * 100.0;
        let (kind, what) = match status.withheld {
            true => (Kind::Withheld, "stand-ins' answers are withheld"),
            false => (Kind::Resumed, "stand-ins' answers are used again"),
        };
        let text = format!("{what}: {share:.1} % agree with predictions");
        driver.tell(kind, Happening { model: Some(pool.id), text, ..Happening::default() });
    }
}

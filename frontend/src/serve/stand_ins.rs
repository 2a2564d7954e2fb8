//! What stand-ins' answers are worth: the driver looks at them on behalf of the dispatcher, and compares them with the
//! predictions that come.

use std::sync::Arc;

use parm_dispatch::{Event, JobId, Judgement, Output, Pair, QueryId};
use smallvec::smallvec;

use super::coding::{Checking, Judging, Twin, Work};
use super::driver::Driver;
use super::effect::{Effect, Effects};
use super::outputs::Outputs;
use super::state::State;

impl State {
    /// A query may be given this answer; it is not, where what that takes is gone.
    pub(super) fn judge(&mut self, query: QueryId, output: Output, effects: &mut Effects) {
        match self.judging(query, output) {
            Some(judging) => effects.push(Effect::Code(Box::new(Work::Judge(judging)))),
            None => self.follow_up.push_back(Event::Judged(query, output, Judgement::Unfit)),
        }
    }

    fn judging(&mut self, query: QueryId, output: Output) -> Option<Judging> {
        let inputs = self.ledger.known(query)?.row.inputs.clone();
        let outputs = self.outputs_of(output.job)?;
        let pool = self.ledger.jobs.get(&output.job)?.pool.clone();
        let stand_in = pool.codes().stand_in.clone()?;
        Some(Judging { query, output, pool, stand_in, outputs, inputs })
    }

    /// A prediction is to be compared with its stand-in's answer. All pairs of one event are compared at one go.
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

    /// An answer was looked at.
    pub(super) fn judged(
        &mut self,
        driver: &Driver,
        (query, output, judgement): (QueryId, Output, Judgement),
        effects: &mut Effects,
    ) {
        self.react(driver, Event::Judged(query, output, judgement), effects);
    }

    /// Predictions were compared with their stand-ins' answers.
    pub(super) fn checked(
        &mut self,
        driver: &Driver,
        said: Vec<(Pair, Option<bool>)>,
        effects: &mut Effects,
    ) {
        for (pair, agrees) in said {
            self.react(driver, Event::Checked(pair, agrees), effects);
        }
    }
}

//! Predictions are compared with their stand-ins, and instances that are often wrong become suspect.
//!
//! Problem: which instance answers wrongly? Parities tell only for complete groups and more work; a stand-in's answer is
//! there anyway for most queries. But it is an approximation, and made by an instance that may itself be the one at fault.
//!
//! Choice: every comparison is evidence about both instances that had a part in it, so each is seen twice as often. One that
//! disagrees counts against whichever of the two is doubted more already, and against both where neither is: so the one that
//! is always wrong gathers evidence with every answer, and whoever happens to be paired with it does not. The test itself is
//! that of `doubt`: sequential, with the base rate of the others, on this hour's queries.
//!
//! Rejected: counting against the prediction only (a wrong stand-in then accuses its peers, and half of the evidence is
//! lost); against both always (the partners of a wrong instance were suspected before it, now and then).
//!
//! One row of each job counts as evidence (see `doubt`).
//!
//! Cold start: nobody is suspected before the others' rate is known.

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::health::Reason;
use super::instance::{Instance, Serves};
use super::pool::Pool;
use super::{Action, JobId, Pair};

/// One whose doubt is greater by so much takes the blame alone: less than one disagreement more.
const CLEARLY: f64 = 1.0;

impl Dispatcher {
    /// The driver has compared a prediction with its stand-in.
    pub(super) fn checked(&mut self, pair: Pair, agrees: Option<bool>) {
        let made = [pair.prediction, pair.stand_in].map(|output| self.shelf.get(output.job));
        if let ([Some(by), Some(beside)], Some(agrees)) = (made, agrees)
            && let Some(pool) = self.pools.get_mut(by.pool)
        {
            pool.counters.compared += 1;
            pool.counters.disagreed += u64::from(!agrees);
            if let Some(stand_ins) = &mut pool.stand_ins {
                stand_ins.compared(agrees, &pool.settings.stand_in);
            }
            let jobs = [pair.prediction.job, pair.stand_in.job];
            self.weigh_both(by.pool, [by.instance, beside.instance], jobs, agrees);
        }
        for (output, kept) in [pair.prediction, pair.stand_in].into_iter().zip(made) {
            if kept.is_some() {
                self.shelf.take_back(output.job);
                self.let_go(output.job);
            }
        }
    }

    fn weigh_both(&mut self, pool: Key<Pool>, both: [Key<Instance>; 2], jobs: [JobId; 2], agrees: bool) {
        let [by, beside] = both.map(|key| self.doubt(pool, key));
        let blamed = match (by, beside) {
            _ if agrees => [true, true],
            (Some(by), Some(beside)) => [by + CLEARLY >= beside, beside + CLEARLY >= by],
            _ => [true, true],
        };
        for ((key, job), blamed) in both.into_iter().zip(jobs).zip(blamed) {
            if blamed {
                let is_evidence = self.shelf.weigh_once(job);
                self.weigh(pool, key, agrees, is_evidence);
            }
        }
    }

    /// How much an instance is doubted.
    fn doubt(&self, pool: Key<Pool>, key: Key<Instance>) -> Option<f64> {
        let serves: Option<&Serves> = self.instances.get(key)?.serves(pool);
        serves.map(|serves| serves.doubt.score())
    }

    /// One more answer of an instance was compared.
    pub(super) fn weigh(&mut self, pool_key: Key<Pool>, key: Key<Instance>, agrees: bool, is_evidence: bool) {
        let Some(pool) = self.pools.get_mut(pool_key) else { return };
        let (test, ejects) = pool.doubts();
        let Some(instance) = self.instances.get_mut(key) else { return };
        let Some(serves) = instance.serves.iter_mut().find(|serves| serves.pool == pool_key) else { return };
        let suspect = serves.doubt.note(agrees, is_evidence, &pool.answers, &test);
        pool.answers.note(agrees);
        if suspect {
            pool.counters.suspected += 1;
            self.out.push(Action::Suspect(instance.id, pool.id));
            if ejects {
                self.eject(key, pool_key, Reason::Wrong);
            }
        }
        if self.pools[pool_key].answers.is_old() {
            self.fade_doubts(pool_key);
        }
    }

    fn fade_doubts(&mut self, pool: Key<Pool>) {
        self.pools[pool].answers.fade();
        for key in self.instances.keys() {
            let serves = self.instances[key].serves.iter_mut().find(|serves| serves.pool == pool);
            serves.into_iter().for_each(|serves| serves.doubt.fade());
        }
    }
}

//! Turns: which waiting query is next where several clients or models want the same instances.
//!
//! Problem: if instances serve queries in order of arrival, the busiest client takes nearly all of their time.
//!
//! Choice: weighted fair queueing of instance time between payers (`parm_shares`). The payer of a query is its share, or its model
//! if it has none. Queries wait in lanes, one for each payer and priority. The next lane is that of a share with unused reserved
//! instances, then by priority, then that of the payer who is farthest behind. Once shares are configured a priority counts within
//! its share only, because a tenant that sets priorities must not starve others.
//!
//! While all queries have one payer, no book is kept: it costs 7 % of an event and decides nothing.

use std::collections::VecDeque;
use std::time::Duration;

pub use parm_shares::Terms;
use parm_shares::{Account, Book, Charge, Due, Work};

use crate::model::ModelKey;
use crate::query::QueryKey;

/// The name of a configured share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShareKey(pub u32);

/// Who pays for a query's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Payer {
    /// A configured share.
    Share(ShareKey),
    /// The model, for queries without a share.
    Model(ModelKey),
}

/// The queries of one payer and priority that wait for one model.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) payer: Payer,
    pub(crate) priority: u8,
    /// Entries of queries that do not wait any more are skipped when they are found.
    pub(crate) queue: VecDeque<QueryKey>,
    /// The true number of queries that wait.
    pub(crate) waiting: u32,
}

/// The lanes of a model.
#[derive(Debug, Default)]
pub(crate) struct Lanes(pub(crate) Vec<Lane>);

/// Lanes beyond so many are removed while they are empty.
const KEPT: usize = 8;

impl Lanes {
    pub(crate) fn push(&mut self, payer: Payer, priority: u8, key: QueryKey) {
        let lane = self.0.iter().position(|lane| (lane.payer, lane.priority) == (payer, priority));
        let lane = lane.unwrap_or_else(|| {
            if self.0.len() >= KEPT {
                self.0.retain(|lane| !lane.queue.is_empty() || lane.waiting > 0);
            }
            self.0.push(Lane { payer, priority, queue: VecDeque::new(), waiting: 0 });
            self.0.len() - 1
        });
        self.0[lane].queue.push_back(key);
        self.0[lane].waiting += 1;
    }

    /// A query does not wait any more.
    pub(crate) fn leave(&mut self, payer: Payer, priority: u8) {
        if let Some(lane) = self.0.iter_mut().find(|lane| (lane.payer, lane.priority) == (payer, priority)) {
            lane.waiting -= 1;
        }
    }

    /// The queries of a payer that wait.
    pub(crate) fn waiting(&self, payer: Payer) -> u32 {
        self.0.iter().filter(|lane| lane.payer == payer).map(|lane| lane.waiting).sum()
    }

    /// The lane of a payer whose queries are the least urgent, if they are less urgent than this priority.
    pub(crate) fn less_urgent(&self, payer: Payer, priority: u8) -> Option<&Lane> {
        let lanes = self.0.iter().filter(|lane| lane.payer == payer && lane.waiting > 0);
        lanes.max_by_key(|lane| lane.priority).filter(|lane| lane.priority > priority)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|lane| lane.queue.is_empty())
    }
}

/// The place of a lane in the order of service; the least is next.
pub(crate) type Rank = (bool, u8, Due, u8);

/// Who is served next.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The payer of all queries so far, while no book is kept.
    sole: Option<(Payer, Account)>,
    book: Option<Book<Payer, ModelKey>>,
    has_shares: bool,
}

impl Turns {
    /// Whether no book is needed for this payer.
    pub(crate) fn is_sole(&mut self, payer: Payer) -> bool {
        let (terms, used, entitled) = (Terms::default(), 0.0, 0.0);
        let new = Account { terms, used, entitled, waiting: 0, running: 0 };
        self.book.is_none() && self.sole.get_or_insert((payer, new)).0 == payer
    }

    /// The account of a payer while no book is kept.
    fn of_sole(&mut self, payer: Payer) -> Option<&mut Account> {
        self.sole.as_mut().filter(|(sole, _)| *sole == payer).map(|(_, account)| account)
    }

    /// Keeps a book from now on.
    pub(crate) fn open(&mut self, waiting: impl Iterator<Item = Payer>) {
        if self.book.is_none() {
            let book = self.book.insert(Book::default());
            waiting.for_each(|payer| book.wait(&payer));
            if let Some((payer, account)) = self.sole.take() {
                book.carry(&payer, account.used);
            }
        }
    }

    /// Sets the terms of payers. Shares that are not named and owe nothing are forgotten.
    pub(crate) fn promise(&mut self, terms: &[(Payer, Terms)]) {
        let Some(book) = &mut self.book else { return };
        self.has_shares = terms.iter().any(|(payer, _)| matches!(payer, Payer::Share(_)));
        for (payer, terms) in terms {
            book.promise(payer, *terms);
        }
        book.forget(|payer| {
            matches!(payer, Payer::Share(_)) && !terms.iter().any(|(named, _)| named == payer)
        });
    }

    /// Forgets a model that is gone.
    pub(crate) fn forget(&mut self, model: ModelKey) {
        if let Some(book) = &mut self.book {
            book.close(&Payer::Model(model), &model);
        }
    }

    pub(crate) fn rank(&self, lane: &Lane) -> Option<Rank> {
        let turn = self.book.as_ref()?.turn(&lane.payer, Work::Query);
        let first = if self.has_shares { 0 } else { lane.priority };
        Some((turn.waits_its_turn, first, turn.due, lane.priority))
    }

    pub(crate) fn wait(&mut self, payer: Payer) {
        if let Some(book) = &mut self.book {
            book.wait(&payer);
        } else if let Some(account) = self.of_sole(payer) {
            account.waiting += 1;
        }
    }

    pub(crate) fn leave(&mut self, payer: Payer) {
        if let Some(book) = &mut self.book {
            book.leave(&payer, 1);
        } else if let Some(account) = self.of_sole(payer) {
            account.waiting = account.waiting.saturating_sub(1);
        }
    }

    pub(crate) fn begin(&mut self, payer: Payer, model: ModelKey, is_query: bool) -> Option<Charge> {
        let work = if is_query { Work::Query } else { Work::Redundancy };
        if let Some(book) = &mut self.book {
            return Some(book.begin(&payer, &model, work));
        }
        self.of_sole(payer)?.running += 1;
        None
    }

    pub(crate) fn end(&mut self, payer: Payer, model: ModelKey, charge: Option<Charge>, took: Duration) {
        if let (Some(book), Some(charge)) = (&mut self.book, charge)
            && book.knows(&payer)
        {
            book.end(&payer, &model, charge, took);
        } else if let Some(account) = self.of_sole(payer) {
            account.running = account.running.saturating_sub(1);
            account.used += took.as_secs_f64();
            account.entitled = account.used;
        }
    }

    /// Reserved instances that their shares do not use: copies, stand-ins and background leave as many free.
    pub(crate) fn unused(&self) -> u32 {
        self.book.as_ref().map_or(0, Book::unused)
    }

    pub(crate) fn accounts(&self) -> impl Iterator<Item = (Payer, Account)> {
        let all =
            self.book.iter().flat_map(|book| book.accounts().map(|(payer, account)| (*payer, *account)));
        all.chain(self.sole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Script;
    use crate::{Action, Dispatcher, End, InstanceSpec, JobKey, ModelSettings, Submission, Time};

    /// The payloads of queries in the order in which one instance runs them, for 10 ms each. All arrive at once while it is busy.
    fn order(shares: &[(Payer, Terms)], queries: &[(u32, Option<u32>, u8)]) -> Vec<u32> {
        let mut dispatcher: Dispatcher<u32, ()> = Dispatcher::default();
        if !shares.is_empty() {
            dispatcher.promise(shares);
        }
        let model = dispatcher.add_model(ModelSettings::default());
        let mut now = Time::ZERO;
        dispatcher.join(now, &InstanceSpec::new([model], 1));
        for (payload, share, priority) in queries {
            let deadline = Time::from_nanos(10_000_000_000);
            let share = share.map(ShareKey);
            let query =
                Submission { share, priority: *priority, ..Submission::new(model, *payload, deadline) };
            dispatcher.submit(now, query);
        }
        let mut order = Vec::new();
        loop {
            let started = |action| match action {
                Action::Run { job, rows, .. } => Some((job, rows[0].payload)),
                _ => None,
            };
            let runs: Vec<(JobKey, u32)> = dispatcher.actions().filter_map(started).collect();
            let Some((job, payload)) = runs.first() else { return order };
            order.push(*payload);
            now = now + Duration::from_millis(10);
            dispatcher.ended(now, *job, End::Answered([Some(())].into_iter().collect()));
        }
    }

    #[test]
    fn busy_share_does_not_make_others_wait() {
        let queries = [(1, Some(1), 0), (2, Some(1), 0), (3, Some(1), 0), (4, Some(1), 0), (5, Some(2), 0)];
        // Runs are charged what one usually takes, so the first ones follow the order of arrival.
        assert_eq!(order(&[], &queries), [1, 2, 5, 3, 4]);
        let share = |share| Payer::Share(ShareKey(share));
        let terms = |weight, reserved| Terms { weight, reserved };
        let three = [(share(1), terms(3.0, 0)), (share(2), terms(1.0, 0))];
        let queries = queries.map(|(payload, share, _)| (payload, share, 0));
        let mut both = queries.to_vec();
        both.extend([(6, Some(2), 0), (7, Some(1), 0)]);
        let order_of_both = order(&three, &both);
        let first = order_of_both.iter().take(4).filter(|payload| ![5, 6].contains(*payload)).count();
        assert_eq!(first, 3, "three of four are of the share with three times the weight: {order_of_both:?}");
        let reserved = [(share(1), terms(100.0, 0)), (share(2), terms(1.0, 1))];
        assert_eq!(order(&reserved, &both)[1], 5, "a reserved instance goes before all weights");
    }

    #[test]
    fn models_have_weights_and_a_single_payer_has_an_account() {
        let used = |script: &Script| {
            let seconds = |(payer, account): (Payer, Account)| (payer, account.used, account.running);
            script.dispatcher.accounts().map(seconds).collect::<Vec<_>>()
        };
        let settings = ModelSettings { policy: crate::Policy::NONE, ..ModelSettings::default() };
        let mut script = Script::new(settings);
        let one = Payer::Model(script.models[0]);
        script.play("+1 q 2000 a0 q");
        assert_eq!(used(&script), [(one, 2.0, 1)]);
        script.models.push(script.dispatcher.add_model(settings));
        let two = Payer::Model(script.models[1]);
        script.play("+1 q,m1 2500 a2");
        assert_eq!(used(&script), [(one, 2.0, 0), (two, 0.5, 0)]);
        script.dispatcher.promise(&[(two, Terms { weight: 9.0, reserved: 0 })]);
        let weights = script.dispatcher.accounts().map(|(payer, account)| (payer, account.terms.weight));
        assert_eq!(weights.collect::<Vec<_>>(), [(one, 1.0), (two, 9.0)]);
    }

    #[test]
    fn priorities_order_the_queries_of_a_model_and_of_a_share() {
        let queries = [(1, None, 5), (2, None, 5), (3, None, 1), (4, None, 5)];
        assert_eq!(order(&[], &queries), [1, 3, 2, 4]);
    }

    #[test]
    fn full_queue_rejects_the_last_of_the_least_urgent_of_its_payer() {
        let rows = [
            ("+1 q q q q", "First 0 at 0, 3 QueueFull"),
            ("+1 q q,p5 q,p5 q,p1 q,p1 q,p1", "First 0 at 0, 2 QueueFull, 1 QueueFull, 5 QueueFull"),
            ("+1 q q,p1 q,p1 q,p5", "First 0 at 0, 3 QueueFull"),
            ("+1 q q,s1 q,s1 q,s2 q,s1 q", "First 0 at 0, 4 QueueFull"),
            // Parities that were withdrawn make room.
            ("+1 q q,b q,b q,b x1 q,b", "First 0 at 0, 3 QueueFull"),
        ];
        for (calls, seen) in rows {
            let mut script = Script::new(ModelSettings { queue_limit: 2, ..ModelSettings::default() });
            assert_eq!(script.play(calls), seen, "{calls}");
        }
    }
}

//! Stand-ins of a pool: queries that need one, costs, the bound, and the agreement with predictions.

use std::collections::{BTreeSet, VecDeque};

use crate::api::{Cost, StandInSettings, Urgency};
use crate::measure::bound::Bound;
use crate::measure::budget::Budget;
use crate::measure::cost::Costs;
use crate::measure::quantile::Quantiles;
use crate::measure::window::Window;
use crate::state::keys::QueryKey;

/// The stand-ins of a pool.
pub(crate) struct StandIns {
    /// Running queries on instances whose last answer was slow. Answered ones are skipped.
    pub(crate) doubtful: VecDeque<QueryKey>,
    /// Other running queries: first those that will be late in any case, then the oldest. Answered ones are
    /// skipped.
    pub(crate) early: VecDeque<QueryKey>,
    /// Late queries, running or waiting. Answered ones are skipped.
    pub(crate) late: VecDeque<QueryKey>,
    /// Costs on instances with the deployed model, for instances of usual speed.
    pub(crate) costs: Costs,
    /// Times of the deployed model's jobs, as an instance of usual speed would take.
    pub(crate) queries: Quantiles,
    /// Costs on instances without it, which may be other machines.
    pub(crate) costs_apart: Costs,
    pub(crate) bound: Bound,
    /// The budget of work on late queries.
    pub(crate) work: Budget,
    /// The latest comparisons of predictions and stand-ins.
    pub(crate) agreement: Window,
    /// The agreement is too low: no client receives a stand-in's answer.
    pub(crate) withheld: bool,
    /// The files that it was last served from, if any was known.
    files: BTreeSet<String>,
    /// Answers since the last comparison to queries that no job ran.
    unwatched: u32,
}

/// The line in which a query waits for a stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandInLine {
    /// Late queries, running or waiting.
    Late,
    /// Running queries that are likely to be late, because the last answer of their instance was slow.
    Doubtful,
    /// Other running queries.
    Early,
}

/// The outlook of a query that was just started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// It will probably be answered in time.
    Good,
    /// It waited so long that its prediction will be late.
    Late,
    /// The last answer of its instance was slow.
    Doubtful,
}

impl StandInLine {
    /// The urgency of its jobs.
    pub(crate) fn urgency(self) -> Urgency {
        match self {
            Self::Late => Urgency::Late,
            Self::Doubtful | Self::Early => Urgency::Spare,
        }
    }
}

/// Comparisons needed before the agreement is known.
const FEW: u32 = 100;
/// Comparisons after which a stand-in with less than half of the wanted agreement is withheld: chance explains one in ten
/// thousand.
const FIRST: u32 = 20;
/// Answers to queries without a job after which one is compared, before and after the agreement is known.
const UNWATCHED: [u32; 2] = [1, 50];
/// Answered queries that are skipped before a line is swept.
const DEAD_ALLOWED: usize = 64;

impl StandIns {
    pub(crate) fn new(settings: &StandInSettings) -> Self {
        Self {
            doubtful: VecDeque::new(),
            early: VecDeque::new(),
            late: VecDeque::new(),
            costs: Costs::default(),
            queries: Quantiles::new(0.9),
            costs_apart: Costs::default(),
            bound: Bound::new(settings),
            work: Budget::new(&settings.late_budget),
            agreement: Window::new(settings.agreement.window.get()),
            withheld: false,
            files: BTreeSet::new(),
            unwatched: 0,
        }
    }

    /// Changes the settings.
    pub(crate) fn change(&mut self, settings: &StandInSettings) {
        self.bound.change(settings);
        self.work.change(&settings.late_budget);
        self.agreement.resize(settings.agreement.window.get());
        self.watch(settings);
    }

    /// Takes the files that it is served from. Returns whether one is new, so that the evidence may be another model's.
    pub(crate) fn take_files(&mut self, files: &BTreeSet<String>) -> bool {
        if files.is_empty() {
            // While no instance serves it.
            return false;
        }
        let is_new = !self.files.is_empty() && !files.is_subset(&self.files);
        // One of them may come back.
        if is_new || self.files.is_empty() {
            self.files.clone_from(files);
        }
        is_new
    }

    /// Forgets what another stand-in showed. The bound counts answers of all.
    pub(crate) fn forget_model(&mut self, settings: &StandInSettings) {
        (self.costs, self.costs_apart) = Default::default();
        self.agreement = Window::new(settings.agreement.window.get());
        (self.withheld, self.unwatched) = (false, 0);
    }

    /// Takes a worker's measurement of the cost.
    pub(crate) fn tell_cost(&mut self, cost: Cost) {
        self.costs.tell(cost);
        self.costs_apart.tell(cost);
    }

    /// The queries of a line.
    pub(crate) fn line(&self, line: StandInLine) -> &VecDeque<QueryKey> {
        match line {
            StandInLine::Late => &self.late,
            StandInLine::Doubtful => &self.doubtful,
            StandInLine::Early => &self.early,
        }
    }

    /// The queries of a line, to change them.
    pub(crate) fn waiting(&mut self, line: StandInLine) -> &mut VecDeque<QueryKey> {
        match line {
            StandInLine::Late => &mut self.late,
            StandInLine::Doubtful => &mut self.doubtful,
            StandInLine::Early => &mut self.early,
        }
    }

    /// Whether a running query waits for one.
    pub(crate) fn has_early(&self) -> bool {
        !self.doubtful.is_empty() || !self.early.is_empty()
    }

    /// Adds a late query.
    pub(crate) fn is_late(&mut self, query: QueryKey, alive: impl Fn(QueryKey) -> bool, living: u32) {
        sweep(&mut self.late, alive, living);
        self.late.push_back(query);
    }

    /// Adds a running query without a stand-in.
    pub(crate) fn lacks(
        &mut self,
        query: QueryKey,
        outlook: Outlook,
        alive: impl Fn(QueryKey) -> bool,
        living: u32,
    ) {
        let doubtful = outlook == Outlook::Doubtful;
        let line = self.waiting(if doubtful { StandInLine::Doubtful } else { StandInLine::Early });
        sweep(line, alive, living);
        match outlook {
            Outlook::Late => line.push_front(query),
            Outlook::Doubtful | Outlook::Good => line.push_back(query),
        }
    }

    /// Notes a comparison of a prediction and its stand-in.
    pub(crate) fn compared(&mut self, agrees: bool, settings: &StandInSettings) {
        self.agreement.note(agrees);
        self.unwatched = 0;
        self.watch(settings);
    }

    /// Notes an answer that will not be compared, because no job runs its query.
    pub(crate) fn given_unwatched(&mut self) {
        self.unwatched = self.unwatched.saturating_add(1);
    }

    /// Whether the next answer should be compared.
    pub(crate) fn needs_comparison(&self) -> bool {
        self.unwatched >= UNWATCHED[usize::from(self.agreement().is_some())]
    }

    /// Notes that a query gets a run to compare its stand-in with.
    pub(crate) fn awaits_comparison(&mut self) {
        self.unwatched = 0;
    }

    /// The share of predictions with an agreeing stand-in, if enough were compared.
    pub(crate) fn agreement(&self) -> Option<f64> {
        let enough = self.agreement.seen() >= FEW.min(self.agreement.size());
        enough.then(|| f64::from(self.agreement.yes()) / f64::from(self.agreement.seen()))
    }

    fn watch(&mut self, settings: &StandInSettings) {
        let (floor, recovery) = (settings.agreement.floor.get(), settings.agreement.recovery.get());
        let Some(agreement) = self.agreement() else {
            let (seen, yes) = (self.agreement.seen(), f64::from(self.agreement.yes()));
            self.withheld |= seen >= FIRST && yes < floor / 2.0 * f64::from(seen);
            return;
        };
        // One disagreement must not withhold them again at once.
        let least = if self.withheld { (floor + recovery).min(1.0) } else { floor };
        self.withheld = agreement < least;
    }
}

/// Removes answered queries of a line when they could outnumber the others: no instance may come that skips them.
fn sweep(line: &mut VecDeque<QueryKey>, alive: impl Fn(QueryKey) -> bool, living: u32) {
    while line.front().is_some_and(|front| !alive(*front)) {
        line.pop_front();
    }
    let most = 2 * living as usize + DEAD_ALLOWED;
    if line.len() > most {
        line.retain(|query| alive(*query));
    }
    if line.len() > most {
        // Each outage adds all queries, and most may have been in line.
        let mut seen = BTreeSet::new();
        line.retain(|query| seen.insert(query.raw()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::arena::Key;

    #[test]
    fn stand_in_that_is_mostly_wrong_is_withheld_soon() {
        let settings = StandInSettings::default();
        let withheld_after = |wrong: &[bool]| {
            let mut stand_ins = StandIns::new(&settings);
            wrong.iter().for_each(|wrong| stand_ins.compared(!wrong, &settings));
            stand_ins.withheld
        };
        assert!(!withheld_after(&[true; 19]) && withheld_after(&[true; 20]));
        let half: Vec<bool> = (0..99).map(|at| at % 2 == 0).collect();
        assert!(!withheld_after(&half), "100 comparisons decide");
    }

    #[test]
    fn line_is_bounded_when_the_same_query_is_late_often() {
        let mut stand_ins = StandIns::new(&StandInSettings::default());
        for name in 0..1000 {
            stand_ins.is_late(Key::from_raw(1 + name % 2), |_| true, 2);
        }
        assert!(stand_ins.late.len() <= DEAD_ALLOWED + 5, "{}", stand_ins.late.len());
        assert_eq!(stand_ins.late.front().map(|first| first.raw()), Some(1), "the order stays");
    }

    #[test]
    fn stand_ins_that_disagree_are_withheld_until_they_agree_again() {
        let settings = StandInSettings::default();
        let mut stand_ins = StandIns::new(&settings);
        let mut compare = |count: u32, wrong_every: u32| {
            (0..count).for_each(|n| stand_ins.compared(n % wrong_every != 0, &settings));
            (stand_ins.agreement(), stand_ins.withheld)
        };
        assert_eq!(compare(99, 3), (None, false));
        assert!(compare(1000, 4).1, "3 of 4 is below the floor");
        assert_eq!(compare(1000, 5), (Some(0.8), true), "the floor is not enough to come back");
        assert_eq!(compare(1000, 10), (Some(0.9), false));
    }
}

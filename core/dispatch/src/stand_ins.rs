//! What a pool knows of its stand-ins: who wants one, what they cost, how many were given, how often they agree.

use std::collections::VecDeque;

use super::arena::Key;
use super::bound::Bound;
use super::budget::Budget;
use super::cost::Costs;
use super::query::Query;
use super::window::Window;
use super::{StandInSettings, Urgency};

/// The stand-ins of a pool.
pub(super) struct StandIns {
    /// Queries that run where the last answer was slow, and have none; the answered among them are passed over.
    pub(super) doubtful: VecDeque<Key<Query>>,
    /// Likewise the others that run: first those that will be late even if all goes well, then the oldest.
    pub(super) early: VecDeque<Key<Query>>,
    /// Likewise queries that are late, whether they run or wait.
    pub(super) late: VecDeque<Key<Query>>,
    pub(super) costs: Costs,
    pub(super) bound: Bound,
    /// Work on late queries that is allowed.
    pub(super) work: Budget,
    /// Predictions that stand-ins agreed with.
    pub(super) agreement: Window,
    /// They agree too seldom: no client is given one.
    pub(super) withheld: bool,
}

/// Where a query waits for a stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StandInLine {
    /// It is late, whether it runs or waits.
    Late,
    /// It runs where the last answer was slow: likely it will be late.
    Doubtful,
    /// It runs.
    Early,
}

/// What is to be expected of a query that was just started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// It will be answered in time, unless something goes wrong.
    Good,
    /// It waited so long that its prediction will be late anyway.
    Late,
    /// The last answer was slow where it runs.
    Doubtful,
}

impl StandInLine {
    /// Of the jobs for it.
    pub(super) fn urgency(self) -> Urgency {
        match self {
            Self::Late => Urgency::Late,
            Self::Doubtful | Self::Early => Urgency::Spare,
        }
    }
}

/// Comparisons without which nothing is said of the agreement.
const FEW: u32 = 100;
/// Queries of the answered that are passed over before they are swept.
const DEAD_ALLOWED: usize = 64;

impl StandIns {
    pub(super) fn new(settings: &StandInSettings) -> Self {
        Self {
            doubtful: VecDeque::new(),
            early: VecDeque::new(),
            late: VecDeque::new(),
            costs: Costs::default(),
            bound: Bound::new(settings),
            work: Budget::new(&settings.late_budget),
            agreement: Window::new(settings.agreement.window.get()),
            withheld: false,
        }
    }

    /// Other settings from now on.
    pub(super) fn change(&mut self, settings: &StandInSettings) {
        self.bound.change(settings);
        self.work.change(&settings.late_budget);
        self.agreement.resize(settings.agreement.window.get());
        self.watch(settings);
    }

    /// Queries that want one, of a line.
    pub(super) fn waiting(&mut self, line: StandInLine) -> &mut VecDeque<Key<Query>> {
        match line {
            StandInLine::Late => &mut self.late,
            StandInLine::Doubtful => &mut self.doubtful,
            StandInLine::Early => &mut self.early,
        }
    }

    /// Whether any may want one early.
    pub(super) fn has_early(&self) -> bool {
        !self.doubtful.is_empty() || !self.early.is_empty()
    }

    /// A query that runs has none. Those that were answered go, when there could be more of them than of the others.
    pub(super) fn lacks(
        &mut self,
        query: Key<Query>,
        outlook: Outlook,
        alive: impl Fn(Key<Query>) -> bool,
        living: u32,
    ) {
        let doubtful = outlook == Outlook::Doubtful;
        let line = self.waiting(if doubtful { StandInLine::Doubtful } else { StandInLine::Early });
        while line.front().is_some_and(|front| !alive(*front)) {
            line.pop_front();
        }
        if line.len() > 2 * living as usize + DEAD_ALLOWED {
            line.retain(|query| alive(*query));
        }
        match outlook {
            Outlook::Late => line.push_front(query),
            Outlook::Doubtful | Outlook::Good => line.push_back(query),
        }
    }

    /// A prediction and its stand-in were compared.
    pub(super) fn compared(&mut self, agrees: bool, settings: &StandInSettings) {
        self.agreement.note(agrees);
        self.watch(settings);
    }

    /// Share of the latest predictions that stand-ins agreed with, where enough were compared.
    pub(super) fn agreement(&self) -> Option<f64> {
        let enough = self.agreement.seen() >= FEW.min(self.agreement.size());
        enough.then(|| f64::from(self.agreement.yes()) / f64::from(self.agreement.seen()))
    }

    fn watch(&mut self, settings: &StandInSettings) {
        let Some(agreement) = self.agreement() else { return };
        let (floor, recovery) = (settings.agreement.floor.get(), settings.agreement.recovery.get());
        // Who is back must not go again for one disagreement.
        let least = if self.withheld { (floor + recovery).min(1.0) } else { floor };
        self.withheld = agreement < least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_that_disagree_are_withheld_until_they_agree_again() {
        let settings = StandInSettings::default();
        let mut stand_ins = StandIns::new(&settings);
        let mut compare = |count: u32, wrong_every: u32| {
            (0..count).for_each(|n| stand_ins.compared(n % wrong_every != 0, &settings));
            (stand_ins.agreement(), stand_ins.withheld)
        };
        assert_eq!(compare(99, 1), (None, false));
        assert!(compare(1000, 4).1, "3 of 4 is below the floor");
        assert_eq!(compare(1000, 5), (Some(0.8), true), "the floor is not enough to come back");
        assert_eq!(compare(1000, 10), (Some(0.9), false));
    }
}

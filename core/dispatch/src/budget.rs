//! How much extra work is allowed: a token bucket that real work fills.
//!
//! A share of recent work, and not a rate per second, so that it means the same at every load: extra jobs add at most
//! `ratio` to the load, and an outage cannot turn every job into two. The burst lets a quiet pool act at all, and is
//! what it starts with.

use super::BudgetSettings;

/// Tokens in whole parts per million, so that no rounding adds up.
#[derive(Debug)]
pub(super) struct Budget {
    tokens: u64,
    earn: u64,
    most: u64,
}

const TOKEN: u64 = 1_000_000;

impl Budget {
    pub(super) fn new(settings: &BudgetSettings) -> Self {
        let most = u64::from(settings.burst) * TOKEN;
        Self { tokens: most, earn: (settings.ratio.get() * TOKEN as f64) as u64, most }
    }

    /// Other limits from now on; what was saved up stays, as far as it still fits.
    pub(super) fn change(&mut self, settings: &BudgetSettings) {
        let saved = self.tokens;
        *self = Self::new(settings);
        self.tokens = saved.min(self.most);
    }

    /// A job was started on its own account.
    pub(super) fn earn(&mut self) {
        self.tokens = (self.tokens + self.earn).min(self.most.max(self.earn));
    }

    /// Whether one extra job may be made; it is paid for if so.
    pub(super) fn spend(&mut self) -> bool {
        let paid = self.tokens >= TOKEN;
        if paid {
            self.tokens -= TOKEN;
        }
        paid
    }

    /// Whether so much of a job's work may be done; it is paid for if so.
    pub(super) fn spend_part(&mut self, work: f64) -> bool {
        let price = (work * TOKEN as f64) as u64;
        let paid = self.tokens >= price;
        if paid {
            self.tokens -= price;
        }
        paid
    }

    /// Extra jobs that it pays for now, and at most.
    pub(super) fn tokens(&self) -> (f64, f64) {
        let jobs = |tokens: u64| tokens as f64 / TOKEN as f64;
        (jobs(self.tokens), jobs(self.most))
    }

    /// An extra job that was paid for was never started.
    pub(super) fn refund(&mut self) {
        self.tokens = (self.tokens + TOKEN).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fraction;

    #[test]
    fn extra_work_stays_within_its_share_and_burst() {
        let mut budget = Budget::new(&BudgetSettings { ratio: Fraction::percent(10), burst: 3 });
        let spend = |budget: &mut Budget| (0..100).filter(|_| budget.spend()).count();
        assert_eq!(spend(&mut budget), 3, "the burst");
        (0..20).for_each(|_| budget.earn());
        assert_eq!(spend(&mut budget), 2, "a tenth of twenty");
        (0..1000).for_each(|_| budget.earn());
        assert_eq!(spend(&mut budget), 3, "never more than the burst at once");
    }

    #[test]
    fn a_refund_can_be_spent_again() {
        let mut budget = Budget::new(&BudgetSettings { ratio: Fraction::percent(0), burst: 1 });
        assert!(budget.spend() && !budget.spend());
        budget.refund();
        assert!(budget.spend() && !budget.spend());
    }
}

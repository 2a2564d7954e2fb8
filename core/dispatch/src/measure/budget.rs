//! Budget of extra work: a token bucket that regular work fills.
//!
//! The rate is a share of recent work, not a rate per second, so it means the same at every load: extra jobs add
//! at most `ratio` to the load, and an outage cannot double every job. The bucket starts full with `burst` tokens,
//! so a quiet pool can act at all.

use crate::api::BudgetSettings;

/// The bucket. Tokens are counted in millionths, so that rounding errors do not add up.
#[derive(Debug)]
pub(crate) struct Budget {
    tokens: u64,
    earn: u64,
    most: u64,
}

const TOKEN: u64 = 1_000_000;

/// The price of an extra job in runs while half of the budget is left.
const PRICE: f64 = 0.25;

impl Budget {
    pub(crate) fn new(settings: &BudgetSettings) -> Self {
        let most = u64::from(settings.burst) * TOKEN;
        Self { tokens: most, earn: (settings.ratio.get() * TOKEN as f64) as u64, most }
    }

    /// Changes the limits. Saved tokens stay as far as they fit.
    pub(crate) fn change(&mut self, settings: &BudgetSettings) {
        let saved = self.tokens;
        *self = Self::new(settings);
        self.tokens = saved.min(self.most);
    }

    /// Adds the share of a token that a regular job earns.
    pub(crate) fn earn(&mut self) {
        self.tokens = (self.tokens + self.earn).min(self.most.max(self.earn));
    }

    /// Pays for one extra job. False if the budget is spent.
    pub(crate) fn spend(&mut self) -> bool {
        let paid = self.tokens >= TOKEN;
        if paid {
            self.tokens -= TOKEN;
        }
        paid
    }

    /// Pays for one extra job that saves so many runs. False if it saves less than the price, which rises as the
    /// budget empties: then only the largest gains are paid for, and not the first ones.
    pub(crate) fn buy(&mut self, saves: f64) -> bool {
        saves > self.price() && self.spend()
    }

    /// The least gain that is worth an extra job, in runs.
    pub(crate) fn price(&self) -> f64 {
        if self.tokens == 0 { f64::INFINITY } else { PRICE * (self.most as f64 / self.tokens as f64 - 1.0) }
    }

    /// Pays for a part of a job's work. False if the budget is spent.
    pub(crate) fn spend_part(&mut self, work: f64) -> bool {
        let price = (work * TOKEN as f64) as u64;
        let paid = self.tokens >= price;
        if paid {
            self.tokens -= price;
        }
        paid
    }

    /// Extra jobs that it allows now, and at most.
    pub(crate) fn tokens(&self) -> (f64, f64) {
        let jobs = |tokens: u64| tokens as f64 / TOKEN as f64;
        (jobs(self.tokens), jobs(self.most))
    }

    /// Returns the token of an extra job that was never started.
    pub(crate) fn refund(&mut self) {
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

//! A budget of extra work, such as copies and retries: a token bucket that regular work fills.
//!
//! The rate is a share of recent work and not a rate per second, so it means the same at every load: extra jobs add at most
//! `ratio` to the load, and an outage cannot double every job. The bucket starts full, so that a quiet model can act at all.
//! The token is spent when the attempt is wanted, because a queue of unpaid wants would start all at once.

/// The limits of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BudgetSettings {
    /// Extra runs for each query that starts its first run: a batch of eight queries counts as eight.
    pub ratio: f64,
    /// Extra jobs that are saved up at most, and that there are at the beginning. With 0 there are none at the beginning, but one is
    /// saved up: otherwise no share of regular jobs would ever allow one.
    pub burst: u32,
}

/// The extra jobs that may start now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    settings: BudgetSettings,
    /// In thousandths, so that shares of a token do not add up to rounding errors.
    tokens: u32,
}

const TOKEN: u32 = 1000;

impl Budget {
    pub(crate) fn new(settings: BudgetSettings) -> Self {
        Self { settings, tokens: settings.burst * TOKEN }
    }

    /// Changes the limits. What is saved stays, as far as they allow it.
    pub(crate) fn configure(&mut self, settings: BudgetSettings) {
        *self = Self { settings, tokens: self.tokens.min(settings.burst.max(1) * TOKEN) };
    }

    /// A query starts its first run.
    pub(crate) fn earn(&mut self) {
        let share = (self.settings.ratio * f64::from(TOKEN)) as u32;
        self.tokens = (self.tokens + share).min(self.settings.burst.max(1) * TOKEN);
    }

    /// The extra jobs that may start now, and at most.
    pub(crate) fn tokens(&self) -> [f64; 2] {
        [self.tokens, self.settings.burst.max(1) * TOKEN].map(|tokens| f64::from(tokens) / f64::from(TOKEN))
    }

    pub(crate) fn has_token(&self) -> bool {
        self.tokens >= TOKEN
    }

    /// Pays for an extra job, if there is a token.
    pub(crate) fn spend(&mut self) {
        self.tokens = self.tokens.saturating_sub(TOKEN);
    }

    /// Returns the token of an extra job that was wanted and never started.
    pub(crate) fn refund(&mut self) {
        self.tokens = (self.tokens + TOKEN).min(self.settings.burst.max(1) * TOKEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_work_stays_within_its_share_and_burst() {
        let mut budget = Budget::new(BudgetSettings { ratio: 0.1, burst: 3 });
        let mut spend_all = |earned: u32| {
            (0..earned).for_each(|_| budget.earn());
            let mut spent = 0;
            while budget.has_token() {
                budget.spend();
                spent += 1;
            }
            spent
        };
        assert_eq!(spend_all(0), 3, "the burst");
        assert_eq!(spend_all(20), 2, "a tenth of twenty");
        assert_eq!(spend_all(1000), 3, "never more than the burst at once");
    }
}

//! Clients that accept a share of approximate answers (`parm_accept: 0.01`).
//!
//! Clients of one model and one share have one account. No account gets more approximate answers than its share.

use crate::schedule::Ask;
use crate::world::Truth;

/// Answers of an account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Queries that were sent: one whose client went away may have been answered nevertheless.
    pub(crate) sent: u64,
    pub(crate) approximate: u64,
}

impl Truth {
    /// Counts a sent request.
    pub(crate) fn charges(&mut self, ask: &Ask) {
        if let Some(share) = ask.share {
            self.accounts.entry((ask.model, share)).or_default().sent += ask.rows.len() as u64;
        }
    }
}

/// Counts a request's answers.
pub(crate) fn notes(truth: &mut Truth, ask: &Ask, outcomes: &[&str]) {
    let Some(share) = ask.share else { return };
    let approximate = outcomes.iter().filter(|outcome| !matches!(**outcome, "exact" | "hedged")).count();
    truth.accounts.entry((ask.model, share)).or_default().approximate += approximate as u64;
}

/// Checks all accounts.
pub(crate) fn no_account_is_overdrawn(truth: &mut Truth) {
    let overdrawn = |((_, share), account): &(&(u8, u16), &Account)| {
        account.approximate * 1000 > account.sent * u64::from(*share)
    };
    let Some((model, share, account)) =
        truth.accounts.iter().find(overdrawn).map(|((model, share), account)| (*model, *share, *account))
    else {
        return;
    };
    truth.breach("approximate answers stay within the client's share", || {
        format!("m{model}, {share} thousandths: {account:?}")
    });
}

//! Clients that accept a share of approximate answers (`parm_accept: 0.01`). Those of one model and one share have one account,
//! and no account gets more approximate answers than the share of its queries.

use crate::schedule::Ask;
use crate::world::Truth;

/// The answers of an account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Queries that were sent, whatever became of them: one whose client went away may have been answered all the same.
    pub(crate) sent: u64,
    pub(crate) approximate: u64,
}

impl Truth {
    /// A request is sent.
    pub(crate) fn charges(&mut self, ask: &Ask) {
        if let Some(share) = ask.share {
            self.accounts.entry((ask.model, share)).or_default().sent += ask.rows.len() as u64;
        }
    }
}

/// A request has its answers.
pub(crate) fn notes(truth: &mut Truth, ask: &Ask, outcomes: &[&str]) {
    let Some(share) = ask.share else { return };
    let approximate = outcomes.iter().filter(|outcome| !matches!(**outcome, "exact" | "hedged")).count();
    truth.accounts.entry((ask.model, share)).or_default().approximate += approximate as u64;
}

/// Looks at all accounts.
pub(crate) fn no_account_is_overdrawn(truth: &mut Truth) {
    let overdrawn = |((_, share), account): &(&(u8, u16), &Account)| {
        account.approximate * 1000 > account.sent * u64::from(*share)
    };
    let Some((model, share, account)) =
        truth.accounts.iter().find(overdrawn).map(|((model, share), account)| (*model, *share, *account))
    else {
        return;
    };
    truth.breach("no client gets more approximate answers than its share", || {
        format!("m{model}, {share} thousandths: {account:?}")
    });
}

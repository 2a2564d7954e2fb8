//! Bound on the approximate answers of one model: at most a fraction of any window of its consecutive answers, and at
//! most 20 more than that fraction of any 1,000.
//!
//! The dispatcher checks [`Bound::has_room`] before it gives the answer of a stand-in, the cheaper model, and reports
//! every answer to [`Bound::note`]. Only stand-ins' answers are approximate here; all others count as exact, and
//! rejections do not count. [`Bound::stretch`] lengthens the wait for the exact answer.
//!
//! Problem: slow queries come in bursts. A token bucket would allow a full bucket and then a refill, which is twice
//! the fraction in one window. A mean over all time would let a whole afternoon be approximate.
//!
//! Choice: one bit for each of the latest `bound_window` answers, exact or not, and a count of the approximate ones. An
//! approximation is allowed only while the count is below the limit, so no window has more, wherever it begins. The
//! default window of 50,000 answers takes 6 KB. It alone would let the first minute of a busy hour be approximate, so a
//! second window of 1,000 answers has a limit as well: the fraction, and [`BURST`] more for a slow moment (none if the
//! fraction is 0). Its price: where instances are slow together for two seconds at load 0.5, p99.9 is 107 ms with it, 97 with a burst of 100, and
//! 50 without. It stays, because an operator who reads "5 %" expects no minute of approximations.
//!
//! Close to a limit the wait for the exact answer grows, so the remaining approximations go to the slowest queries. With
//! `given` approximations in a window and `left` until its limit, the factor is 1 + 0.1 (given / left)^2 for the long
//! window and 1 + 0.05 given / left for the short one; the larger counts.
//!
//! A client may accept a fraction of its own. Queries of one payer (a tenant's share, or the model itself) that
//! accept the same fraction have one account. Each answer earns the account that fraction of an approximation, and an
//! approximation costs one. An account saves at most eight, enough for a short burst. The account and both windows
//! must permit an approximation.
//!
//! Rejected: a short window alone (it would have to be so tight that no burst finds room, or so loose that the
//! long-term share doubles); one account for all such queries (queries with a low fraction would use what others
//! earned); a fraction of the last second (meaningless at one query a second); rejecting queries beyond the bound (a
//! late exact answer is better than none).
//!
//! A resized window keeps the latest answers that fit. If more of them are approximate than the new limit allows, no
//! answer is approximate until enough of them have left the window. Accounts keep their credit. The caller hands the
//! window to a new version of the model, and then notes the answers of both in both.
//!
//! Cold start: missing answers count as exact, so the first windows begin with their whole limits. Accounts start
//! empty.

use std::collections::BTreeMap;

use super::window::Window;
use crate::api::{Accept, Payer, ShareId, StandInSettings};

/// The latest answers, and the approximations that are left.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    long: Counted,
    /// The latest 1,000 answers, or as many as in `long` if those are fewer.
    short: Counted,
    /// Accounts of queries that accept a fraction of their own, by the share that pays (the model without one), and by
    /// fraction in thousandths.
    credit: BTreeMap<(Option<ShareId>, u16), f64>,
}

/// A window and the approximations that it may hold.
#[derive(Clone, Debug)]
struct Counted {
    window: Window,
    most: u32,
}

/// The size of the short window.
const SHORT: u32 = 1000;

/// Approximations in the short window beyond the fraction.
const BURST: f64 = 20.0;

/// The growth of the wait: at half of the limit it is a tenth longer.
const STIFFNESS: f64 = 0.1;

/// The same for the short window, in which the slowest queries come close to each other: a twentieth.
const SHORT_STIFFNESS: f64 = 0.05;

/// Approximations that an account may save.
const MOST_CREDIT: f64 = 8.0;

impl Counted {
    fn new((size, most): (u32, u32)) -> Self {
        Self { window: Window::new(size), most }
    }

    fn change(&mut self, (size, most): (u32, u32)) {
        self.most = most;
        self.window.resize(size);
    }

    fn left(&self) -> u32 {
        self.most.saturating_sub(self.window.yes())
    }
}

impl Bound {
    pub(crate) fn new(settings: &StandInSettings) -> Self {
        let (long, short) = (Counted::new(long(settings)), Counted::new(short(settings)));
        Self { long, short, credit: BTreeMap::new() }
    }

    /// Changes the bounds and keeps the latest answers.
    pub(crate) fn change(&mut self, settings: &StandInSettings) {
        self.long.change(long(settings));
        self.short.change(short(settings));
    }

    /// The factor by which the wait for the exact answer grows: 1 while few approximations were given.
    pub(crate) fn stretch(&self) -> f64 {
        let used = |of: &Counted| f64::from(of.window.yes()) / f64::from(of.left().max(1));
        1.0 + (STIFFNESS * used(&self.long).powi(2)).max(SHORT_STIFFNESS * used(&self.short))
    }

    /// The used part of the bound.
    pub(crate) fn used(&self) -> f64 {
        f64::from(self.long.window.yes()) / f64::from(self.long.most.max(1))
    }

    /// The approximate answers in the window, their limit, and the size of the window.
    pub(crate) fn given(&self) -> [u32; 3] {
        [self.long.window.yes(), self.long.most, self.long.window.size()]
    }

    /// Whether one more answer may be approximate.
    pub(crate) fn has_room(&self, payer: Payer, accept: Accept) -> bool {
        let own = match accept {
            Accept::Any => true,
            Accept::Exact => false,
            Accept::AtMost(asked) => {
                self.credit.get(&account(payer, asked)).is_some_and(|credit| *credit >= 1.0)
            }
        };
        own && self.long.left() > 0 && self.short.left() > 0
    }

    /// A query was answered.
    pub(crate) fn note(&mut self, payer: Payer, accept: Accept, approximate: bool) {
        self.long.window.note(approximate);
        self.short.window.note(approximate);
        if let Accept::AtMost(asked) = accept {
            let (payer, asked) = account(payer, asked);
            let credit = self.credit.entry((payer, asked)).or_default();
            *credit = (*credit + f64::from(asked) / 1000.0).min(MOST_CREDIT);
            *credit -= f64::from(u8::from(approximate));
        }
    }
}

/// The account of queries that accept a fraction of their own. All versions of a model have the same.
fn account(payer: Payer, asked: u16) -> (Option<ShareId>, u16) {
    let share = if let Payer::Share(share) = payer { Some(share) } else { None };
    (share, asked.min(1000))
}

/// The most approximate answers in any 1,000 in a row, or in the configured window if that is shorter.
pub fn most_in_a_row(settings: &StandInSettings) -> (u32, u32) {
    let (size, most) = short(settings);
    (most, size)
}

/// The size and the limit of the configured window.
fn long(settings: &StandInSettings) -> (u32, u32) {
    let size = settings.bound_window.get();
    (size, (f64::from(size) * settings.bound.get() + 1e-9) as u32)
}

/// The same of the short window.
fn short(settings: &StandInSettings) -> (u32, u32) {
    if settings.bound_window.get() <= SHORT {
        return long(settings);
    }
    // A bound of 0 allows none.
    let burst = if settings.bound.get() > 0.0 { BURST } else { 0.0 };
    (SHORT, (f64::from(SHORT) * settings.bound.get() + burst + 1e-9) as u32)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::{Fraction, PoolId};

    const OURS: Payer = Payer::Model(PoolId(0));

    fn share(percent: u8, window: u32) -> Bound {
        let bound_window = NonZeroU32::new(window).expect("positive");
        Bound::new(&StandInSettings {
            bound: Fraction::percent(percent),
            bound_window,
            ..StandInSettings::default()
        })
    }

    #[test]
    fn no_window_holds_more_than_its_share() {
        let mut share = share(10, 50);
        let given: Vec<bool> = (0..1000)
            .map(|number| {
                // Bursts of queries that would all accept an approximation.
                let given = number % 130 < 90 && share.has_room(OURS, Accept::Any);
                share.note(OURS, Accept::Any, given);
                given
            })
            .collect();
        assert!(given.windows(50).all(|window| window.iter().filter(|given| **given).count() <= 5));
        assert!(given.iter().filter(|given| **given).count() > 60, "what is allowed is given");
    }

    #[test]
    fn no_thousand_answers_hold_more_than_the_share_and_a_burst() {
        let mut share = share(5, 50_000);
        let given: Vec<bool> = (0..60_000)
            .map(|_| {
                let given = share.has_room(OURS, Accept::Any);
                share.note(OURS, Accept::Any, given);
                given
            })
            .collect();
        let most = |size| {
            given.windows(size).map(|window| window.iter().filter(|given| **given).count()).max().unwrap()
        };
        assert_eq!((most(1000), most(50_000)), (70, 2500));
    }

    #[test]
    fn clients_that_ask_for_less_get_what_their_answers_earn() {
        let (mut share, few) = (share(50, 1000), Accept::AtMost(250));
        let mut given = 0;
        for _ in 0..1000 {
            let approximate = share.has_room(OURS, few);
            share.note(OURS, few, approximate);
            given += u32::from(approximate);
        }
        assert!((248..=250).contains(&given), "{given} of 1000");
        assert!(!share.has_room(OURS, Accept::Exact));
    }

    #[test]
    fn credit_is_spent_only_by_queries_that_ask_for_the_same_bound() {
        let (mut share, half, tenth) = (share(50, 10_000), Accept::AtMost(500), Accept::AtMost(100));
        (0..1000).for_each(|_| share.note(OURS, half, false));
        assert!(share.has_room(OURS, half) && !share.has_room(OURS, tenth));
        (0..9).for_each(|_| share.note(OURS, tenth, false));
        assert!(!share.has_room(OURS, tenth), "nine answers earn less than one");
        share.note(OURS, tenth, false);
        share.note(OURS, tenth, false);
        assert!(share.has_room(OURS, tenth));
        let other = Payer::Share(crate::ShareId(1));
        assert!(
            !share.has_room(other, half) && !share.has_room(other, tenth),
            "another share earned nothing"
        );
    }

    #[test]
    fn another_window_keeps_the_latest_answers() {
        let mut share = share(10, 50);
        (0..5).for_each(|_| share.note(OURS, Accept::Any, true));
        for (window, left) in [(40, false), (60, true), (50, false)] {
            let bound_window = NonZeroU32::new(window).expect("positive");
            let bound = Fraction::percent(10);
            share.change(&StandInSettings { bound, bound_window, ..StandInSettings::default() });
            assert_eq!(share.has_room(OURS, Accept::Any), left, "{window}: {:?}", share.given());
        }
    }

    #[test]
    fn the_nearer_the_bound_the_longer_they_are_held_back() {
        let mut share = share(10, 100);
        let stretch: Vec<f64> =
            (0..10).map(|_| (share.note(OURS, Accept::Any, true), share.stretch()).1).collect();
        assert!(stretch[0] < 1.02 && stretch.is_sorted(), "{stretch:?}");
        assert!(
            (stretch[4] - 1.1).abs() < 1e-9 && stretch[9] > 10.0,
            "half of the bound, and all of it: {stretch:?}"
        );
    }
}

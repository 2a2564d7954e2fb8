//! Duration of a search: an estimate beforehand, and a time limit for the making of candidates.

use std::time::{Duration, Instant};

use super::Wish;
use super::frontier::Interruption;
use super::parts::Parts;
use crate::Error;
use crate::workshop::Progress;

/// About how long a search takes if a row takes the deployed model `each`, in seconds: most candidates run on all judged
/// rows, and ranges, layers and channels are tried on the rows that candidates are made from.
pub(super) fn estimate(each: f64, parts: &Parts, wish: &Wish) -> Duration {
    let runs = 12 * parts.judged.len() + 60 * parts.calibration.len() + 6 * parts.fitted.len();
    Duration::from_secs_f64(each * runs as f64) + 2 * wish.measure
}

pub(super) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..90.0 => format!("{seconds:.0} s"),
        ..5_400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    }
}

/// Stops the making of candidates at a time limit, or lets a search that was stopped finish.
pub(super) struct Limited<'a> {
    pub(super) progress: &'a dyn Progress,
    pub(super) until: Option<Instant>,
    /// Whether nothing stops it.
    pub(super) is_final: bool,
}

impl Limited<'_> {
    /// The reason if the making of candidates was stopped after these many: they are measured. An error if there are none.
    pub(super) fn ended(&self, done: Result<(), Error>, made: usize) -> Result<Option<Interruption>, Error> {
        match done {
            Err(Error::Stopped) if made > 0 => {
                let by = match self.progress.is_stopped() {
                    true => Interruption::User,
                    false => Interruption::TimeLimit,
                };
                self.tell(&format!("{by}: measuring the candidates that are made, {made} so far"));
                Ok(Some(by))
            }
            Err(Error::Stopped) if !self.progress.is_stopped() => Err(Error::NothingMade),
            done => done.map(|()| None),
        }
    }
}

impl Progress for Limited<'_> {
    fn doing(&self, what: &str) {
        self.progress.doing(what);
    }

    fn tell(&self, what: &str) {
        self.progress.tell(what);
    }

    fn within(&self, what: &str) {
        self.progress.within(what);
    }

    fn is_stopped(&self) -> bool {
        let is_late = || self.until.is_some_and(|until| Instant::now() >= until);
        !self.is_final && (self.progress.is_stopped() || is_late())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Alone;

    #[test]
    fn time_limit_keeps_the_candidates_that_are_made() {
        let limited = Limited { progress: &Alone, until: Some(Instant::now()), is_final: false };
        assert!(limited.is_stopped());
        assert_eq!(limited.ended(Err(Error::Stopped), 3), Ok(Some(Interruption::TimeLimit)));
        assert_eq!(limited.ended(Ok(()), 3), Ok(None));
        let nothing = limited.ended(Err(Error::Stopped), 0).unwrap_err();
        assert!(nothing.to_string().contains("nothing was measured"), "{nothing}");
    }
}

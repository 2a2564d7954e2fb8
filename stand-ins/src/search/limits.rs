//! Limits of a search: its memory, its duration, estimated beforehand, and the time limit for the making of candidates.

use std::time::{Duration, Instant};

use parm_parity_models::onnx::Model;
use parm_parity_models::onnx::rewrite::Draft;
use parm_protocol::MEASURED_ROWS;

use super::frontier::Interruption;
use super::{Parts, Wish};
use crate::Error;
use crate::graph::Survey;
use crate::memory::Need;
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// If an engine cannot tell the sizes of values, they are taken for so many times the input.
const INPUTS: u64 = 64;

/// The memory that a search needs, by a run of one row; the workshop's runs are bounded by it. Reports the measurements
/// that are left out for lack of memory.
pub(super) fn need(
    workshop: &Workshop,
    (model, draft): (&Model, &Draft),
    rows: &Rows,
    (wish, progress): (&Wish, &dyn Progress),
) -> Result<Need, Error> {
    let (file, inner) = (model.bytes().len() as u64, INPUTS * rows.bytes());
    let unknown = Need { live: inner, values: inner, answers: 0, is_batched: rows.is_batched(), file };
    let need = Need { file, ..Survey::need(workshop, draft, &rows.first(1)?).unwrap_or(unknown) };
    workshop.bound(need.live);
    let (judged, wanted) = (need.judged(wish.judged), wish.judged.min(rows.len()));
    if judged < wanted {
        progress.tell(&format!(
            "at most {judged} rows judge instead of {wanted}, as the answers of more do not fit the memory"
        ));
    }
    let counts = need.measured();
    if let Some(&last) = counts.last().filter(|_| counts.len() < MEASURED_ROWS.len()) {
        progress.tell(&format!(
            "runs of more than {last} rows do not fit the memory: their costs are estimated from those of {last}"
        ));
    }
    Ok(need)
}

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

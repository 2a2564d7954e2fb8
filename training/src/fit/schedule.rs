//! The length of a run and the size of its steps.
//!
//! A run with a given number of epochs is planned from its start. Any other run lasts until it converges: the step size
//! stays at its maximum until neither the loss nor the score on held-out data improves, and then falls to zero within a
//! quarter of that time, in which the weights settle. Both follow from the history alone, so a resumed run ends as an
//! uninterrupted one.

use serde::{Deserialize, Serialize};

use super::{Epoch, Settings};

/// The schedule of the step size after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Course {
    /// Constant, as in ParM's recipe.
    Constant,
    /// Falls to zero along half a cosine.
    #[default]
    Cosine,
}

/// Maximum epochs of a run without a given number.
pub const MOST_EPOCHS: u64 = 1000;
/// Maximum epochs before the step size falls: a quarter of them follows.
const MOST_STEADY: u64 = MOST_EPOCHS * 4 / 5;
/// Epochs without progress that end the steady part: so many at least, and this share of those before.
const PATIENCE: u64 = 10;
const PATIENT_SHARE: u64 = 3;
/// Progress: the loss falls by this share, or the score rises by this much.
const LOWER_LOSS: f64 = 1e-3;
const HIGHER_SCORE: f64 = 1e-4;
/// The fall of the loss in the second half of a run that shows that more epochs would help.
const STILL_FALLING: f64 = 0.1;

/// The epochs in which the step size falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fall {
    from: u64,
    /// The end of the run.
    pub(super) to: u64,
}

impl Fall {
    /// The fall of a run with this history; `None` if it is not known yet.
    pub(super) fn of(settings: &Settings, history: &[Epoch]) -> Option<Self> {
        if let Some(epochs) = settings.epochs {
            return Some(Self { from: 0, to: epochs });
        }
        let from = stalled(settings, history)?;
        match settings.shape {
            Course::Constant => Some(Self { from, to: from }),
            Course::Cosine => Some(Self { from, to: from + (from / 4).max(2) }),
        }
    }
}

/// The epoch after which a run had no progress for long enough, or has lasted long enough.
fn stalled(settings: &Settings, history: &[Epoch]) -> Option<u64> {
    let (mut loss, mut score, mut last) = (f64::INFINITY, f64::NEG_INFINITY, 0);
    let least = PATIENCE.max(settings.score_every.saturating_mul(3));
    for epoch in history {
        let lower = epoch.held_out_loss.filter(|now| *now < loss * (1.0 - LOWER_LOSS));
        let higher = epoch.score.filter(|now| *now > score + HIGHER_SCORE);
        if lower.is_some() || higher.is_some() {
            last = epoch.epoch;
        }
        (loss, score) = (lower.unwrap_or(loss), higher.unwrap_or(score));
        if epoch.epoch - last >= least.max(last / PATIENT_SHARE) || epoch.epoch == MOST_STEADY {
            return Some(epoch.epoch);
        }
    }
    None
}

/// Whether a finished run would hardly gain from more epochs.
pub(super) fn has_converged(settings: &Settings, history: &[Epoch]) -> bool {
    let Some(epochs) = settings.epochs else {
        return stalled(settings, history).is_none_or(|at| at < MOST_STEADY);
    };
    let before = epochs / 2;
    let least = |epochs: &mut dyn Iterator<Item = &Epoch>| {
        epochs.filter_map(|epoch| epoch.held_out_loss).fold(f64::INFINITY, f64::min)
    };
    let earlier = least(&mut history.iter().filter(|epoch| epoch.epoch <= before));
    let later = least(&mut history.iter().filter(|epoch| epoch.epoch > before));
    !earlier.is_finite() || later > earlier * (1.0 - STILL_FALLING)
}

/// The step sizes of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    /// The maximum.
    pub(super) peak: f32,
    /// Number of steps in which it rises from zero to the maximum.
    pub(super) warm_up: u64,
    /// Steps of an epoch.
    pub(super) steps: u64,
    pub(super) shape: Course,
}

impl Rate {
    /// The step size of step `at`, counted from 0.
    pub(super) fn at(&self, at: u64, fall: Option<Fall>) -> f32 {
        if at < self.warm_up {
            return self.peak * (at + 1) as f32 / self.warm_up as f32;
        }
        let Some(fall) = fall.filter(|_| self.shape == Course::Cosine) else { return self.peak };
        let from = fall.from.saturating_mul(self.steps).max(self.warm_up);
        let rest = fall.to.saturating_mul(self.steps).saturating_sub(from).max(1);
        let share = (at.saturating_sub(from) as f64 / rest as f64).min(1.0);
        (f64::from(self.peak) * 0.5 * (1.0 + (std::f64::consts::PI * share).cos())) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history with these losses and one score.
    fn history(losses: impl IntoIterator<Item = f64>) -> Vec<Epoch> {
        let epoch = |(at, loss)| Epoch {
            epoch: at as u64 + 1,
            loss,
            score: Some(0.9),
            held_out_loss: Some(loss),
            rate: 1e-3,
            groups: 10,
            seconds: 0.1,
        };
        losses.into_iter().enumerate().map(epoch).collect()
    }

    fn open() -> Settings {
        Settings { epochs: None, ..Settings::default() }
    }

    #[test]
    fn rate_rises_to_the_peak_and_falls_to_zero() {
        let rate = Rate { peak: 0.5, warm_up: 10, steps: 10, shape: Course::Cosine };
        let fall = Some(Fall { from: 0, to: 11 });
        assert_eq!(rate.at(4, fall), 0.25);
        assert_eq!((rate.at(9, fall), rate.at(10, fall), rate.at(1000, None)), (0.5, 0.5, 0.5));
        assert!((rate.at(60, fall) - 0.25).abs() < 1e-6);
        assert!(rate.at(110, fall) < 1e-9);
        assert!((rate.at(110, Some(Fall { from: 10, to: 12 })) - 0.25).abs() < 1e-6);
        assert_eq!(Rate { shape: Course::Constant, ..rate }.at(1000, fall), 0.5);
    }

    #[test]
    fn run_goes_on_while_the_loss_falls_and_ends_soon_after() {
        let falling = |epochs: i32| (0..epochs).map(|at| 0.97_f64.powi(at));
        assert_eq!(Fall::of(&open(), &history(falling(300))), None);
        let flat = history(falling(60).chain([0.2; 40]));
        let fall = Fall::of(&open(), &flat).unwrap();
        // Two thirds of a third: sixty epochs are given twenty more to improve.
        assert_eq!(fall, Fall { from: 80, to: 100 });
        assert!(has_converged(&open(), &flat));
        // Later epochs change nothing.
        assert_eq!(Fall::of(&open(), &history(falling(60).chain([0.2; 20]).chain([0.01]))), Some(fall));
    }

    #[test]
    fn endless_progress_ends_at_the_maximum_and_is_told() {
        let endless = history((0..1000).map(|at| 0.99_f64.powi(at)));
        assert_eq!(Fall::of(&open(), &endless), Some(Fall { from: 800, to: MOST_EPOCHS }));
        assert!(!has_converged(&open(), &endless));
        let given = Settings { epochs: Some(40), ..Settings::default() };
        assert_eq!(Fall::of(&given, &[]), Some(Fall { from: 0, to: 40 }));
        assert!(!has_converged(&given, &history((0..40).map(|at| 0.97_f64.powi(at)))));
        assert!(has_converged(&given, &history([0.2; 40])));
    }
}

//! The ways in which a query ends, from best to worst: one enum for clients, the simulator and experiments.
//!
//! `loadgen` derives an [`Outcome`] from a response, the simulator from the dispatcher's answer. Tallies index arrays by it.

/// How a query ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The deployed model's own prediction.
    Exact,
    /// An exact prediction from a duplicate.
    Hedged,
    /// A reconstruction.
    Reconstructed,
    /// The answer of a stand-in: a cheaper model on the instances of the deployed one.
    StandIn,
    /// The answer of a backup: a cheaper model on instances of its own.
    Backup,
    /// The model's default answer.
    Default,
    /// No answer.
    Failed,
    /// Never sent: too many queries were without an answer.
    Dropped,
}

impl Outcome {
    /// All outcomes, from best to worst.
    pub const ALL: [Outcome; 8] = [
        Outcome::Exact,
        Outcome::Hedged,
        Outcome::Reconstructed,
        Outcome::StandIn,
        Outcome::Backup,
        Outcome::Default,
        Outcome::Failed,
        Outcome::Dropped,
    ];

    /// Its name in results; for answers the value of `parm_outcome`.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Exact => "exact",
            Outcome::Hedged => "hedged",
            Outcome::Reconstructed => "reconstructed",
            Outcome::StandIn => "stand-in",
            Outcome::Backup => "backup",
            Outcome::Default => "default",
            Outcome::Failed => "failed",
            Outcome::Dropped => "dropped",
        }
    }

    /// Whether the client received an answer.
    pub fn is_answer(self) -> bool {
        self < Outcome::Failed
    }

    /// Whether the answer can differ from the deployed model's.
    pub const fn is_approximate(self) -> bool {
        matches!(self, Self::Reconstructed | Self::StandIn | Self::Backup | Self::Default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_ordered_and_only_answers_are_approximate() {
        assert!(Outcome::ALL.is_sorted() && Outcome::ALL.iter().enumerate().all(|(i, it)| *it as usize == i));
        let answers: Vec<_> = Outcome::ALL.into_iter().filter(|outcome| outcome.is_answer()).collect();
        assert_eq!(answers.len(), 6, "failed and dropped queries have no answer");
        assert!(Outcome::ALL.into_iter().filter(|it| it.is_approximate()).all(Outcome::is_answer));
        assert!(!Outcome::Exact.is_approximate() && !Outcome::Hedged.is_approximate());
    }
}

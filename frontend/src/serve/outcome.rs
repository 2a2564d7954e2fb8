//! Outcome of an answer, as reported to the client.

/// The parameter of answers that names their outcome.
pub(crate) const OUTCOME: &str = "parm_outcome";

/// Outcomes from best to worst: a request of several rows is labelled with its worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The deployed model's prediction.
    Exact,
    /// The deployed model's prediction, by a hedge.
    Hedged,
    /// Decoded from a parity.
    Reconstructed,
    /// The stand-in's prediction.
    StandIn,
    /// The backup model's prediction.
    Backup,
    /// The model's configured default answer.
    Default,
}

impl Outcome {
    /// All outcomes, in order.
    pub const ALL: [Outcome; 6] = [
        Outcome::Exact,
        Outcome::Hedged,
        Outcome::Reconstructed,
        Outcome::StandIn,
        Outcome::Backup,
        Outcome::Default,
    ];

    /// The value of `parm_outcome`.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Exact => "exact",
            Outcome::Hedged => "hedged",
            Outcome::Reconstructed => "reconstructed",
            Outcome::StandIn => "stand-in",
            Outcome::Backup => "backup",
            Outcome::Default => "default",
        }
    }
}

//! Meaning of an output's values, and whether two answers are the same in that meaning.
//!
//! The search for stand-ins and the server's live comparison use the same functions, so that both give the same figure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The meaning of an output's values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Meaning {
    /// Raw scores of classes: a softmax turns them into probabilities.
    #[default]
    Logits,
    /// Probabilities of classes: the graph ends in a softmax.
    Probabilities,
    /// Other values, such as coordinates: they have no confidence.
    Values,
    /// A vector whose direction matters, such as the embedding of a sentence: it has no confidence.
    Embedding,
    /// Numbers that clients compare with this threshold, such as one probability: they have no confidence.
    Decision(f32),
    /// A class itself, as a whole number or a string: it must be identical.
    Label,
}

/// The threshold of a decision without one.
const HALF: f32 = 0.5;
/// Values agree if they differ by at most this share of their size.
pub const TOLERANCE: f32 = 0.05;
/// Two embeddings agree if their cosine is at least this.
const SAME_DIRECTION: f32 = 0.95;
/// A difference of values below this is rounding, whatever their size.
const ROUNDING: f32 = 1e-6;

impl Meaning {
    /// Whether the values are scores of classes, so that one is the best.
    pub fn has_classes(self) -> bool {
        matches!(self, Self::Logits | Self::Probabilities)
    }

    /// Whether an answer is one of a few, so that one of them may be the usual one.
    pub fn is_choice(self) -> bool {
        !matches!(self, Self::Values | Self::Embedding)
    }

    /// Whether two answers with `columns` values in the last axis agree. Values that are not finite never agree: servers
    /// withhold such an answer of a stand-in. The best of one class would always be the same, so one column is compared as
    /// values.
    pub fn agree(self, a: &[f32], b: &[f32], columns: usize, tolerance: f32) -> bool {
        if a.len() != b.len() || !a.iter().chain(b).all(|value| value.is_finite()) {
            return false;
        }
        match self {
            Self::Logits | Self::Probabilities if columns > 1 => {
                a.chunks(columns).zip(b.chunks(columns)).all(|(a, b)| best(a) == best(b))
            }
            Self::Logits | Self::Probabilities | Self::Values => distance(a, b) <= tolerance,
            Self::Embedding => {
                let mut pairs = a.chunks(columns.max(1)).zip(b.chunks(columns.max(1)));
                pairs.all(|(a, b)| cosine(a, b) >= SAME_DIRECTION)
            }
            Self::Decision(least) => a.iter().zip(b).all(|(a, b)| (*a >= least) == (*b >= least)),
            Self::Label => a == b,
        }
    }
}

/// The distance of two lists as a share of their size; infinite if one has values that are not numbers.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>().sqrt();
    let apart = norm(&mut a.iter().zip(b).map(|(a, b)| if a == b { 0.0 } else { a - b }));
    let size = norm(&mut a.iter().copied()).max(norm(&mut b.iter().copied()));
    match apart {
        _ if a.len() != b.len() || !apart.is_finite() => f32::INFINITY,
        ..=ROUNDING => 0.0,
        _ if size.is_infinite() => f32::INFINITY,
        _ => apart / size,
    }
}

/// The class of the highest score, the first one if several have it.
pub fn best(scores: &[f32]) -> Option<usize> {
    let best = scores.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map(|(class, _)| class)
}

/// The cosine between two vectors: 1 if both are zero, 0 if one is.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let product =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let sizes = (product(a, a) * product(b, b)).sqrt();
    match sizes {
        0.0 => f32::from(u8::from(product(a, a) == product(b, b))),
        _ => (product(a, b) / sizes) as f32,
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Logits => f.write_str("logits"),
            Self::Probabilities => f.write_str("probabilities"),
            Self::Values => f.write_str("values"),
            Self::Embedding => f.write_str("embedding"),
            Self::Decision(least) => write!(f, "decision:{least}"),
            Self::Label => f.write_str("label"),
        }
    }
}

impl FromStr for Meaning {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "unknown meaning '{text}': use logits, probabilities, values, embedding, decision, decision:THRESHOLD or label"
            )
        };
        Ok(match text {
            "logits" => Self::Logits,
            "probabilities" => Self::Probabilities,
            "values" => Self::Values,
            "embedding" => Self::Embedding,
            "decision" => Self::Decision(HALF),
            "label" => Self::Label,
            _ => {
                let least = text.strip_prefix("decision:").and_then(|least| least.parse::<f32>().ok());
                Self::Decision(least.filter(|least| least.is_finite()).ok_or_else(unknown)?)
            }
        })
    }
}

impl Serialize for Meaning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Meaning {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeddings_agree_if_their_directions_do() {
        let agree = |a: &[f32], b: &[f32]| Meaning::Embedding.agree(a, b, 2, TOLERANCE);
        assert!(agree(&[1.0, 2.0], &[10.0, 21.0]) && !agree(&[1.0, 2.0], &[2.0, 1.0]));
        assert!(!agree(&[1.0, 2.0, 1.0, 0.0], &[1.0, 2.0, 0.0, 1.0]), "every embedding must agree");
        assert!(!agree(&[1.0, 2.0], &[1.0]) && !agree(&[f32::NAN, 2.0], &[1.0, 2.0]));
        assert_eq!((cosine(&[0.0], &[0.0]), cosine(&[0.0], &[3.0])), (1.0, 0.0));
        assert_eq!((cosine(&[1e-23, 0.0], &[0.0, 1e-23]), cosine(&[3e19], &[3e19])), (0.0, 1.0));
    }

    #[test]
    fn one_column_is_never_the_best_of_one_class() {
        for meaning in [Meaning::Logits, Meaning::Probabilities, Meaning::Values] {
            assert!(!meaning.agree(&[0.1], &[0.9], 1, TOLERANCE), "{meaning}");
            assert!(meaning.agree(&[0.9], &[0.91], 1, TOLERANCE), "{meaning}");
        }
        let decision = Meaning::Decision(0.5);
        assert!(
            decision.agree(&[0.6], &[0.9], 1, TOLERANCE) && !decision.agree(&[0.4], &[0.6], 1, TOLERANCE)
        );
    }

    #[test]
    fn values_that_are_not_finite_never_agree() {
        let all = ["logits", "probabilities", "values", "embedding", "decision", "label"];
        for meaning in all.map(|name| name.parse::<Meaning>().unwrap()) {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let answer = [value, 1.0];
                assert!(!meaning.agree(&answer, &answer, 2, TOLERANCE), "{meaning}: {value}");
            }
        }
    }

    #[test]
    fn meaning_is_written_as_it_is_read() {
        for text in ["logits", "probabilities", "values", "embedding", "decision:0.25", "label"] {
            assert_eq!(text.parse::<Meaning>().unwrap().to_string(), text);
        }
        assert_eq!("decision".parse(), Ok(Meaning::Decision(0.5)));
        assert!("decision:NaN".parse::<Meaning>().unwrap_err().contains("decision:THRESHOLD"));
    }
}

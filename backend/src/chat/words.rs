//! Made-up words: the n-th token of an answer is a pure function of the prompt.

use parm_workload::Random;

/// Words of a language model's small talk, each one token of a usual tokenizer.
const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "a", "in", "is", "that", "for", "it", "as", "with", "was", "on", "are", "by",
    "this", "be", "from", "or", "an", "which", "at", "not", "have", "one", "all", "time", "model", "more",
    "when", "can", "there", "use", "first", "may", "new", "two", "like", "other", "then", "these", "some",
    "into", "only", "over", "work", "way", "well", "state", "point", "part", "line", "order", "case", "data",
    "light", "water", "small", "large", "long", "fast", "late", "early",
];

/// Appends the token of this number.
pub(super) fn push(text: &mut String, seed: u64, number: u32) {
    if number > 0 {
        text.push(' ');
    }
    text.push_str(WORDS[Random::of(seed, [u64::from(number)]).below(WORDS.len())]);
}

/// Returns the tokens before this number.
pub(super) fn text(seed: u64, tokens: u32) -> String {
    let mut text = String::new();
    (0..tokens).for_each(|number| push(&mut text, seed, number));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_answer_begins_with_the_shorter_one() {
        assert!(text(7, 100).starts_with(&text(7, 99)));
        assert_eq!(text(7, 100).split(' ').count(), 100);
        assert_ne!(text(7, 20), text(8, 20));
        assert_eq!(text(7, 0), "");
    }
}

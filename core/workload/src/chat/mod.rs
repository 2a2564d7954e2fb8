//! A replica that answers chats: continuous batching, without I/O and without a clock, and traces of requests.
//!
//! [`Batch`] decides which streams an iteration advances and how long it takes. The caller owns the time: the emulated
//! server waits for the end of each iteration. [`Requests`] are recorded arrivals with their numbers of tokens.
//!
//! Choice: one linear formula for an iteration ([`Costs`]). Servers of language models run one iteration after another;
//! each gives every decoding stream one token and reads a chunk of waiting prompts. A slow replica is therefore a factor on
//! its iterations, and a [`Schedule`](crate::Schedule) applies to them as to the runs of any other instance.
//!
//! Rejected: attention that grows with the length of a stream, caches of common prefixes, preemption when memory is full.
//! They change how much work a stream is, not how a slow or standing replica delays its streams.

mod batch;
mod costs;
#[cfg(test)]
mod tests;
mod trace;

pub use batch::{Advance, Batch};
pub use costs::{Costs, Tokens};
pub use trace::Requests;

/// Words of three letters: with their space, each is one token of most tokenizers and four bytes.
const WORDS: [&str; 32] = [
    "the", "and", "for", "are", "but", "not", "you", "all", "any", "can", "had", "her", "was", "one", "our",
    "out", "day", "get", "has", "him", "his", "how", "man", "new", "now", "old", "see", "two", "way", "boy",
    "did", "car",
];

/// The made-up token of this number in the prompt or answer with this seed.
pub fn word(seed: u64, number: u32) -> &'static str {
    WORDS[parm_random::Random::of(seed, [u64::from(number)]).below(WORDS.len())]
}

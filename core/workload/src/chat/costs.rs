//! The work of a request in tokens, and the time of an iteration.

use crate::Error;

/// The size of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Tokens of the prompt; 0 counts as 1.
    pub prompt: u32,
    /// Tokens to generate; 0 counts as 1.
    pub output: u32,
}

/// Time of an iteration, and limits of its batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Milliseconds of each iteration.
    pub base_ms: f64,
    /// Milliseconds for each stream that gets a token.
    pub stream_ms: f64,
    /// Milliseconds for each token of a prompt that is read.
    pub prompt_token_ms: f64,
    /// Most tokens of prompts that an iteration reads.
    pub chunk: u32,
    /// Most streams at a time, those whose prompt is being read included.
    pub streams: usize,
}

impl Default for Costs {
    /// A model of some billion parameters on one accelerator.
    fn default() -> Self {
        Self { base_ms: 18.0, stream_ms: 0.3, prompt_token_ms: 0.1, chunk: 512, streams: 256 }
    }
}

impl Costs {
    /// Rejects costs with which no request ends.
    pub fn check(&self) -> Result<(), Error> {
        let times = [self.base_ms, self.stream_ms, self.prompt_token_ms];
        let fine = times.iter().all(|ms| (0.0..=60_000.0).contains(ms)) && self.chunk > 0 && self.streams > 0;
        if fine { Ok(()) } else { Err(Error::BadCosts { given: format!("{self:?}") }) }
    }

    /// Returns the nanoseconds of an iteration that gives this many streams a token and reads this many tokens.
    pub fn nanos(&self, decoding: usize, read: u32) -> f64 {
        let ms = self.base_ms + self.stream_ms * decoding as f64 + self.prompt_token_ms * f64::from(read);
        ms * 1e6
    }
}

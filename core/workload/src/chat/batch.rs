//! Continuous batching: which streams run, which prompts are read, and which stream gets a token.
//!
//! Requests are read in the order of arrival. A request joins the batch at the start of an iteration, while fewer than
//! [`Costs::streams`] run and a part of the chunk is left. Its first token appears at the end of the iteration that reads
//! the rest of its prompt, and each later iteration gives it one more.

use std::collections::VecDeque;

use super::{Costs, Tokens};

/// The streams of one replica.
#[derive(Clone, Debug)]
pub struct Batch {
    costs: Costs,
    waiting: VecDeque<(u64, Tokens)>,
    /// In the order of arrival.
    running: Vec<Stream>,
}

/// A request in the batch.
#[derive(Clone, Copy, Debug)]
struct Stream {
    id: u64,
    /// Tokens of the prompt that are not read yet.
    unread: u32,
    /// Tokens of them that this iteration reads.
    reading: u32,
    /// Tokens that it still has to generate.
    left: u32,
}

/// A stream that got a token in an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// The request.
    pub id: u64,
    /// Whether it has ended.
    pub done: bool,
}

impl Batch {
    /// An empty batch; the costs must be valid.
    pub fn new(costs: Costs) -> Self {
        Self { costs, waiting: VecDeque::new(), running: Vec::new() }
    }

    /// Requests that wait for their first chunk.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Adds a request. Its identifier must be one of its own.
    pub fn arrive(&mut self, id: u64, tokens: Tokens) {
        self.waiting.push_back((id, tokens));
    }

    /// Removes a request at once. The iteration in progress takes as long as before. Returns whether it was there.
    pub fn leave(&mut self, id: u64) -> bool {
        let before = self.waiting.len() + self.running.len();
        self.waiting.retain(|(other, _)| *other != id);
        self.running.retain(|stream| stream.id != id);
        self.waiting.len() + self.running.len() < before
    }

    /// Starts an iteration. Returns the nanoseconds that it takes without faults, or `None` if there is nothing to do.
    pub fn begin(&mut self) -> Option<f64> {
        let (mut room, mut decoding) = (self.costs.chunk, 0);
        for stream in &mut self.running {
            decoding += usize::from(stream.unread == 0);
            stream.reading = stream.unread.min(room);
            room -= stream.reading;
        }
        while room > 0 && self.running.len() < self.costs.streams {
            let Some((id, Tokens { prompt, output })) = self.waiting.pop_front() else { break };
            let unread = prompt.max(1);
            let reading = unread.min(room);
            room -= reading;
            self.running.push(Stream { id, unread, reading, left: output });
        }
        (!self.running.is_empty()).then(|| self.costs.nanos(decoding, self.costs.chunk - room))
    }

    /// Ends the iteration, and appends the streams that got a token, in the order of their arrival.
    pub fn end(&mut self, advances: &mut Vec<Advance>) {
        self.running.retain_mut(|stream| {
            stream.unread -= std::mem::take(&mut stream.reading);
            if stream.unread > 0 {
                return true;
            }
            stream.left = stream.left.saturating_sub(1);
            let done = stream.left == 0;
            advances.push(Advance { id: stream.id, done });
            !done
        });
    }
}

//! A replica that answers chats: continuous batching, without I/O and without a clock, and traces of requests.
//!
//! [`Batch`] decides which streams an iteration advances and how long it takes. The caller owns the time: the emulated
//! server waits for the end of each iteration. [`Requests`] are recorded arrivals with their numbers of tokens.
//!
//! Choice: one linear formula for an iteration ([`Costs`]). Servers of language models run one iteration after another;
//! each gives every decoding stream one token and reads a chunk of waiting prompts. A slow replica is therefore a factor on
//! its iterations, and a [`Schedule`](crate::Schedule) applies to them as to the runs of any other instance.
//!
//! Requests are read in the order of arrival. A request joins the batch at the start of an iteration, while fewer than
//! [`Costs::streams`] run and a part of the chunk is left. Its first token appears at the end of the iteration that reads
//! the rest of its prompt, and each later iteration gives it one more.
//!
//! Rejected: attention that grows with the length of a stream, caches of common prefixes, preemption when memory is full.
//! They change how much work a stream is, not how a slow or standing replica delays its streams.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Error;

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
    /// Returns the nanoseconds of an iteration that gives this many streams a token and reads this many tokens.
    pub fn nanos(&self, decoding: usize, read: u32) -> f64 {
        let ms = self.base_ms + self.stream_ms * decoding as f64 + self.prompt_token_ms * f64::from(read);
        ms * 1e6
    }
}

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

/// The requests of a trace, in the order of their times: a CSV file with the columns `timestamp_ms,input_tokens,output_tokens`.
///
/// Traces are published with times of many forms. This one has no dates, so a file needs no calendar to be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    /// Seconds since the first request.
    pub seconds: Vec<f64>,
    /// The size of each.
    pub sizes: Vec<Tokens>,
}

/// Most tokens of a prompt or of an answer.
const MOST_TOKENS: u32 = 10_000_000;

impl Requests {
    /// Reads at most this many requests of a CSV file. Empty lines and lines that begin with `#` are skipped.
    pub fn parse(text: &str, most: usize) -> Result<Self, Error> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let (_, header) = lines.next().ok_or(Error::EmptyTrace)?;
        if header != "timestamp_ms,input_tokens,output_tokens" {
            return Err(Error::BadColumns { text: header.chars().take(80).collect() });
        }
        let (mut times, mut sizes): (Vec<f64>, Vec<_>) = (Vec::new(), Vec::new());
        let mut start = None;
        for (line, row) in lines.take(most) {
            let bad = || Error::BadRequest { line, text: row.chars().take(80).collect() };
            let (stamp, tokens) = read(row).ok_or_else(bad)?;
            let seconds = (stamp - *start.get_or_insert(stamp)) / 1e3;
            if times.last().is_some_and(|last| seconds < *last) {
                return Err(bad());
            }
            times.push(seconds);
            sizes.push(tokens);
        }
        if times.is_empty() { Err(Error::EmptyTrace) } else { Ok(Self { seconds: times, sizes }) }
    }

    /// Replays the trace this many times as fast.
    pub fn faster(mut self, speed: f64) -> Result<Self, Error> {
        if !(1e-6..=1e6).contains(&speed) {
            return Err(Error::BadSpeed { speed });
        }
        self.seconds.iter_mut().for_each(|seconds| *seconds /= speed);
        Ok(self)
    }

    /// The time of the last request; the longest possible one if it is later.
    pub fn length(&self) -> Duration {
        let last = self.seconds.last().copied().unwrap_or_default();
        Duration::try_from_secs_f64(last).unwrap_or(Duration::MAX)
    }
}

fn read(row: &str) -> Option<(f64, Tokens)> {
    let [time, prompt, output] = row.split(',').map(str::trim).collect::<Vec<_>>()[..] else { return None };
    let tokens = |text: &str| text.parse::<u32>().ok().filter(|count| *count <= MOST_TOKENS);
    let tokens = Tokens { prompt: tokens(prompt)?, output: tokens(output)? };
    let time = time.parse::<f64>().ok().filter(|time| time.is_finite())?;
    Some((time, tokens))
}

#[cfg(test)]
mod tests {
    //! Times computed by hand, and the queue M/D/1.

    use super::*;
    use crate::Pattern;
    use parm_durations::Time;

    const MS: f64 = 1e6;

    fn tokens(prompt: u32, output: u32) -> Tokens {
        Tokens { prompt, output }
    }

    /// The milliseconds at which each request got its first and its last token. Requests arrive at these milliseconds.
    fn served(costs: Costs, requests: &[(f64, Tokens)]) -> Vec<(f64, f64)> {
        let mut batch = Batch::new(costs);
        let mut times = vec![(f64::NAN, f64::NAN); requests.len()];
        let (mut now, mut next) = (Time::ZERO, 0);
        let arrival = |number: usize| Time::ZERO.later(requests[number].0 * MS);
        let mut advances = Vec::new();
        loop {
            while next < requests.len() && arrival(next) <= now {
                batch.arrive(next as u64, requests[next].1);
                next += 1;
            }
            match batch.begin() {
                None if next == requests.len() => return times,
                None => now = arrival(next),
                Some(nanos) => {
                    now = now.later(nanos);
                    batch.end(&mut advances);
                    let ms = now.as_nanos() as f64 / MS;
                    for Advance { id, .. } in advances.drain(..) {
                        let (first, last) = &mut times[id as usize];
                        *first = if first.is_nan() { ms } else { *first };
                        *last = ms;
                    }
                }
            }
        }
    }

    fn near(got: &[(f64, f64)], wanted: &[(f64, f64)]) {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-3;
        let fine = got.iter().zip(wanted).all(|(a, b)| close(a.0, b.0) && close(a.1, b.1));
        assert!(got.len() == wanted.len() && fine, "{got:?}, expected {wanted:?}");
    }

    #[test]
    fn one_request_takes_its_chunks_and_then_a_token_per_iteration() {
        // 1,100 tokens are chunks of 512, 512 and 76: 69.2 + 69.2 + 25.6 ms. Each further token takes 18.3 ms.
        let got = served(Costs::default(), &[(5.0, tokens(1100, 4))]);
        near(&got, &[(169.0, 169.0 + 3.0 * 18.3)]);
        near(&served(Costs::default(), &[(0.0, tokens(0, 1))]), &[(18.1, 18.1)]);
    }

    #[test]
    fn prompt_is_read_next_to_decoding_streams() {
        // The second request arrives in the first iteration (28 ms) and is read in the second one: 18 + 0.3 + 20 ms.
        let got = served(Costs::default(), &[(0.0, tokens(100, 3)), (1.0, tokens(200, 2))]);
        let second = 28.0 + 38.3;
        near(&got, &[(28.0, second + 18.6), (second, second + 18.6)]);
    }

    #[test]
    fn prompts_share_a_chunk_in_order_of_arrival() {
        // 300 and 212 tokens of the second fit into the first chunk, its other 88 and the third into the next.
        let requests = [(0.0, tokens(300, 1)), (0.0, tokens(300, 1)), (0.0, tokens(10, 1))];
        let first = 18.0 + 51.2;
        let second = first + 18.0 + 9.8;
        near(&served(Costs::default(), &requests), &[(first, first), (second, second), (second, second)]);
    }

    #[test]
    fn requests_wait_while_all_streams_run() {
        let costs = Costs { streams: 2, ..Costs::default() };
        let requests = [(0.0, tokens(10, 2)), (0.0, tokens(10, 4)), (0.0, tokens(10, 1))];
        // Two are read in 20 ms and decode in 18.6 ms; then the first has ended, and the third is read next to the second.
        let third = 20.0 + 18.6 + 18.0 + 0.3 + 1.0;
        let got = served(costs, &requests);
        near(&got, &[(20.0, 38.6), (20.0, third + 18.3), (third, third)]);
    }

    #[test]
    fn request_that_leaves_frees_its_place_at_once() {
        let mut batch = Batch::new(Costs { streams: 1, ..Costs::default() });
        (0..3).for_each(|id| batch.arrive(id, tokens(10, 100)));
        assert!(batch.begin().is_some());
        assert_eq!((batch.running(), batch.waiting()), (1, 2));
        assert!(batch.leave(0) && batch.leave(1) && !batch.leave(1));
        let mut advances = Vec::new();
        batch.end(&mut advances);
        assert_eq!(advances, [], "a request that left gets no token");
        assert!(batch.begin().is_some());
        assert_eq!((batch.running(), batch.waiting()), (1, 0));
        assert!(batch.leave(2));
        assert_eq!(batch.begin(), None);
    }

    #[test]
    fn prompts_of_one_chunk_wait_as_in_the_queue_m_d_1() {
        // A prompt of a whole chunk and one token of answer make each iteration serve one request, in 69.2 ms.
        let service = 69.2f64;
        for load in [0.3, 0.6, 0.8] {
            let times = Pattern::Poisson.at(load / service * 1e3).schedule(11).unwrap();
            let requests: Vec<(f64, Tokens)> =
                times.take(200_000).map(|at| (at.as_secs_f64() * 1e3, tokens(512, 1))).collect();
            let got = served(Costs::default(), &requests);
            let waits = got.iter().zip(&requests).map(|((first, _), (at, _))| first - at - service);
            let mean = waits.sum::<f64>() / requests.len() as f64;
            let expected = load * service / (2.0 * (1.0 - load));
            assert!((mean / expected - 1.0).abs() < 0.04, "load {load}: {mean} ms, expected {expected}");
        }
    }

    const HEADER: &str = "timestamp_ms,input_tokens,output_tokens\n";

    #[test]
    fn bad_rows_are_named() {
        for row in ["5,1", "x,1,1", "5,-1,1", "5,1,1e3", "5,1,99999999", "nan,1,1", "3,1,1", "5,1,1,1"] {
            let error = Requests::parse(&format!("# a note\n{HEADER}4,1,1\n{row}"), 9).unwrap_err();
            assert_eq!(error, Error::BadRequest { line: 4, text: row.into() }, "{row}");
        }
        assert_eq!(Requests::parse(HEADER, 9), Err(Error::EmptyTrace));
        assert_eq!(Requests::parse("a,b,c\n1,1,1", 9), Err(Error::BadColumns { text: "a,b,c".into() }));
    }

    #[test]
    fn sample_of_azure_is_read() {
        let sample = Requests::parse(include_str!("../profiles/azure-conversations.csv"), 10_000).unwrap();
        assert_eq!((sample.sizes.len(), sample.length()), (2000, Duration::from_millis(424_259)));
        assert_eq!(sample.sizes[0], Tokens { prompt: 374, output: 44 });
    }

    #[test]
    fn speed_divides_the_times() {
        let text = format!("{HEADER}0,1,1\n1750,1,1\n1e300,1,1\n");
        let fast = Requests::parse(&text, 2).unwrap().faster(1.4).unwrap();
        assert_eq!(fast.length(), Duration::from_secs_f64(1.25));
        assert_eq!(Requests::parse(&text, 9).unwrap().length(), Duration::MAX);
        for speed in [0.0, -1.0, f64::NAN, 1e9] {
            assert!(Requests::parse(&text, 9).unwrap().faster(speed).is_err());
        }
    }
}

//! Recorded requests: a CSV file with the columns `timestamp_ms,input_tokens,output_tokens`.
//!
//! Traces are published with times of many forms. This one has no dates, so a file needs no calendar to be read.

use std::time::Duration;

use super::Tokens;
use crate::Error;

/// The requests of a trace, in the order of their times.
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
    use super::*;

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
        let sample = Requests::parse(include_str!("../../profiles/azure-conversations.csv"), 10_000).unwrap();
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

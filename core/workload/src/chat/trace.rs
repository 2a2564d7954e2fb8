//! Recorded requests: a CSV file with a time, the tokens of the prompt and the tokens of the answer in each row.
//!
//! The first row names the columns: those of the Azure traces of 2023 (`TIMESTAMP,ContextTokens,GeneratedTokens`) or those
//! of Mooncake (`timestamp_ms,input_tokens,output_tokens`), in any order, next to other columns.
//!
//! Mooncake rounds times to 3 s, so ten requests share one. Replayed as they are, they would be bursts that never happened.
//! [`Requests::spread`] therefore draws times within the slot that they share.

use std::time::Duration;

use parm_random::Random;

use super::Tokens;
use crate::Error;

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// Seconds since the first request.
    pub seconds: f64,
    /// Its size.
    pub tokens: Tokens,
}

impl Timed {
    /// The time since the first request; the longest possible one if it is longer.
    pub fn at(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::MAX)
    }
}

/// The requests of a trace, in the order of their times.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests(Vec<Timed>);

/// Names of the columns, without regard to case.
const TIMES: [&str; 2] = ["timestamp", "timestamp_ms"];
const PROMPTS: [&str; 2] = ["contexttokens", "input_tokens"];
const OUTPUTS: [&str; 2] = ["generatedtokens", "output_tokens"];

/// Most tokens of a prompt or of an answer.
const MOST_TOKENS: u32 = 10_000_000;

/// Times are rounded if at most this share of them is distinct.
const DISTINCT: f64 = 0.5;

impl Requests {
    /// Reads at most this many requests of a CSV file. Empty lines and lines that begin with `#` are skipped.
    pub fn parse(text: &str, most: usize) -> Result<Self, Error> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let (_, header) = lines.next().ok_or(Error::EmptyTrace)?;
        let columns = Columns::of(header)?;
        let mut requests: Vec<Timed> = Vec::new();
        let mut start = None;
        for (line, row) in lines.take(most) {
            let bad = || Error::BadRequest { line, text: row.chars().take(80).collect() };
            let (stamp, tokens) = columns.read(row).ok_or_else(bad)?;
            let seconds = stamp.since(*start.get_or_insert(stamp));
            if requests.last().is_some_and(|last| seconds < last.seconds) {
                return Err(bad());
            }
            requests.push(Timed { seconds, tokens });
        }
        if requests.is_empty() { Err(Error::EmptyTrace) } else { Ok(Self(requests)) }
    }

    /// Spreads rounded times evenly at random over the slot that they stand for; other traces stay as they are. The same
    /// seed gives the same times.
    pub fn spread(mut self, seed: u64) -> Self {
        let mut starts: Vec<f64> = self.0.iter().map(|request| request.seconds).collect();
        starts.dedup();
        if starts.len() < 2 || starts.len() as f64 > DISTINCT * self.0.len() as f64 {
            return self;
        }
        let mut slots: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let middle = slots.len() / 2;
        let usual = *slots.select_nth_unstable_by(middle, f64::total_cmp).1;
        let mut draw = Random::of(seed, [SPREAD]);
        let mut at = 0;
        for (number, start) in starts.iter().enumerate() {
            // A pause is not a longer slot.
            let slot = starts.get(number + 1).map_or(usual, |next| usual.min(next - start));
            let end = at + self.0[at..].iter().take_while(|request| request.seconds == *start).count();
            let mut times: Vec<f64> = (at..end).map(|_| start + slot * draw.unit()).collect();
            times.sort_by(f64::total_cmp);
            self.0[at..end].iter_mut().zip(times).for_each(|(request, time)| request.seconds = time);
            at = end;
        }
        self
    }

    /// Replays the trace this many times as fast.
    pub fn faster(mut self, speed: f64) -> Result<Self, Error> {
        if !(1e-6..=1e6).contains(&speed) {
            return Err(Error::BadSpeed { speed });
        }
        self.0.iter_mut().for_each(|request| request.seconds /= speed);
        Ok(self)
    }

    /// The requests.
    pub fn all(&self) -> &[Timed] {
        &self.0
    }

    /// The time of the last request.
    pub fn length(&self) -> Duration {
        self.0.last().map_or(Duration::ZERO, Timed::at)
    }
}

/// A time in two parts, so that differences are exact: seconds of our era leave a number too few digits for microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stamp {
    seconds: f64,
    fraction: f64,
}

impl Stamp {
    fn since(self, earlier: Self) -> f64 {
        (self.seconds - earlier.seconds) + (self.fraction - earlier.fraction)
    }
}

/// The places of the columns.
struct Columns {
    time: usize,
    milliseconds: bool,
    prompt: usize,
    output: usize,
}

impl Columns {
    fn of(header: &str) -> Result<Self, Error> {
        let names: Vec<String> = header.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
        let find = |known: [&str; 2]| names.iter().position(|name| known.contains(&name.as_str()));
        let (Some(time), Some(prompt), Some(output)) = (find(TIMES), find(PROMPTS), find(OUTPUTS)) else {
            return Err(Error::BadColumns { text: header.chars().take(80).collect() });
        };
        Ok(Self { time, milliseconds: names[time] == TIMES[1], prompt, output })
    }

    fn read(&self, row: &str) -> Option<(Stamp, Tokens)> {
        let fields: Vec<&str> = row.split(',').map(str::trim).collect();
        let tokens = |at: usize| fields.get(at)?.parse::<u32>().ok().filter(|count| *count <= MOST_TOKENS);
        let time = *fields.get(self.time)?;
        let stamp = match time.parse::<f64>() {
            Ok(number) => {
                Stamp { seconds: if self.milliseconds { number / 1e3 } else { number }, fraction: 0.0 }
            }
            Err(_) if self.milliseconds => return None,
            Err(_) => date(time)?,
        };
        let tokens = Tokens { prompt: tokens(self.prompt)?, output: tokens(self.output)? };
        stamp.seconds.is_finite().then_some((stamp, tokens))
    }
}

/// Seconds of `2023-11-16 18:15:46.6805900` since some day; a `T` may stand between day and time, and a `Z` at the end.
fn date(text: &str) -> Option<Stamp> {
    let (day, time) = text.trim_end_matches('Z').split_once([' ', 'T'])?;
    let part = |text: &str| text.parse::<u32>().ok();
    let [year, month, day] = *day.splitn(3, '-').map(part).collect::<Option<Vec<u32>>>()? else {
        return None;
    };
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = *clock.splitn(3, ':').map(part).collect::<Option<Vec<u32>>>()? else {
        return None;
    };
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit()) && fraction.len() <= 9;
    let possible = (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !digits || !possible || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let of_day = f64::from(hour * 3600 + minute * 60 + second);
    let seconds = f64::from(days(year, month, day)) * 86_400.0 + of_day;
    Some(Stamp { seconds, fraction: format!("0.{fraction}").parse().ok()? })
}

/// Days of the Gregorian calendar since an arbitrary day.
fn days(year: u32, month: u32, day: u32) -> u32 {
    // Years begin in March, so that the leap day is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day
}

const SPREAD: u64 = 0x59EA;

#[cfg(test)]
mod tests {
    use super::*;

    const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
                         2023-11-16 23:59:59.5805900,374,44\n2023-11-17 00:00:01.3305900,396,109\n";

    fn read(text: &str) -> Vec<(f64, u32, u32)> {
        let requests = Requests::parse(text, 100).unwrap();
        let row = |Timed { seconds, tokens }: &Timed| (*seconds, tokens.prompt, tokens.output);
        requests.all().iter().map(row).collect()
    }

    #[test]
    fn both_headers_are_read_in_any_order_of_columns() {
        assert_eq!(read(AZURE), [(0.0, 374, 44), (1.75, 396, 109)], "a day ends in between");
        let mooncake = "# a note\ntimestamp_ms,input_tokens,output_tokens\n3000,6758,500\n6000,7322,490\n";
        assert_eq!(read(mooncake), [(0.0, 6758, 500), (3.0, 7322, 490)]);
        let other = "output_tokens, id, TIMESTAMP, input_tokens\r\n7,a,2.5,3\r\n\r\n8,b,4,2";
        assert_eq!(read(other), [(0.0, 3, 7), (1.5, 2, 8)], "numbers are seconds");
        assert_eq!(Requests::parse(AZURE, 1).unwrap().all().len(), 1);
    }

    #[test]
    fn leap_days_count() {
        let gap = |from: &str, to: &str| {
            date(&format!("{to} 0:0:0")).unwrap().since(date(&format!("{from} 0:0:0")).unwrap())
        };
        assert_eq!(gap("2024-02-28", "2024-03-01"), 2.0 * 86_400.0);
        assert_eq!(gap("2023-02-28", "2023-03-01"), 86_400.0);
        assert_eq!(gap("2023-12-31", "2024-01-01"), 86_400.0);
        assert_eq!(date("2023-11-16T18:15:46.5Z"), date("2023-11-16 18:15:46.500"));
    }

    #[test]
    fn bad_rows_are_named() {
        let header = "timestamp_ms,input_tokens,output_tokens\n";
        for row in ["5,1", "x,1,1", "5,-1,1", "5,1,1e3", "5,1,99999999", "nan,1,1", "2023-11-16 1:1:1,1,1"] {
            let error = Requests::parse(&format!("{header}4,1,1\n{row}"), 9).unwrap_err();
            assert_eq!(error, Error::BadRequest { line: 3, text: row.into() }, "{row}");
        }
        let earlier = Requests::parse(&format!("{header}4,1,1\n3,1,1"), 9).unwrap_err();
        assert_eq!(earlier, Error::BadRequest { line: 3, text: "3,1,1".into() });
        for row in ["2023-13-01 0:0:0", "2023-1-1", "2023-1-1 24:0:0", "2023-1-1 1:1:1.x", "0-1-1 1:1:1"] {
            assert!(Requests::parse(&format!("TIMESTAMP,input_tokens,output_tokens\n{row},1,1"), 9).is_err());
        }
        assert_eq!(Requests::parse(header, 9), Err(Error::EmptyTrace));
        assert_eq!(Requests::parse("a,b,c\n1,1,1", 9), Err(Error::BadColumns { text: "a,b,c".into() }));
    }

    #[test]
    fn rounded_times_are_spread_over_their_slots() {
        let mut text = String::from("timestamp_ms,input_tokens,output_tokens\n");
        // Slots of 3 s with ten requests each; the last follows a pause.
        for slot in [0, 1, 2, 9] {
            (0..10).for_each(|number| text.push_str(&format!("{},{number},1\n", slot * 3000)));
        }
        let rounded = Requests::parse(&text, 100).unwrap();
        let spread = rounded.clone().spread(7);
        assert_eq!(spread, rounded.clone().spread(7));
        assert_ne!(spread, rounded.clone().spread(8));
        let times: Vec<f64> = spread.all().iter().map(|request| request.seconds).collect();
        assert!(times.is_sorted());
        for (number, slot) in [0.0, 3.0, 6.0, 27.0].into_iter().enumerate() {
            let own = &times[number * 10..][..10];
            assert!(own.iter().all(|time| (slot..slot + 3.0).contains(time)), "{own:?}");
            assert!(own.windows(2).all(|pair| pair[0] < pair[1]));
        }
        let order = |requests: &Requests| requests.all().iter().map(|it| it.tokens).collect::<Vec<_>>();
        assert_eq!(order(&spread), order(&rounded));
        let exact = Requests::parse(AZURE, 9).unwrap();
        assert_eq!(exact.clone().spread(7), exact);
    }

    #[test]
    fn sample_of_azure_is_read() {
        let sample = Requests::parse(include_str!("../../profiles/azure-conversations.csv"), 10_000).unwrap();
        assert_eq!((sample.all().len(), sample.length()), (2000, Duration::from_millis(424_259)));
        assert_eq!(sample.all()[0].tokens, Tokens { prompt: 374, output: 44 });
        assert_eq!(sample.clone().spread(1), sample);
    }

    #[test]
    fn speed_divides_the_times() {
        let fast = Requests::parse(AZURE, 9).unwrap().faster(1.4).unwrap();
        assert_eq!(fast.length(), Duration::from_secs_f64(1.25));
        let slow = "timestamp_ms,input_tokens,output_tokens\n0,1,1\n1e300,1,1\n";
        assert_eq!(Requests::parse(slow, 9).unwrap().length(), Duration::MAX);
        for speed in [0.0, -1.0, f64::NAN, 1e9] {
            assert!(Requests::parse(AZURE, 9).unwrap().faster(speed).is_err());
        }
    }
}

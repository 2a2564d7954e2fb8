//! Recorded arrivals with sizes, from a file: a time in seconds and optionally the size of the query in each line.

use crate::{Error, Fault, Targets};

/// Recorded arrivals.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Recorded {
    /// Seconds since the start, in order.
    pub(crate) seconds: Vec<f64>,
    /// Sizes of the queries over their mean; empty if the file has none.
    pub(crate) sizes: Vec<f64>,
}

impl Recorded {
    /// Reads the text; empty lines and `#` comments are skipped.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut recorded = Self::default();
        let mut sized = None;
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let refused = || Error::BadArrival { line, text: content.to_owned() };
            let words: Vec<&str> =
                content.split([' ', ',', '\t', ';']).filter(|word| !word.is_empty()).collect();
            let number = |word: &str| word.parse::<f64>().ok().filter(|number| number.is_finite());
            let (time, size) = match words[..] {
                [time] => (number(time), None),
                [time, size] => {
                    (number(time), Some(number(size).filter(|size| *size > 0.0).ok_or_else(refused)?))
                }
                _ => return Err(refused()),
            };
            let earliest = recorded.seconds.last().copied().unwrap_or(0.0);
            let time = time.filter(|time| *time >= earliest).ok_or_else(refused)?;
            if *sized.get_or_insert(size.is_some()) != size.is_some() {
                return Err(refused());
            }
            recorded.seconds.push(time);
            recorded.sizes.extend(size);
        }
        let mean = recorded.sizes.iter().sum::<f64>() / recorded.sizes.len().max(1) as f64;
        recorded.sizes.iter_mut().for_each(|size| *size /= mean);
        match (recorded.seconds.first(), recorded.seconds.last()) {
            (Some(first), Some(last)) if first < last => Ok(recorded),
            (Some(at), _) => Err(Error::OneTime { at: *at }),
            (None, _) => Err(Error::EmptyTrace),
        }
    }

    /// Returns the sizes as run times that are proportional to them.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let factors = self.sizes.clone();
        let sizes = Fault::Sizes { factors, file: None, on: Targets::Each };
        if self.sizes.is_empty() { Vec::new() } else { vec![sizes] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_read_with_sizes_over_their_mean() {
        let recorded = Recorded::parse("# s tokens\n0 300\n\n0.5,100\n2 200 # late\n").unwrap();
        assert_eq!(recorded.seconds, [0.0, 0.5, 2.0]);
        assert_eq!(recorded.sizes, [1.5, 0.5, 1.0]);
        assert_eq!(Recorded::parse("1\n2\n").unwrap().faults(), []);
    }

    #[test]
    fn bad_arrival_is_named() {
        for (text, line, content) in [
            ("1\n0.5", 2, "0.5"),
            ("1 5\n2", 2, "2"),
            ("1\n2 3", 2, "2 3"),
            ("1 0", 1, "1 0"),
            ("1 2 3", 1, "1 2 3"),
        ] {
            let error = Error::BadArrival { line, text: content.into() };
            assert_eq!(Recorded::parse(text), Err(error), "{text:?}");
        }
        assert_eq!(Recorded::parse("#\n"), Err(Error::EmptyTrace));
        assert_eq!(Recorded::parse("3\n3\n"), Err(Error::OneTime { at: 3.0 }), "its rate is infinite");
        assert_eq!(Recorded::parse("3\n"), Err(Error::OneTime { at: 3.0 }));
    }
}

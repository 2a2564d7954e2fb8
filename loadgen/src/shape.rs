//! The shape of arrivals as a user writes it: `poisson`, `bursts:200ms/800ms` or `trace:FILE`, for example.
//!
//! The mean rate is separate from the shape, so that runs of different shapes can offer the same load.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use parm_workload::Pattern;
use parm_workload::arrivals::Arrivals;
use parm_workload::chat::Requests;

use crate::Error;

/// The shape of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A pattern, which can have any rate.
    Pattern(Pattern),
    /// Recorded in a file.
    Trace(PathBuf),
}

/// Most bytes of a trace.
const LARGEST_TRACE: u64 = 128 << 20;

impl Shape {
    /// Returns arrivals of this shape at `rate` requests per second, pauses included; a trace has its own rate.
    pub fn at(&self, rate: f64) -> Result<Arrivals, Error> {
        match self {
            Shape::Pattern(pattern) => Ok(pattern.at(rate)),
            Shape::Trace(path) => Ok(Arrivals::trace(&read(path)?)?),
        }
    }

    /// Reads a trace of requests with their tokens, at most this many; `None` for a pattern.
    pub fn requests(&self, most: usize) -> Result<Option<Requests>, Error> {
        match self {
            Shape::Pattern(_) => Ok(None),
            Shape::Trace(path) => Ok(Some(Requests::parse(&read(path)?, most)?)),
        }
    }
}

fn read(path: &Path) -> Result<String, Error> {
    let bad = |detail: String| Error::BadArray { path: path.display().to_string(), detail };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| bad(error.to_string()))?;
    file.take(LARGEST_TRACE + 1).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    if text.len() as u64 > LARGEST_TRACE {
        return Err(bad(format!("it has more than {LARGEST_TRACE} bytes: replay only a part")));
    }
    Ok(text)
}

impl FromStr for Shape {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(path) = text.strip_prefix("trace:").filter(|path| !path.is_empty()) {
            return Ok(Shape::Trace(path.into()));
        }
        match text.parse() {
            Ok(pattern) => Ok(Shape::Pattern(pattern)),
            // This type has one form more than patterns have.
            Err(parm_workload::Error::BadPattern { text }) => Err(Error::BadShape { text }),
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Pattern(pattern) => pattern.fmt(f),
            Shape::Trace(path) => write!(f, "trace:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_parses_and_prints_the_same() {
        for text in ["constant", "bursts:200ms/800ms", "trace:a/b.txt"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        for bad in ["", "poisson:3", "trace:", "weibull"] {
            assert_eq!(bad.parse::<Shape>(), Err(Error::BadShape { text: bad.into() }));
        }
        assert_eq!("gamma:-1".parse::<Shape>(), Err(parm_workload::Error::BadVariation { cv: -1.0 }.into()));
    }

    #[test]
    fn trace_file_is_read_and_a_missing_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.txt");
        std::fs::write(&path, "0.5\n1.0\n").unwrap();
        assert_eq!(Shape::Trace(path).at(0.0), Ok(Arrivals::Trace { seconds: vec![0.5, 1.0] }));
        let error = Shape::Trace("no/such.txt".into()).at(1.0).unwrap_err();
        assert!(error.to_string().starts_with("no/such.txt: "), "{error}");
    }
}

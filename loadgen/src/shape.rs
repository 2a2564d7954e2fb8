//! How arrivals are spread, as a user writes it: `poisson`, `gamma:2.5`, `bursts:200ms/800ms`, `trace:FILE`.
//!
//! The mean rate is told apart from the shape, so that runs of different shapes can offer the same load.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use parm_workload::arrivals::Arrivals;

use crate::Error;

/// How arrivals are spread.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Evenly.
    Constant,
    /// Independently of each other.
    Poisson,
    /// With gaps of this coefficient of variation.
    Gamma(f64),
    /// In bursts of so many milliseconds, with pauses of so many between them.
    Bursts(u64, u64),
    /// As recorded in a file.
    Trace(PathBuf),
}

/// Most bytes of a trace.
const LARGEST_TRACE: u64 = 128 << 20;

impl Shape {
    /// Arrivals of this shape at `rate` requests per second, pauses included; a trace has its own.
    pub fn at(&self, rate: f64) -> Result<Arrivals, Error> {
        Ok(match self {
            Shape::Constant => Arrivals::Constant { rate },
            Shape::Poisson => Arrivals::Poisson { rate },
            Shape::Gamma(cv) => Arrivals::Gamma { rate, cv: *cv },
            Shape::Bursts(on_ms, off_ms) => {
                let within = rate * (on_ms + off_ms) as f64 / *on_ms as f64;
                Arrivals::Bursts { rate: within, on_ms: *on_ms, off_ms: *off_ms }
            }
            Shape::Trace(path) => Arrivals::trace(&read(path)?)?,
        })
    }
}

fn read(path: &Path) -> Result<String, Error> {
    let bad = |detail: String| Error::BadArray { path: path.display().to_string(), detail };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| bad(error.to_string()))?;
    file.take(LARGEST_TRACE + 1).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    if text.len() as u64 > LARGEST_TRACE {
        return Err(bad(format!("it has more than {LARGEST_TRACE} bytes: replay a part of it")));
    }
    Ok(text)
}

impl FromStr for Shape {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = || Error::BadShape { text: text.to_owned() };
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match (name, rest) {
            ("constant", "") => Ok(Shape::Constant),
            ("poisson", "") => Ok(Shape::Poisson),
            ("gamma", cv) => {
                let cv: f64 = cv.parse().map_err(|_| refused())?;
                let good = cv > 0.0 && cv.is_finite();
                if good {
                    Ok(Shape::Gamma(cv))
                } else {
                    Err(parm_workload::Error::BadVariation { cv }.into())
                }
            }
            ("bursts", lengths) => {
                let (on, off) = lengths.split_once('/').ok_or_else(refused)?;
                let ms = |text: &str| text.strip_suffix("ms")?.parse::<u64>().ok().filter(|ms| *ms < 1 << 32);
                let (on_ms, off_ms) = ms(on).zip(ms(off)).ok_or_else(refused)?;
                if on_ms == 0 {
                    Err(parm_workload::Error::BadBurst { on_ms, off_ms }.into())
                } else {
                    Ok(Shape::Bursts(on_ms, off_ms))
                }
            }
            ("trace", path) if !path.is_empty() => Ok(Shape::Trace(path.into())),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Constant => f.write_str("constant"),
            Shape::Poisson => f.write_str("poisson"),
            Shape::Gamma(cv) => write!(f, "gamma:{cv}"),
            Shape::Bursts(on, off) => write!(f, "bursts:{on}ms/{off}ms"),
            Shape::Trace(path) => write!(f, "trace:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_read_and_shown_again() {
        for text in ["constant", "poisson", "gamma:2.5", "bursts:200ms/800ms", "trace:a/b.txt"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        for bad in ["", "poisson:3", "gamma", "gamma:x", "bursts:200/800", "bursts:5ms", "trace:", "weibull"]
        {
            assert_eq!(bad.parse::<Shape>(), Err(Error::BadShape { text: bad.into() }));
        }
        assert_eq!("gamma:-1".parse::<Shape>(), Err(parm_workload::Error::BadVariation { cv: -1.0 }.into()));
        assert_eq!(
            "bursts:0ms/5ms".parse::<Shape>(),
            Err(parm_workload::Error::BadBurst { on_ms: 0, off_ms: 5 }.into())
        );
    }

    #[test]
    fn the_rate_is_the_mean_whatever_the_shape() {
        for shape in [Shape::Constant, Shape::Poisson, Shape::Gamma(3.0), Shape::Bursts(200, 800)] {
            let arrivals = shape.at(50.0).unwrap();
            assert!((arrivals.rate() - 50.0).abs() < 1e-9, "{shape}");
        }
    }

    #[test]
    fn a_trace_is_read_from_its_file_and_a_missing_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.txt");
        std::fs::write(&path, "0.5\n1.0\n").unwrap();
        assert_eq!(Shape::Trace(path).at(0.0), Ok(Arrivals::Trace { seconds: vec![0.5, 1.0] }));
        let error = Shape::Trace("no/such.txt".into()).at(1.0).unwrap_err();
        assert!(error.to_string().starts_with("no/such.txt: "), "{error}");
    }
}

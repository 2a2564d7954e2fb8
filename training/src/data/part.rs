//! Selects some of a source's rows, by the settings of every kind of source.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::str::FromStr;

use super::{Samples, Unusable};

/// Selects rows by settings from rows in order of time: with `hold` and no seed, the newest are the test rows.
pub fn part_in_time(samples: Samples, settings: &str) -> Result<Samples, Unusable> {
    let options = Options::parse(settings)?;
    let part = Part::read(&options)?;
    options.finish()?;
    part.of_ordered(samples)
}

/// The selected rows.
pub(super) struct Part {
    rows: Option<(usize, usize)>,
    sample: Option<NonZeroUsize>,
    half: Option<Half>,
    seed: Option<u64>,
}

struct Half {
    test: bool,
    share: f64,
}

impl Part {
    pub(super) fn read(options: &Options) -> Result<Self, Unusable> {
        let rows = options.pair("rows", "..")?;
        let sample = options.get("sample", "a whole number above 0")?;
        let share: Option<f64> = options.get("hold", "a number between 0 and 1")?;
        let seed = options.get("seed", "a whole number")?;
        let half = match options.text("part").as_deref() {
            Some("train") => Some(false),
            Some("test") => Some(true),
            Some(other) => {
                let message = format!("'{other}' is not train or test");
                return Err(Unusable::Setting { name: "part".into(), message });
            }
            None if share.is_some() || (seed.is_some() && sample.is_none()) => {
                let message = "choose a part: train or test".into();
                return Err(Unusable::Setting { name: "part".into(), message });
            }
            None => None,
        };
        let share = share.unwrap_or(0.2);
        if !(share > 0.0 && share < 1.0) {
            let message = format!("{share} is not a share between 0 and 1");
            return Err(Unusable::Setting { name: "hold".into(), message });
        }
        let half = half.map(|test| Half { test, share });
        Ok(Self { rows, sample, half, seed })
    }

    /// The selected rows; the split is random.
    pub(super) fn of(self, samples: Samples) -> Result<Samples, Unusable> {
        let seed = self.seed.or(Some(1));
        Self { seed, ..self }.of_ordered(samples)
    }

    /// The same for rows in order of time: without a seed, the newest are the test rows.
    fn of_ordered(self, samples: Samples) -> Result<Samples, Unusable> {
        let samples = match self.rows {
            Some((from, to)) => samples.range(from..to)?,
            None => samples,
        };
        let samples = match self.sample.map(NonZeroUsize::get) {
            Some(sample) if sample > samples.len() => {
                return Err(Unusable::Range { from: 0, to: sample, rows: samples.len() });
            }
            Some(sample) if sample < samples.len() => samples.split(sample, self.seed.unwrap_or(1))?.1,
            _ => samples,
        };
        let Some(Half { test, share }) = self.half else { return Ok(samples) };
        let held_out = (share * samples.len() as f64).round() as usize;
        let Some(seed) = self.seed else {
            let rows = samples.len();
            if held_out == 0 || held_out >= rows {
                return Err(Unusable::HeldOut { held_out, rows });
            }
            let older = rows - held_out;
            return samples.range(if test { older..samples.len() } else { 0..older });
        };
        let (train, tested) = samples.split(held_out, seed)?;
        Ok(if test { tested } else { train })
    }
}

/// Settings by name. Reading one removes it; a remaining one is an error, since it may be misspelt.
pub(super) struct Options {
    given: RefCell<BTreeMap<String, String>>,
    known: RefCell<Vec<&'static str>>,
}

impl Options {
    /// Parses `name=value&name=value`.
    pub(super) fn parse(text: &str) -> Result<Self, Unusable> {
        let mut given = BTreeMap::new();
        for setting in text.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, "yes"));
            if given.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(Unusable::Setting {
                    name: name.into(),
                    message: "it is given twice: give it once".into(),
                });
            }
        }
        Ok(Self { given: RefCell::new(given), known: RefCell::default() })
    }

    /// The value of a setting, if it is given.
    pub(super) fn get<T: FromStr>(&self, name: &'static str, wanted: &str) -> Result<Option<T>, Unusable> {
        self.text(name)
            .map(|text| {
                let message = format!("'{text}' is not {wanted}");
                text.parse().map_err(|_| Unusable::Setting { name: name.into(), message })
            })
            .transpose()
    }

    /// The text of a setting, if it is given.
    pub(super) fn text(&self, name: &'static str) -> Option<String> {
        self.known.borrow_mut().push(name);
        self.given.borrow_mut().remove(name)
    }

    /// Two numbers with `between` between them, if given.
    pub(super) fn pair(&self, name: &'static str, between: &str) -> Result<Option<(usize, usize)>, Unusable> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let pair = text.split_once(between).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let message = format!("'{text}' is not of the form 1{between}2");
        pair.map(Some).ok_or(Unusable::Setting { name: name.into(), message })
    }

    /// Rejects settings that were not read.
    pub(super) fn finish(self) -> Result<(), Unusable> {
        match self.given.into_inner().into_keys().next() {
            None => Ok(()),
            Some(name) => {
                let message =
                    format!("unknown for this kind of source: use {}", self.known.into_inner().join(", "));
                Err(Unusable::Setting { name, message })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Array;

    use super::*;

    fn rows(settings: &str) -> Vec<f32> {
        let all = Array::new(vec![10, 1], (0..10).map(|row| row as f32).collect()).unwrap();
        part_in_time(Samples::new(all, None).unwrap(), settings).unwrap().inputs.into_data()
    }

    #[test]
    fn newest_rows_are_the_test_rows_without_a_seed() {
        assert_eq!(rows("part=test&hold=0.2"), [8.0, 9.0]);
        assert_eq!(rows("part=train&hold=0.2"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(rows("rows=2..4"), [2.0, 3.0]);
        let (mut drawn, left) = (rows("part=test&hold=0.2&seed=1"), rows("part=train&hold=0.2&seed=1"));
        assert_ne!(drawn, [8.0, 9.0]);
        drawn.extend(left);
        drawn.sort_by(f32::total_cmp);
        assert_eq!(drawn, rows(""));
    }

    #[test]
    fn share_that_leaves_one_side_empty_is_rejected() {
        for settings in
            ["part=train&hold=1.5", "part=test&hold=1", "part=train&hold=-1", "part=test&hold=0.01"]
        {
            let all = Array::new(vec![10, 1], vec![0.0; 10]).unwrap();
            let error = part_in_time(Samples::new(all, None).unwrap(), settings).unwrap_err();
            assert!(
                matches!(error, Unusable::HeldOut { .. } | Unusable::Setting { .. }),
                "{settings}: {error}"
            );
        }
    }

    #[test]
    fn unknown_setting_is_rejected() {
        let none = Samples::new(Array::new(vec![1, 1], vec![0.0]).unwrap(), None).unwrap();
        assert!(part_in_time(none, "newest=3").is_err());
    }
}

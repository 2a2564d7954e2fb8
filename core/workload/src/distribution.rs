//! Distributions without a unit: factors on service times, or service times in milliseconds.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, numbers};
use parm_random::Random;

/// A distribution of positive numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[serde(expecting = "a table such as { kind = \"constant\", value = 5.0 }")]
pub enum Distribution {
    /// Always the same.
    Constant {
        /// The number.
        value: f64,
    },
    /// Evenly between two bounds.
    Uniform {
        /// The least.
        min: f64,
        /// The greatest.
        max: f64,
    },
    /// A fixed part and a memoryless one.
    Exponential {
        /// Mean of the memoryless part.
        mean: f64,
        /// The fixed part. Default 0.
        #[serde(default)]
        shift: f64,
    },
    /// Lognormal: moderate tails, as service times often have.
    Lognormal {
        /// The median.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Pareto: heavy tails.
    Pareto {
        /// The least.
        min: f64,
        /// Tail exponent; the mean is infinite at 1 and below.
        shape: f64,
    },
    /// Measured numbers, each as likely as the others.
    Sample {
        /// The numbers.
        values: Vec<f64>,
    },
    /// The same, from a file with numbers separated by spaces or commas; `#` begins a comment. Experiment files only.
    File {
        /// The file, relative to the folder of the experiment file.
        path: PathBuf,
    },
}

impl Distribution {
    /// Rejects parameters that do not describe a distribution of positive numbers.
    pub fn check(&self) -> Result<(), Error> {
        if let Distribution::File { path } = self {
            return Err(Error::NotRead { path: path.clone() });
        }
        let ok = |value: f64| value.is_finite() && value >= 0.0;
        let wrong = match self {
            Distribution::Constant { value } => !ok(*value),
            Distribution::Uniform { min, max } => !ok(*min) || !ok(*max) || min > max,
            Distribution::Exponential { mean, shift } => !ok(*mean) || !ok(*shift),
            Distribution::Lognormal { median, sigma } => !ok(*median) || !ok(*sigma),
            Distribution::Pareto { min, shape } => !ok(*min) || !ok(*shape) || *shape == 0.0,
            Distribution::Sample { values } => values.is_empty() || !values.iter().copied().all(ok),
            Distribution::File { .. } => true,
        };
        if wrong { Err(Error::BadDistribution { given: format!("{self:?}") }) } else { Ok(()) }
    }

    /// Replaces a file by the numbers in it.
    pub fn read_file(&mut self, folder: &Path) -> Result<(), Error> {
        if let Distribution::File { path } = self {
            let values = numbers::from_file(folder, path, numbers::numbers)?;
            *self = Distribution::Sample { values };
        }
        Ok(())
    }

    /// The mean; infinite for the heaviest tails.
    pub fn mean(&self) -> f64 {
        match self {
            Distribution::Constant { value } => *value,
            Distribution::Uniform { min, max } => 0.5 * (min + max),
            Distribution::Exponential { mean, shift } => shift + mean,
            Distribution::Lognormal { median, sigma } => median * (0.5 * sigma * sigma).exp(),
            Distribution::Pareto { min, shape } if *shape > 1.0 => min * shape / (shape - 1.0),
            Distribution::Pareto { .. } => f64::INFINITY,
            Distribution::Sample { values } => values.iter().sum::<f64>() / values.len() as f64,
            Distribution::File { .. } => f64::NAN,
        }
    }

    /// The same distribution of numbers that are this many times as large.
    pub fn scaled(&self, by: f64) -> Self {
        match self {
            Distribution::Constant { value } => Distribution::Constant { value: by * value },
            Distribution::Uniform { min, max } => Distribution::Uniform { min: by * min, max: by * max },
            Distribution::Exponential { mean, shift } => {
                Distribution::Exponential { mean: by * mean, shift: by * shift }
            }
            Distribution::Lognormal { median, sigma } => {
                Distribution::Lognormal { median: by * median, sigma: *sigma }
            }
            Distribution::Pareto { min, shape } => Distribution::Pareto { min: by * min, shape: *shape },
            Distribution::Sample { values } => {
                Distribution::Sample { values: values.iter().map(|value| by * value).collect() }
            }
            Distribution::File { path } => Distribution::File { path: path.clone() },
        }
    }

    /// Draws a number.
    pub fn sample(&self, draw: &mut Random) -> f64 {
        match self {
            Distribution::Constant { value } => *value,
            Distribution::Uniform { min, max } => min + (max - min) * draw.uniform(),
            Distribution::Exponential { mean, shift } => shift + mean * draw.exponential(),
            Distribution::Lognormal { median, sigma } => median * (sigma * draw.normal()).exp(),
            Distribution::Pareto { min, shape } => min * draw.uniform().powf(-1.0 / shape),
            Distribution::Sample { values } => values[draw.below(values.len())],
            Distribution::File { .. } => f64::NAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(distribution: Distribution, share: f64, quantile: f64) {
        assert_eq!(distribution.check(), Ok(()));
        let mut draw = Random::of(9, [0]);
        let mut draws: Vec<f64> = (0..200_000).map(|_| distribution.sample(&mut draw)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean / distribution.mean() - 1.0).abs() < 0.02, "{distribution:?}: mean {mean}");
        let (mut draw, mut again) = (Random::of(9, [1]), Random::of(9, [1]));
        let (one, quarter) = (distribution.sample(&mut draw), distribution.scaled(0.25).sample(&mut again));
        assert!((quarter / one - 0.25).abs() < 1e-9, "{distribution:?}: {quarter} is not a quarter of {one}");
        draws.sort_by(f64::total_cmp);
        let seen = draws[(share * draws.len() as f64) as usize];
        assert!((seen / quantile - 1.0).abs() < 0.02, "{distribution:?}: {seen}, expected {quantile}");
    }

    #[test]
    fn draws_have_the_quantiles_of_their_distribution() {
        check(Distribution::Constant { value: 2.0 }, 0.9, 2.0);
        check(Distribution::Uniform { min: 1.0, max: 3.0 }, 0.25, 1.5);
        check(Distribution::Exponential { mean: 2.0, shift: 1.0 }, 0.5, 1.0 + 2.0 * 2f64.ln());
        check(Distribution::Lognormal { median: 3.0, sigma: 0.5 }, 0.8413, 3.0 * 0.5f64.exp());
        check(Distribution::Pareto { min: 1.0, shape: 3.0 }, 0.99, 100f64.powf(1.0 / 3.0));
        check(Distribution::Sample { values: vec![1.0, 2.0, 3.0, 4.0] }, 0.6, 3.0);
    }

    #[test]
    fn impossible_parameters_are_rejected() {
        for wrong in [
            Distribution::Constant { value: -1.0 },
            Distribution::Uniform { min: 2.0, max: 1.0 },
            Distribution::Pareto { min: 1.0, shape: 0.0 },
            Distribution::Sample { values: vec![] },
            Distribution::Lognormal { median: f64::NAN, sigma: 1.0 },
        ] {
            assert_eq!(wrong.check(), Err(Error::BadDistribution { given: format!("{wrong:?}") }));
        }
        assert!(Distribution::Pareto { min: 1.0, shape: 1.0 }.mean().is_infinite());
    }
}

//! Random numbers by name: a draw is a pure function of a seed and what it is for.
//!
//! A generator that is advanced draw by draw gives other numbers as soon as somebody draws once more, so two policies
//! would face different faults. Here the numbers for (seed, fault, instance, moment) are hashed out of these names:
//! whoever asks, in whatever order and how often, is told the same. SplitMix64 is both the hash and the sequence.

/// The random numbers of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    state: u64,
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Draw {
    /// The numbers of this name under this seed.
    pub fn new<const N: usize>(seed: u64, name: [u64; N]) -> Self {
        let state = name.iter().fold(mix(seed ^ STEP), |state, part| mix(state ^ part.wrapping_mul(STEP)));
        Self { state }
    }

    /// Sixty-four random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Between 0 and 1, neither included: its logarithm is always a number.
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// One of `0..count`.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.bits()) * count as u128) >> 64) as usize
    }

    /// Exponential, of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Standard normal.
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

fn mix(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether samples are of a distribution: their greatest distance from it is one that chance makes in 999 of 1000 cases.
    fn is_of(samples: &[f64], cdf: impl Fn(f64) -> f64) -> bool {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len() as f64;
        let distances = sorted.iter().enumerate().map(|(i, x)| (cdf(*x) - (i as f64 + 0.5) / count).abs());
        distances.fold(0.0, f64::max) < 1.95 / count.sqrt()
    }

    #[test]
    fn numbers_of_neighbouring_names_are_independent_and_uniform() {
        // One number per name, names as alike as instances and moments are.
        let first: Vec<f64> =
            (0..20_000).map(|i| Draw::new(1, [0, i / 100, 20_000_000 * (i % 100)]).uniform()).collect();
        assert!(is_of(&first, |x| x) && !is_of(&first, |x| x * x));
        let mean = first.iter().sum::<f64>() / first.len() as f64;
        let neighbours: f64 = first.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        let correlation = 12.0 * neighbours / first.len() as f64;
        assert!(correlation.abs() < 0.03, "{correlation}");
    }

    #[test]
    fn draws_have_their_distributions() {
        let mut draw = Draw::new(3, [4]);
        let exponential: Vec<f64> = (0..10_000).map(|_| draw.exponential()).collect();
        assert!(is_of(&exponential, |x| 1.0 - (-x).exp()));
        let normal: Vec<f64> = (0..40_000).map(|_| draw.normal()).collect();
        let share = |bound: f64| normal.iter().filter(|x| **x < bound).count() as f64 / 40_000.0;
        assert!((share(-1.0) - 0.1587).abs() < 0.01 && (share(1.96) - 0.975).abs() < 0.005);
        assert!((0..1000).all(|_| draw.below(7) < 7));
    }

    #[test]
    fn a_name_means_the_same_whoever_asks() {
        assert_eq!(Draw::new(5, [1, 2]).bits(), Draw::new(5, [1, 2]).bits());
        assert_ne!(Draw::new(5, [1, 2]).bits(), Draw::new(5, [2, 1]).bits());
        assert_ne!(Draw::new(5, [1, 2]).bits(), Draw::new(6, [1, 2]).bits());
    }
}

//! Random numbers by name: a draw is a pure function of a seed and a name.
//!
//! [`Random::of`] and [`Random::named`] hash the seed and the name, for example (seed, fault, instance, moment) or
//! (seed, weight), into the state of a generator. The order and the number of other draws do not change a result, and
//! neither does the machine or the version. With one shared generator, an extra draw would change all later numbers:
//! two policies would face different faults, and a weight would depend on the number of layers before it. SplitMix64
//! is both the hash and the sequence. It is good enough for faults, resampling and weights, but not for secrets.

/// The random numbers of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    /// Starts the SplitMix64 sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Starts the numbers of a name that consists of integers.
    pub fn of<const N: usize>(seed: u64, name: [u64; N]) -> Self {
        let state = name.iter().fold(mix(seed ^ STEP), |state, part| mix(state ^ part.wrapping_mul(STEP)));
        Self { state }
    }

    /// Starts the numbers of a name that is a text.
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a hash.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self::new(Self::new(seed ^ hash).bits())
    }

    /// Draws 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Draws from `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws from `(0, 1)`: the logarithm of the result is always finite.
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// Draws from `0..count`. `count` must not be 0.
    pub fn below(&mut self, count: usize) -> usize {
        // The bias of a product's high half is below 2^-32 for any count that fits into memory.
        ((u128::from(self.bits()) * count as u128) >> 64) as usize
    }

    /// Draws from the exponential distribution with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Draws from the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Draws `count` numbers uniformly from `-bound..bound`, as initial weights.
    pub fn uniforms(&mut self, bound: f32, count: usize) -> Vec<f32> {
        (0..count).map(|_| (2.0 * self.unit() - 1.0) as f32 * bound).collect()
    }

    /// Draws `count` numbers from the standard normal distribution, as initial weights.
    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        let mut draw = || {
            let (radius, angle) = (1.0 - self.unit(), self.unit());
            ((-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()) as f32
        };
        (0..count).map(|_| draw()).collect()
    }

    /// Shuffles `items`; every order is equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
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

    /// Whether samples follow a distribution, by the Kolmogorov-Smirnov test at a significance of 0.001.
    fn is_of(samples: &[f64], cdf: impl Fn(f64) -> f64) -> bool {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len() as f64;
        let distances = sorted.iter().enumerate().map(|(i, x)| (cdf(*x) - (i as f64 + 0.5) / count).abs());
        distances.fold(0.0, f64::max) < 1.95 / count.sqrt()
    }

    #[test]
    fn numbers_of_neighbouring_names_are_independent_and_uniform() {
        // One number per name; the names differ as little as those of instances and moments.
        let first: Vec<f64> =
            (0..20_000).map(|i| Random::of(1, [0, i / 100, 20_000_000 * (i % 100)]).uniform()).collect();
        assert!(is_of(&first, |x| x) && !is_of(&first, |x| x * x));
        let mean = first.iter().sum::<f64>() / first.len() as f64;
        let neighbours: f64 = first.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        let correlation = 12.0 * neighbours / first.len() as f64;
        assert!(correlation.abs() < 0.03, "{correlation}");
    }

    #[test]
    fn draws_have_their_distributions() {
        let mut random = Random::of(3, [4]);
        let exponential: Vec<f64> = (0..10_000).map(|_| random.exponential()).collect();
        assert!(is_of(&exponential, |x| 1.0 - (-x).exp()));
        let normal: Vec<f64> = (0..40_000).map(|_| random.normal()).collect();
        let share = |bound: f64| normal.iter().filter(|x| **x < bound).count() as f64 / 40_000.0;
        assert!((share(-1.0) - 0.1587).abs() < 0.01 && (share(1.96) - 0.975).abs() < 0.005);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }

    fn moments(values: &[f32]) -> (f32, f32) {
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / values.len() as f32;
        (mean, variance)
    }

    #[test]
    fn moments_match_those_of_the_distributions() {
        let uniform = Random::new(1).uniforms(3.0, 100_000);
        assert!(uniform.iter().all(|value| value.abs() <= 3.0));
        let (mean, variance) = moments(&uniform);
        assert!(mean.abs() < 0.03 && (variance - 3.0).abs() < 0.05, "{mean} {variance}");
        let (mean, variance) = moments(&Random::new(1).normals(100_000));
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn same_name_gives_the_same_numbers() {
        assert_eq!(Random::of(5, [1, 2]).bits(), Random::of(5, [1, 2]).bits());
        assert_ne!(Random::of(5, [1, 2]).bits(), Random::of(5, [2, 1]).bits());
        assert_ne!(Random::of(5, [1, 2]).bits(), Random::of(6, [1, 2]).bits());
        let named = |seed, name| Random::named(seed, name).uniforms(1.0, 4);
        assert_eq!(named(7, "fc1.weight"), named(7, "fc1.weight"));
        assert_ne!(named(7, "fc1.weight"), named(7, "fc2.weight"));
        assert_ne!(named(7, "fc1.weight"), named(8, "fc1.weight"));
    }

    #[test]
    fn numbers_match_the_reference_of_splitmix64() {
        // Reference output of SplitMix64's authors for seed 1234567.
        let mut random = Random::new(1_234_567);
        let first = [(); 3].map(|()| random.bits());
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}

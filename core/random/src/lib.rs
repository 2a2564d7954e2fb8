//! Random numbers by name: a draw is a pure function of a seed and what it is for.
//!
//! A generator that is advanced draw by draw gives other numbers as soon as somebody draws once more, so two policies
//! would face different faults, and a weight would depend on how many layers stand before it. Here the numbers for (seed,
//! fault, instance, moment) or (seed, weight) are hashed out of these names: whoever asks, in whatever order and how often,
//! is told the same, on every machine and in every version. SplitMix64 is both the hash and the sequence: small, and good
//! enough for faults, resampling and weights; not for secrets.

/// The random numbers of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    /// The sequence of SplitMix64 that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The numbers of this name under this seed, where the name is one of numbers.
    pub fn of<const N: usize>(seed: u64, name: [u64; N]) -> Self {
        let state = name.iter().fold(mix(seed ^ STEP), |state, part| mix(state ^ part.wrapping_mul(STEP)));
        Self { state }
    }

    /// The numbers of this name under this seed, where the name is a text.
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self::new(Self::new(seed ^ hash).bits())
    }

    /// Sixty-four random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Between 0 and 1; 0 is possible, 1 is not.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between 0 and 1, neither included: its logarithm is always a number.
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// One of `0..count`, which must not be empty.
    pub fn below(&mut self, count: usize) -> usize {
        // The bias of a product's high half is below 2^-32 for any count that memory can hold.
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

    /// `count` numbers evenly spread over `-bound..bound`, as weights begin.
    pub fn uniforms(&mut self, bound: f32, count: usize) -> Vec<f32> {
        (0..count).map(|_| (2.0 * self.unit() - 1.0) as f32 * bound).collect()
    }

    /// `count` numbers of the normal distribution with mean 0 and deviation 1, as weights begin.
    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        let mut draw = || {
            let (radius, angle) = (1.0 - self.unit(), self.unit());
            ((-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()) as f32
        };
        (0..count).map(|_| draw()).collect()
    }

    /// Brings `items` into an order in which any is as likely as any other.
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
    fn moments_of_many_are_those_of_the_distributions() {
        let uniform = Random::new(1).uniforms(3.0, 100_000);
        assert!(uniform.iter().all(|value| value.abs() <= 3.0));
        let (mean, variance) = moments(&uniform);
        assert!(mean.abs() < 0.03 && (variance - 3.0).abs() < 0.05, "{mean} {variance}");
        let (mean, variance) = moments(&Random::new(1).normals(100_000));
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn a_name_means_the_same_whoever_asks() {
        assert_eq!(Random::of(5, [1, 2]).bits(), Random::of(5, [1, 2]).bits());
        assert_ne!(Random::of(5, [1, 2]).bits(), Random::of(5, [2, 1]).bits());
        assert_ne!(Random::of(5, [1, 2]).bits(), Random::of(6, [1, 2]).bits());
        let named = |seed, name| Random::named(seed, name).uniforms(1.0, 4);
        assert_eq!(named(7, "fc1.weight"), named(7, "fc1.weight"));
        assert_ne!(named(7, "fc1.weight"), named(7, "fc2.weight"));
        assert_ne!(named(7, "fc1.weight"), named(8, "fc1.weight"));
    }

    #[test]
    fn the_numbers_are_the_same_in_every_version() {
        // What SplitMix64's authors give for seed 1234567.
        let mut random = Random::new(1_234_567);
        let first = [(); 3].map(|()| random.bits());
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}

//! Random numbers for initial weights: the same for a seed on every machine and in every version.

/// SplitMix64: small, and good enough that weights drawn from it train like any others.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that draws the same numbers whenever it starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator of its own for what is called `name`, so that a weight does not depend on the order of drawing.
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self::new(Self::new(seed ^ hash).bits())
    }

    /// `count` numbers evenly spread over `-bound..bound`.
    pub fn uniform(&mut self, bound: f32, count: usize) -> Vec<f32> {
        (0..count).map(|_| (2.0 * self.unit() - 1.0) as f32 * bound).collect()
    }

    /// `count` numbers of the normal distribution with mean 0 and deviation 1.
    pub fn normal(&mut self, count: usize) -> Vec<f32> {
        let mut draw = || {
            let (radius, angle) = (1.0 - self.unit(), self.unit());
            ((-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()) as f32
        };
        (0..count).map(|_| draw()).collect()
    }

    /// A whole number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        // The bias of a product's high half is below 2^-32 for any bound that memory can hold.
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Brings `items` into an order in which any is as likely as any other.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// A number in `0..1`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: &[f32]) -> (f32, f32) {
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / values.len() as f32;
        (mean, variance)
    }

    #[test]
    fn a_name_and_a_seed_give_the_same_numbers_and_another_name_gives_others() {
        let draw = |seed, name| Random::named(seed, name).uniform(1.0, 4);
        assert_eq!(draw(7, "fc1.weight"), draw(7, "fc1.weight"));
        assert_ne!(draw(7, "fc1.weight"), draw(7, "fc2.weight"));
        assert_ne!(draw(7, "fc1.weight"), draw(8, "fc1.weight"));
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let uniform = Random::new(1).uniform(3.0, 100_000);
        assert!(uniform.iter().all(|value| value.abs() <= 3.0));
        let (mean, variance) = moments(&uniform);
        assert!(mean.abs() < 0.03 && (variance - 3.0).abs() < 0.05, "{mean} {variance}");
        let (mean, variance) = moments(&Random::new(1).normal(100_000));
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}

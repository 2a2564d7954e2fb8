//! Student's t: the uncertainty of the mean of a few runs.
//!
//! For whole degrees of freedom the share of the distribution within ±t is a finite sum (Abramowitz and Stegun 26.7.3 and
//! 26.7.4), so bisection finds the factor without a table.

use std::f64::consts::PI;

/// Larger than every factor in use: one degree of freedom at 99.9 % has 637.
const FARTHEST: f64 = 1e6;

/// Returns how many standard errors on either side of a mean hold the truth with this confidence, after `free + 1` runs.
/// Infinite without a degree of freedom or with a confidence outside 0 to 1.
pub fn factor(confidence: f64, free: usize) -> f64 {
    if free == 0 || !(confidence > 0.0 && confidence < 1.0) {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, FARTHEST);
    // Each step halves the interval: after a hundred it is narrower than a float's precision.
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if within(middle, free) < confidence { low = middle } else { high = middle }
    }
    high
}

/// The share of the distribution that lies within ±t.
fn within(t: f64, free: usize) -> f64 {
    let angle = (t / (free as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    // Terms of the sum: each is the previous one times the squared cosine and a fraction.
    let odd = free % 2 == 1;
    let mut term = if odd { cosine } else { 1.0 };
    let mut sum = if odd && free == 1 { 0.0 } else { term };
    let mut at = if odd { 2.0 } else { 1.0 };
    for _ in 1..(free / 2) {
        term *= cosine * cosine * at / (at + 1.0);
        at += 2.0;
        sum += term;
    }
    if odd { 2.0 / PI * (angle + sine * sum) } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_factors_are_those_of_the_tables() {
        let table = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201];
        for (free, expected) in (1..).zip(table) {
            let factor = factor(0.95, free);
            assert!((factor - expected).abs() < 6e-4, "{free} degrees of freedom: {factor}");
        }
        for (confidence, free, expected) in
            [(0.95, 30, 2.042), (0.95, 120, 1.980), (0.99, 10, 3.169), (0.999, 1, 636.619)]
        {
            assert!((factor(confidence, free) - expected).abs() < 6e-4, "{confidence} {free}");
        }
        assert!((factor(0.95, 100_000) - 1.959_964).abs() < 1e-4, "that of a normal distribution");
        assert_eq!(factor(0.95, 0), f64::INFINITY, "of one run");
    }
}

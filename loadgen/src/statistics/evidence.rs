//! The binomial test behind MLPerf's early stopping: whether there is enough data for a quantile.
//!
//! "p99.9 is at most x" is claimed only if so few samples above x would be unlikely otherwise. With no sample above the
//! bound, p99.9 needs 4,603 samples at 99 % confidence; with ten, about 20,140. With fewer samples the answer is "not
//! enough data". Correlated samples need more: see [`super::bootstrap`].

/// Whether `over` of `count` samples above a bound support, at `confidence`, that the `quantile` is at most the bound.
pub fn supports(count: u64, over: u64, quantile: f64, confidence: f64) -> bool {
    // The bound holds unless P(at most `over` exceed | the exceedance is really 1 - quantile) is small.
    at_most(over, count, 1.0 - quantile) <= 1.0 - confidence
}

/// Returns the fewest samples that can support a quantile if `over` of them exceed the bound.
pub fn needed(over: u64, quantile: f64, confidence: f64) -> u64 {
    let (mut low, mut high) = (over, (over + 1) * 2);
    while !supports(high, over, quantile, confidence) {
        low = high;
        high *= 2;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if supports(middle, over, quantile, confidence) { high = middle } else { low = middle }
    }
    high
}

/// P(X <= k) for X binomial of n trials with probability p, summed in logarithms.
fn at_most(k: u64, n: u64, p: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    // A share below the precision of floats: every sample exceeds.
    if p >= 1.0 {
        return 0.0;
    }
    let odds = (p / (1.0 - p)).ln();
    let mut term = n as f64 * (1.0 - p).ln();
    let mut sum = term.exp();
    for i in 0..k {
        term += ((n - i) as f64 / (i + 1) as f64).ln() + odds;
        sum += term.exp();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_samples_are_those_of_the_binomial_test() {
        assert_eq!(needed(0, 0.999, 0.99), 4603); // ln 0.01 / ln 0.999
        assert_eq!(needed(0, 0.99, 0.99), 459);
        let ten = needed(10, 0.999, 0.99);
        assert!((20_100..20_200).contains(&ten), "{ten}");
        assert!(!supports(ten - 1, 10, 0.999, 0.99));
    }

    #[test]
    fn tiny_quantile_needs_one_sample_more() {
        assert!(!supports(9, 9, 1e-17, 0.95));
        assert_eq!(needed(9, 1e-17, 0.95), 10);
    }
}

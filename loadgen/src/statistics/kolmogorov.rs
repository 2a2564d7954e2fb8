//! The one-sample Kolmogorov-Smirnov test of whether samples come from a distribution.

/// Returns the probability of a distance at least as large as observed if the samples come from the distribution `cdf`.
pub fn p_value(samples: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let distance = sorted
        .iter()
        .enumerate()
        .map(|(i, &x)| {
            let f = cdf(x);
            (f - i as f64 / n).abs().max(((i + 1) as f64 / n - f).abs())
        })
        .fold(0.0, f64::max);
    tail(distance * (n.sqrt() + 0.12 + 0.11 / n.sqrt()))
}

/// Kolmogorov's limiting distribution, the tail beyond `x`, with Stephens' correction made by the caller.
fn tail(x: f64) -> f64 {
    if x < 0.2 {
        return 1.0; // the series converges slowly there, and the value is 1 to twelve digits
    }
    let series: f64 = (1..=100)
        .map(|k| {
            let k = f64::from(k);
            (if k % 2.0 == 1.0 { 1.0 } else { -1.0 }) * (-2.0 * k * k * x * x).exp()
        })
        .sum();
    (2.0 * series).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use parm_workload::arrivals::Arrivals;

    use super::*;

    #[test]
    fn critical_values_are_the_published_ones() {
        for (x, p) in [(1.2238, 0.10), (1.3581, 0.05), (1.6276, 0.01)] {
            assert!((tail(x) - p).abs() < 2e-4, "tail({x}) = {}", tail(x));
        }
    }

    #[test]
    fn test_accepts_uniform_samples_and_rejects_squeezed_ones() {
        let even: Vec<f64> = (0..500).map(|i| (f64::from(i) + 0.5) / 500.0).collect();
        assert!(p_value(&even, |x| x.clamp(0.0, 1.0)) > 0.99);
        let squeezed: Vec<f64> = even.iter().map(|x| x * 0.8).collect();
        assert!(p_value(&squeezed, |x| x.clamp(0.0, 1.0)) < 1e-6);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let times = Arrivals::Poisson { rate: 40.0 }.schedule(11).unwrap().take(20_000);
        let times: Vec<f64> = times.map(|time| time.as_secs_f64()).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(p_value(&gaps, |x| 1.0 - (-40.0 * x).exp()) > 0.001);
        assert!(p_value(&gaps, |x| 1.0 - (-44.0 * x).exp()) < 0.001, "the test can tell 10 % apart");
    }
}

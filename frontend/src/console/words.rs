//! Numbers for people, with about three digits: more are noise in values that change every second.

use std::time::Duration;

/// A time: `1.2 ms`, `24 ms`, `1.4 s`.
pub(super) fn time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    let (value, unit) = match micros {
        _ if micros < 995.0 => (micros, "µs"),
        _ if micros < 999_500.0 => (micros / 1e3, "ms"),
        _ => (micros / 1e6, "s"),
    };
    format!("{} {unit}", figure(value))
}

/// A fraction of 1 as a percentage: `1.1 %`.
pub(super) fn share(value: f64) -> String {
    let percent = value * 100.0;
    match percent {
        _ if percent == 0.0 => "0 %".to_owned(),
        _ if percent < 0.01 => "< 0.01 %".to_owned(),
        _ if percent < 0.995 => format!("{percent:.2} %"),
        _ if percent < 99.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

fn figure(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_owned(),
        _ if value < 0.995 => format!("{value:.2}"),
        _ if value < 9.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_has_about_three_digits() {
        let micros = [0, 38, 1_234, 24_400, 999_499, 1_400_000, 61_000_000];
        let told: Vec<_> = micros.iter().map(|us| time(Duration::from_micros(*us))).collect();
        assert_eq!(told, ["0 µs", "38 µs", "1.2 ms", "24 ms", "999 ms", "1.4 s", "61 s"]);
        let shares = [0.0, 0.000_01, 0.004_2, 0.93, 1.0].map(share);
        assert_eq!(shares, ["0 %", "< 0.01 %", "0.42 %", "93.0 %", "100 %"]);
    }
}

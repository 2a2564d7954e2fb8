//! Durations in messages for people.

use std::time::Duration;

/// Rounds to three digits.
pub fn rounded(time: Duration) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    let nanos = time.as_nanos();
    let unit = 10u128.pow(nanos.checked_ilog10().unwrap_or(0).saturating_sub(2));
    let nanos = nanos.saturating_add(unit / 2) / unit * unit;
    u64::try_from(nanos / SECOND).map_or(time, |seconds| Duration::new(seconds, (nanos % SECOND) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_to_three_digits() {
        for (nanos, shown) in [
            (0, "0ns"),
            (999, "999ns"),
            (9_661_790, "9.66ms"),
            (104_660_123, "105ms"),
            (999_900_000, "1s"),
            (12_345_678_901, "12.3s"),
        ] {
            assert_eq!(format!("{:?}", rounded(Duration::from_nanos(nanos))), shown);
        }
    }
}

//! The `grpc-timeout` header: at most eight digits and a unit, as specified by gRPC over HTTP/2.

use std::time::Duration;

use http::HeaderMap;

use parm_protocol::Error;

const HEADER: &str = "grpc-timeout";
const MAX_DIGITS: usize = 8;

/// The timeout of the call, if the client sent one.
pub(in crate::server) fn of(headers: &HeaderMap) -> Result<Option<Duration>, Error> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    match value.to_str().ok().and_then(parse) {
        Some(timeout) => Ok(Some(timeout)),
        None => {
            let message = format!("header {HEADER} is {value:?}: send up to 8 digits and one of H M S m u n");
            Err(Error::Malformed { message })
        }
    }
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        let cases = [
            ("3H", Some(Duration::from_secs(3 * 3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("42S", Some(Duration::from_secs(42))),
            ("250m", Some(Duration::from_millis(250))),
            ("10u", Some(Duration::from_micros(10))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("0m", Some(Duration::ZERO)),
            ("", None),
            ("m", None),
            ("10", None),
            ("10x", None),
            ("-1m", None),
            ("+1m", None),
            ("1.5S", None),
            ("100000000m", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}

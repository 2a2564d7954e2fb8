//! Until when a certificate is valid. Only that is read, of certificates of our own: others are judged by rustls.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The end of a certificate's validity; nothing where it is no certificate.
pub(super) fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut fields, _) = element(certificate)? else { return None };
    if let (VERSION, _, rest) = element(fields)? {
        fields = rest;
    }
    // Number, algorithm and issuer come before it.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (SEQUENCE, validity, _) = element(fields)? else { return None };
    let (_, _, after) = element(validity)?;
    let (kind, text, _) = element(after)?;
    moment(kind, text)
}

/// The first element's tag and contents, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, length, rest @ ..] = der else { return None };
    let (length, rest) = match length {
        short @ 0..=0x7f => (usize::from(*short), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((*tag, contents, rest))
}

/// `YYMMDDHHMMSSZ`, or with all digits of the year.
fn moment(kind: u8, text: &[u8]) -> Option<SystemTime> {
    let digits = text.strip_suffix(b"Z")?;
    let pair = |at: usize| -> Option<u64> {
        let digit =
            |at: usize| digits.get(at).filter(|digit| digit.is_ascii_digit()).map(|digit| digit - b'0');
        Some(u64::from(digit(at)?) * 10 + u64::from(digit(at + 1)?))
    };
    let (year, at) = match kind {
        UTC_TIME => (pair(0)? + if pair(0)? < 50 { 2000 } else { 1900 }, 2),
        GENERALIZED_TIME => (pair(0)? * 100 + pair(2)?, 4),
        _ => return None,
    };
    let days = days(year, pair(at)?, pair(at + 2)?)?;
    let seconds = (pair(at + 4)? * 60 + pair(at + 6)?) * 60 + pair(at + 8)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(days * 86_400 + seconds))
}

/// Days from the beginning of 1970 to a day of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // Years that begin in March end with the day that is there only at times.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month.checked_add(9)?) };
    let before = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    (before + day).checked_sub(719_469)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_counted_from_1970() {
        let seconds = |kind, text: &str| {
            moment(kind, text.as_bytes()).map(|moment| moment.duration_since(UNIX_EPOCH).unwrap().as_secs())
        };
        assert_eq!(seconds(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(seconds(UTC_TIME, "240229123456Z"), Some(1_709_210_096));
        assert_eq!(seconds(GENERALIZED_TIME, "20000101000000Z"), Some(946_684_800));
        assert_eq!(seconds(GENERALIZED_TIME, "99991231235959Z"), Some(253_402_300_799));
        for bad in ["", "Z", "7001010000Z", "240229123456", "2402291234xxZ"] {
            assert_eq!(seconds(UTC_TIME, bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for der in
            [&[][..], &[0x30], &[0x30, 0x80], &[0x30, 0x02, 0x30, 0x00], &[0x30, 0x84, 255, 255, 255, 255]]
        {
            assert_eq!(not_after(der), None);
        }
    }
}

//! Names in certificates, and patterns of them.
//!
//! One star matches within a part of a name: `spiffe://prod/*/frontend` does not match `spiffe://prod/a/b/frontend`,
//! nor does `*.workers.example` match `a.b.workers.example`. Two stars match across parts.

use rustls::pki_types::CertificateDer;

/// Any certificate that the authority signed.
const EVERYONE: &str = "*";

/// The longest pattern, in bytes, and the number of patterns: each is tried on every name of a certificate.
const LONGEST: usize = 512;
const MOST: usize = 256;

/// Most names of a certificate; further ones are ignored.
const NAMES: usize = 128;

pub(super) fn check(field: &str, patterns: &[String]) -> Result<(), String> {
    if patterns.len() > MOST {
        return Err(format!("{field} has {} names, more than {MOST}: use stars", patterns.len()));
    }
    for pattern in patterns {
        if pattern.is_empty() {
            return Err(format!("{field} has an empty name: remove it"));
        }
        if pattern.len() > LONGEST || !pattern.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "{field}: '{pattern}' is not a name: use up to {LONGEST} printable ASCII characters without spaces"
            ));
        }
    }
    Ok(())
}

pub(super) fn of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let uris = certificate.valid_uri_names();
    uris.chain(certificate.valid_dns_names()).take(NAMES).map(str::to_owned).collect()
}

/// Whether one of the names matches one of the patterns.
pub(super) fn admit(patterns: &[String], names: &[String]) -> bool {
    patterns.iter().any(|pattern| pattern == EVERYONE || names.iter().any(|name| fits(pattern, name)))
}

/// Whether a pattern matches a name. Case matters in URIs only.
fn fits(pattern: &str, name: &str) -> bool {
    let uri = name.contains("://");
    let separator = if uri { b'/' } else { b'.' };
    let same = |a: u8, b: u8| if uri { a == b } else { a.eq_ignore_ascii_case(&b) };
    let (mut pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // Prefix lengths of the name that the read part of the pattern matches.
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    while let [first, rest @ ..] = pattern {
        let mut next = vec![false; name.len() + 1];
        if *first == b'*' {
            let across = rest.starts_with(b"*");
            pattern = if across { &rest[1..] } else { rest };
            for at in 0..=name.len() {
                let longer = at > 0 && next[at - 1] && (across || name[at - 1] != separator);
                next[at] = reached[at] || longer;
            }
        } else {
            pattern = rest;
            for at in 0..name.len() {
                next[at + 1] = reached[at] && same(*first, name[at]);
            }
        }
        reached = next;
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_within_a_part_of_a_name() {
        let cases = [
            ("spiffe://prod/frontend/*", "spiffe://prod/frontend/a", true),
            ("spiffe://prod/frontend/*", "spiffe://prod/frontend/a/b", false),
            ("spiffe://prod/frontend/**", "spiffe://prod/frontend/a/b", true),
            ("spiffe://prod/*/frontend", "spiffe://prod/x.y/frontend", true),
            ("spiffe://prod/*/frontend", "spiffe://prod/a/b/frontend", false),
            ("spiffe://prod/*", "spiffe://prod", false),
            ("spiffe://prod/a", "spiffe://prod/A", false),
            ("spiffe://*/a", "spiffe://prod/a", true),
            ("spiffe://prod/**", "spiffe://product/a", false),
            ("*.workers.example", "w1.workers.example", true),
            ("*.workers.example", "a.w1.workers.example", false),
            ("*.workers.example", "workers.example", false),
            ("w*.workers.example", "W12.Workers.Example", true),
            ("**.example", "a.b.example", true),
            ("workers.example", "workers.example", true),
            ("workers.example", "workers.example.org", false),
            ("a**b*c", "a.x.bzc", true),
            ("a", "", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn single_star_admits_all_and_no_pattern_admits_none() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(admit(&list(&["*"]), &[]));
        assert!(!admit(&[], &list(&["a"])));
        assert!(!admit(&list(&["**"]), &[]), "no name matches");
        assert!(admit(&list(&["x", "a"]), &list(&["b", "a"])));
    }
}

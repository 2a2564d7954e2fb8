//! Line of the workers file: a server's address and place, as `http://10.0.0.5:8000 node=rack-4`.
//!
//! Labels are read from the end of the line, because the path of a Unix socket may contain blanks.

use std::fmt;

use parm_protocol::{Place, place};

/// A server with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its address, not validated yet.
    pub url: String,
    /// Its place, as far as the line states it.
    pub place: Place,
}

impl Listed {
    /// Reads a line; `None` for an empty line or a comment.
    pub fn read(line: &str) -> Option<Result<Self, String>> {
        let line = line.split_once('#').map_or(line, |(before, _)| before).trim();
        (!line.is_empty()).then(|| parse(line))
    }
}

fn parse(line: &str) -> Result<Listed, String> {
    let (mut rest, mut place) = (line, Place::default());
    while let Some((before, word)) = rest.rsplit_once(char::is_whitespace) {
        let Some((label, value)) = word.split_once('=') else { break };
        let known = match label {
            "node" => &mut place.node,
            "zone" => &mut place.zone,
            // A socket's path may contain any text.
            _ if rest.contains("unix:") => break,
            _ => {
                return Err(format!("invalid label '{word}': use node=NAME or zone=NAME after the address"));
            }
        };
        if known.is_some() {
            return Err(format!("duplicate label {label} (given twice): keep one"));
        }
        let name = place::name(value).map_err(|reason| format!("{label}: {reason}"))?;
        *known = Some(name.ok_or_else(|| format!("{label} has no name: use {label}=NAME, or omit it"))?);
        rest = before.trim_end();
    }
    Ok(Listed { url: rest.to_owned(), place })
}

impl fmt::Display for Listed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.url)?;
        let labels = [("node", &self.place.node), ("zone", &self.place.zone)];
        labels
            .into_iter()
            .filter_map(|(label, name)| Some((label, name.as_ref()?)))
            .try_for_each(|(label, name)| write!(to, " {label}={name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(url: &str, node: Option<&str>, zone: Option<&str>) -> Option<Result<Listed, String>> {
        let place =
            Place { node: node.map(str::to_owned), zone: zone.map(str::to_owned), ..Place::default() };
        Some(Ok(Listed { url: url.to_owned(), place }))
    }

    #[test]
    fn line_has_an_address_and_place_or_nothing() {
        let cases = [
            ("http://a:1", listed("http://a:1", None, None)),
            ("  http://a:1  # the first", listed("http://a:1", None, None)),
            ("http://a:1 node=n1 # zone=no", listed("http://a:1", Some("n1"), None)),
            ("http://a:1\tzone=eu-1a   node=n1", listed("http://a:1", Some("n1"), Some("eu-1a"))),
            ("unix:/run/my own.sock zone=z", listed("unix:/run/my own.sock", None, Some("z"))),
            ("unix:/run/a=b c=d", listed("unix:/run/a=b c=d", None, None)),
            ("node=n1", listed("node=n1", None, None)),
            ("# http://a:1", None),
            ("   ", None),
        ];
        for (line, expected) in cases {
            let read = Listed::read(line);
            assert_eq!(read, expected, "{line:?}");
            if let Some(Ok(listed)) = read {
                assert_eq!(Listed::read(&listed.to_string()), Some(Ok(listed)));
            }
        }
    }

    #[test]
    fn invalid_label_error_shows_expected_format() {
        for (line, word) in [
            ("http://a:1 nod=n1", "node=NAME or zone=NAME"),
            ("http://a:1 rack=4 node=n1", "'rack=4'"),
            ("http://a:1 node=n1 node=n2", "twice"),
            ("http://a:1 node=", "no name"),
            (&format!("http://a:1 zone={}", "z".repeat(300)), "at most 253"),
        ] {
            let told = Listed::read(line).unwrap().unwrap_err();
            assert!(told.contains(word), "{line}: {told}");
        }
    }
}

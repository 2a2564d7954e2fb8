//! Shares: parts of a grid that separate processes run.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::Error;

/// Share number `index` of `of` shares, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    index: u32,
    of: u32,
}

impl Share {
    /// The whole grid.
    pub const ALL: Self = Self { index: 0, of: 1 };

    /// Whether the share contains the cell with this key. The hash of the key decides, so a further cell moves no other.
    pub fn contains(self, key: &str) -> bool {
        let hash = Sha256::digest(key.as_bytes());
        let number = hash.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        number % u64::from(self.of) == u64::from(self.index)
    }
}

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts =
            text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            _ => Err(Error::BadShare { given: text.into() }),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_exactly_one_share() {
        let shares: Vec<Share> = (0..4).map(|index| format!("{index}/4").parse().unwrap()).collect();
        let mut sizes = [0; 4];
        for number in 0..400u32 {
            let key = crate::key(&number.to_le_bytes());
            let holders: Vec<usize> = (0..4).filter(|share| shares[*share].contains(&key)).collect();
            assert_eq!(holders.len(), 1, "{key}");
            sizes[holders[0]] += 1;
        }
        assert!(sizes.iter().all(|size| (60..140).contains(size)), "{sizes:?}");
        assert!(Share::ALL.contains("any"));
    }

    #[test]
    fn invalid_share_error_shows_expected_form() {
        for given in ["4/4", "1", "1/0", "-1/4", "a/b", ""] {
            let error = given.parse::<Share>().unwrap_err().to_string();
            assert!(error.contains("0/4"), "{given}: {error}");
        }
    }
}

//! Keys that are sent: kept out of sight.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::keys::Digest;

/// A secret: shown neither in logs nor in a dumped configuration. It cannot be written at all, so that whoever puts one
/// into a configuration has to say that its field is left out.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Token(String);

/// What stood for a token in configurations that earlier versions dumped. Everybody can guess it.
const MASK: &str = "***";

impl Token {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// What a server keeps of a key.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    /// The value of the `authorization` header.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

impl TryFrom<String> for Token {
    type Error = String;

    fn try_from(secret: String) -> Result<Self, String> {
        if secret == MASK {
            return Err(format!("'{MASK}' stands for a token that is not shown: write the token itself"));
        }
        Ok(Self(secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Config;

    #[test]
    fn a_token_is_shown_nowhere() {
        let config = Config { token: Some(Token::new("hush")), ..Config::default() };
        let shown = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
        assert!(!shown.contains("hush"), "{shown}");
        let read: Token = serde_json::from_str("\"hush\"").unwrap();
        assert_eq!(read.bearer(), "Bearer hush");
    }

    #[test]
    fn what_stands_for_a_token_is_no_token() {
        let error = serde_json::from_str::<Token>("\"***\"").unwrap_err().to_string();
        assert!(error.contains("write the token itself"), "{error}");
        assert_eq!(serde_json::to_value(Config::default()).unwrap().get("token"), None);
    }
}

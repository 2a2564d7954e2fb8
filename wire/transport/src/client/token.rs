//! Keys that clients send, hidden from logs.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::keys::Digest;

/// A secret that appears neither in logs nor in a dumped configuration. It does not implement `Serialize`, so a
/// configuration with a token must skip its field explicitly.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Token(String);

/// The placeholder of a token in configurations that earlier versions dumped. It is easy to guess.
const MASK: &str = "***";

impl Token {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The digest that a server keeps of a key.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

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
            return Err(format!("'{MASK}' is a placeholder for a hidden token: write the token itself"));
        }
        Ok(Self(secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Config;

    #[test]
    fn token_is_hidden_everywhere() {
        let config = Config { token: Some(Token::new("hush")), ..Config::default() };
        let shown = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
        assert!(!shown.contains("hush"), "{shown}");
        let read: Token = serde_json::from_str("\"hush\"").unwrap();
        assert_eq!(read.bearer(), "Bearer hush");
    }

    #[test]
    fn placeholder_of_a_token_is_rejected() {
        let error = serde_json::from_str::<Token>("\"***\"").unwrap_err().to_string();
        assert!(error.contains("write the token itself"), "{error}");
        assert_eq!(serde_json::to_value(Config::default()).unwrap().get("token"), None);
    }
}

//! Keys that a client sends, hidden from logs and dumps.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::keys::Digest;

/// A secret. It has no serialized form, so that a configuration with one must skip its field.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Token(String);

/// A placeholder for a secret, which anyone can guess.
const MASK: &str = "***";

impl Token {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The digest that a server stores.
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
            return Err(format!("'{MASK}' is a placeholder, not a key: write the key itself"));
        }
        Ok(Self(secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Config;

    #[test]
    fn token_is_hidden_in_debug_and_json() {
        let config = Config { token: Some(Token::new("hush")), ..Config::default() };
        let shown = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
        assert!(!shown.contains("hush"), "{shown}");
        let read: Token = serde_json::from_str("\"hush\"").unwrap();
        assert_eq!(read.bearer(), "Bearer hush");
    }

    #[test]
    fn placeholder_is_rejected_as_a_token() {
        let error = serde_json::from_str::<Token>("\"***\"").unwrap_err().to_string();
        assert!(error.contains("write the key itself"), "{error}");
        assert_eq!(serde_json::to_value(Config::default()).unwrap().get("token"), None);
    }
}

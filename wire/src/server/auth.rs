//! Who may do what: bearer tokens with a scope. Without tokens everyone may ask for predictions, and who may load and
//! unload models depends on the listener that they came by.

use http::HeaderMap;
use parm_protocol::Error;

use super::config::{Config, Credential, ModelControl, Scope};
use crate::client::Token;

/// Who can reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// This machine: a loopback address or a Unix socket.
    Local,
    /// Other machines too.
    Open,
}

/// The credentials of a server.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    credentials: Vec<Credential>,
    control: ModelControl,
}

impl Guard {
    pub(super) fn new(config: &Config) -> Self {
        Self { credentials: config.tokens.clone(), control: config.model_control }
    }

    /// Whether a request with these headers, which came by a listener of this reach, may do what needs `scope`.
    pub(super) fn check(&self, headers: &HeaderMap, scope: Scope, reach: Reach) -> Result<(), Error> {
        if self.credentials.is_empty() {
            return if scope == Scope::Inference || self.lets_change(reach) {
                Ok(())
            } else {
                Err(Error::ModelControl)
            };
        }
        let given = Token::given(headers).ok_or(Error::Unauthenticated)?;
        // Every credential is compared: how long it takes tells nothing about the tokens.
        let known = self.credentials.iter().filter(|credential| credential.token.is(given));
        match known.map(|credential| credential.scope).max() {
            None => Err(Error::Unauthenticated),
            Some(allowed) if allowed < scope => Err(Error::PermissionDenied),
            Some(_) => Ok(()),
        }
    }

    /// Whether a request without a credential may load and unload models.
    fn lets_change(&self, reach: Reach) -> bool {
        match self.control {
            ModelControl::Anyone => true,
            ModelControl::Local => reach == Reach::Local,
            ModelControl::Nobody => false,
        }
    }

    /// What the operator should know about a listener that other machines can reach.
    pub(super) fn warning(&self, reach: Reach) -> Option<&'static str> {
        if reach == Reach::Local || !self.credentials.is_empty() {
            return None;
        }
        Some(if self.lets_change(reach) {
            "whoever reaches this address may load and unload models: set server.tokens, or server.model_control = \"local\""
        } else {
            "whoever reaches this address may ask for predictions; models are not loaded or unloaded over it: set \
             server.tokens"
        })
    }
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;

    use super::*;

    #[test]
    fn tokens_open_what_their_scope_allows() {
        let credential = |token: &str, scope| Credential { token: Token::new(token), scope };
        let tokens = vec![credential("read", Scope::Inference), credential("all", Scope::Admin)];
        let guard = Guard::new(&Config { tokens, ..Config::default() });
        let check = |header: Option<&str>, scope| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, header.parse().unwrap());
            }
            guard.check(&headers, scope, Reach::Open)
        };
        assert_eq!(check(None, Scope::Inference), Err(Error::Unauthenticated));
        assert_eq!(check(Some("Bearer wrong"), Scope::Inference), Err(Error::Unauthenticated));
        assert_eq!(check(Some("Basic read"), Scope::Inference), Err(Error::Unauthenticated));
        assert_eq!(check(Some("bearer read"), Scope::Inference), Ok(()));
        assert_eq!(check(Some("Bearer read"), Scope::Admin), Err(Error::PermissionDenied));
        assert_eq!(check(Some("Bearer all"), Scope::Admin), Ok(()));
        assert_eq!(guard.warning(Reach::Open), None);
    }

    #[test]
    fn without_tokens_models_are_loaded_from_this_machine_only_unless_told_otherwise() {
        for (model_control, local, open) in [
            (ModelControl::default(), Ok(()), Err(Error::ModelControl)),
            (ModelControl::Anyone, Ok(()), Ok(())),
            (ModelControl::Nobody, Err(Error::ModelControl), Err(Error::ModelControl)),
        ] {
            let guard = Guard::new(&Config { model_control, ..Config::default() });
            let check = |scope, reach| guard.check(&HeaderMap::new(), scope, reach);
            assert_eq!(check(Scope::Admin, Reach::Local), local, "{model_control:?}");
            assert_eq!(check(Scope::Admin, Reach::Open), open, "{model_control:?}");
            assert_eq!(check(Scope::Inference, Reach::Open), Ok(()), "{model_control:?}");
            assert_eq!(guard.warning(Reach::Local), None);
            let warning = guard.warning(Reach::Open).unwrap();
            assert_eq!(warning.contains("may load and unload"), model_control == ModelControl::Anyone);
        }
    }
}

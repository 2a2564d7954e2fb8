//! Who may do what: bearer tokens with a scope. Without tokens everyone may do everything.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use parm_protocol::Error;

use super::config::{Credential, Scope};

/// The credentials of a server.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    credentials: Vec<Credential>,
}

impl Guard {
    pub(super) fn new(credentials: Vec<Credential>) -> Self {
        Self { credentials }
    }

    /// Whether a request with these headers may do what needs `scope`.
    pub(super) fn check(&self, headers: &HeaderMap, scope: Scope) -> Result<(), Error> {
        if self.credentials.is_empty() {
            return Ok(());
        }
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given
            .and_then(|value| value.split_once(' '))
            .filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        let given = given.map(|(_, token)| token.trim().as_bytes()).ok_or(Error::Unauthenticated)?;
        // Every credential is compared, and each in constant time: how long it takes tells nothing about the tokens.
        let known =
            self.credentials.iter().filter(|credential| same(credential.token.secret().as_bytes(), given));
        match known.map(|credential| credential.scope).max() {
            None => Err(Error::Unauthenticated),
            Some(allowed) if allowed < scope => Err(Error::PermissionDenied),
            Some(_) => Ok(()),
        }
    }
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Token;

    #[test]
    fn tokens_open_what_their_scope_allows() {
        let credential = |token: &str, scope| Credential { token: Token::new(token), scope };
        let guard = Guard::new(vec![credential("read", Scope::Inference), credential("all", Scope::Admin)]);
        let check = |header: Option<&str>, scope| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, header.parse().unwrap());
            }
            guard.check(&headers, scope)
        };
        assert_eq!(check(None, Scope::Inference), Err(Error::Unauthenticated));
        assert_eq!(check(Some("Bearer wrong"), Scope::Inference), Err(Error::Unauthenticated));
        assert_eq!(check(Some("Basic read"), Scope::Inference), Err(Error::Unauthenticated));
        assert_eq!(check(Some("bearer read"), Scope::Inference), Ok(()));
        assert_eq!(check(Some("Bearer read"), Scope::Admin), Err(Error::PermissionDenied));
        assert_eq!(check(Some("Bearer all"), Scope::Admin), Ok(()));
        assert_eq!(Guard::new(Vec::new()).check(&HeaderMap::new(), Scope::Admin), Ok(()));
    }
}

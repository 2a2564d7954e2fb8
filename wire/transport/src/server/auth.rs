//! Access control of a listener.
//!
//! With keys, the role of a key decides. Without keys every client may request predictions, and changes are allowed
//! from this machine only.

use http::HeaderMap;
use http::header::ORIGIN;
use parm_protocol::Error;

use super::config::ModelControl;
use crate::keys::{Access, Keys, Visit};
use crate::listening::Listener;

/// The clients that can reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// This machine: a loopback address or a Unix socket.
    Local,
    /// Other machines as well.
    Open,
}

impl Reach {
    /// The reach of a listener.
    pub(super) fn of(listener: &Listener) -> Self {
        if listener.is_local() { Reach::Local } else { Reach::Open }
    }
}

/// Checks whether a request with these headers, from a listener of this reach, has `access`. `control` says who has it without
/// keys.
pub(super) fn check(
    keys: &Keys,
    control: ModelControl,
    headers: &HeaderMap,
    access: Access,
    reach: Reach,
) -> Result<Visit, Error> {
    if keys.are_asked_for() {
        return keys.admit(headers, access);
    }
    if access != Access::Control {
        return Ok(Visit::default());
    }
    if control == ModelControl::Nobody {
        return Err(Error::ModelControl);
    }
    // Browsers reach listeners that only this machine can reach. They name the page's origin in every request that
    // changes something.
    if reach == Reach::Open || headers.contains_key(ORIGIN) {
        return Err(Error::LocalOnly);
    }
    Ok(Visit::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_loaded_locally_only_without_keys() {
        let control = |model_control, reach, headers: &HeaderMap| {
            let check = |access| check(&Keys::none(), model_control, headers, access, reach).map(drop);
            assert_eq!(check(Access::Infer), Ok(()));
            check(Access::Control)
        };
        let (none, page) =
            (HeaderMap::new(), HeaderMap::from_iter([(ORIGIN, "http://127.0.0.1:8000".parse().unwrap())]));
        assert_eq!(control(ModelControl::Local, Reach::Local, &none), Ok(()));
        assert_eq!(control(ModelControl::Local, Reach::Open, &none), Err(Error::LocalOnly));
        assert_eq!(control(ModelControl::Local, Reach::Local, &page), Err(Error::LocalOnly));
        assert_eq!(control(ModelControl::Nobody, Reach::Local, &none), Err(Error::ModelControl));
    }
}

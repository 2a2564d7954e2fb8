//! Access control of a listener.
//!
//! With keys, the role of a key decides. Without keys every client may request predictions, and changes are allowed
//! from this machine only.

use http::HeaderMap;
use http::header::ORIGIN;
use parm_protocol::Error;

use super::config::{Config, ModelControl};
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

/// Access control in front of the routes of a server.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    keys: Keys,
    control: ModelControl,
}

impl Guard {
    pub(super) fn new(config: &Config, keys: Keys) -> Self {
        Self { keys, control: config.model_control }
    }

    /// Access control of pages, which have nothing to do with models.
    pub(super) fn of_pages(keys: Keys) -> Self {
        Self { keys, control: ModelControl::Local }
    }

    /// Checks whether a request with these headers, from a listener of this reach, has `access`.
    pub(super) fn check(&self, headers: &HeaderMap, access: Access, reach: Reach) -> Result<Visit, Error> {
        if self.keys.are_asked_for() {
            return self.keys.admit(headers, access);
        }
        if access != Access::Control {
            return Ok(Visit::default());
        }
        if self.control == ModelControl::Nobody {
            return Err(Error::ModelControl);
        }
        // Browsers reach listeners that only this machine can reach. They name the page's origin in every request that
        // changes something.
        if reach == Reach::Open || headers.contains_key(ORIGIN) {
            return Err(Error::LocalOnly);
        }
        Ok(Visit::default())
    }

    /// A warning about a listener that other machines can reach.
    pub(super) fn warning(&self, reach: Reach) -> Option<&'static str> {
        let open = reach == Reach::Open && !self.keys.are_asked_for();
        open.then_some(
            "any client of this address may request predictions, but not load or unload models: set \
             server.keys_file",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_loaded_locally_only_without_keys() {
        let control = |model_control, reach, headers: &HeaderMap| {
            let guard = Guard::new(&Config { model_control, ..Config::default() }, Keys::none());
            assert!(guard.check(headers, Access::Infer, reach).is_ok());
            assert_eq!(guard.warning(reach).is_some(), reach == Reach::Open);
            guard.check(headers, Access::Control, reach).map(drop)
        };
        let (none, page) =
            (HeaderMap::new(), HeaderMap::from_iter([(ORIGIN, "http://127.0.0.1:8000".parse().unwrap())]));
        assert_eq!(control(ModelControl::Local, Reach::Local, &none), Ok(()));
        assert_eq!(control(ModelControl::Local, Reach::Open, &none), Err(Error::LocalOnly));
        assert_eq!(control(ModelControl::Local, Reach::Local, &page), Err(Error::LocalOnly));
        assert_eq!(control(ModelControl::Nobody, Reach::Local, &none), Err(Error::ModelControl));
    }
}

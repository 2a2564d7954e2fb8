//! A caller and its requests.

use std::sync::Arc;
use std::time::Duration;

use parm_protocol::Error;

use super::limit::Over;
use super::ring::Holder;
use super::{Access, Digest, Keys, Role};

/// Retry delay of a caller with too many requests in progress: its own answers free a place.
const LATER: Duration = Duration::from_secs(1);

/// The holder of a key, or an anonymous caller if keys are not required.
#[derive(Clone, Debug, Default)]
pub struct Caller(Option<Known>);

#[derive(Clone, Debug)]
struct Known {
    keys: Keys,
    digest: Digest,
    holder: Arc<Holder>,
}

impl Caller {
    pub(super) fn new(keys: Keys, digest: Digest, holder: Arc<Holder>) -> Self {
        Self(Some(Known { keys, digest, holder }))
    }

    /// Whether it has sent a key.
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// The name of the key, if keys are required.
    pub fn name(&self) -> Option<Arc<str>> {
        self.0.as_ref().map(|known| known.holder.name.clone())
    }

    /// The caller's role: control if keys are not required.
    pub fn role(&self) -> Role {
        self.0.as_ref().map_or(Role::Control, |known| known.holder.role)
    }

    /// Whether the key still grants `access`. Long operations check repeatedly.
    pub fn still_opens(&self, access: Access) -> bool {
        self.again().is_ok_and(|holder| holder.is_none_or(|holder| holder.role.opens(access)))
    }

    /// Admits another request of this caller, or returns the reason for its rejection.
    pub fn visit(&self, access: Access) -> Result<Visit, Error> {
        match self.again()? {
            Some(holder) => self.enter(holder, access),
            None => Ok(Visit::default()),
        }
    }

    /// Admits the request that authenticated the caller.
    pub(super) fn first_visit(&self, access: Access) -> Result<Visit, Error> {
        match &self.0 {
            Some(known) => self.enter(known.holder.clone(), access),
            None => Ok(Visit::default()),
        }
    }

    fn enter(&self, holder: Arc<Holder>, access: Access) -> Result<Visit, Error> {
        let name = &holder.name;
        if !holder.role.opens(access) {
            return Err(Error::WrongRole {
                name: name.to_string(),
                role: holder.role.name(),
                wanted: access.name(),
            });
        }
        match holder.limit.enter() {
            Ok(()) => {}
            Err(Over::Rate(rate, wait)) => {
                let message = format!(
                    "key '{name}' exceeds its rate of {rate} requests a second: send fewer, or have its rate raised"
                );
                return Err(Error::TooManyRequests { message, retry_after: wait });
            }
            Err(Over::Concurrency(most)) => {
                let message = format!(
                    "key '{name}' has {most} requests in progress, its limit: wait for answers before sending more"
                );
                return Err(Error::TooManyRequests { message, retry_after: LATER });
            }
        }
        Ok(Visit { caller: self.clone(), counted: Some(holder) })
    }

    /// The current holder: the key may have been removed, or have another role.
    fn again(&self) -> Result<Option<Arc<Holder>>, Error> {
        match &self.0 {
            None => Ok(None),
            Some(known) => known.keys.holder(&known.digest).map(Some).ok_or(Error::UnknownKey),
        }
    }
}

/// An admitted request; it counts until this is dropped.
#[derive(Debug, Default)]
pub struct Visit {
    caller: Caller,
    counted: Option<Arc<Holder>>,
}

impl Visit {
    /// The caller of the request.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(holder) = &self.counted {
            holder.limit.leave();
        }
    }
}

//! Callers: the roles of their keys, the access that routes require, and their requests.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parm_protocol::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ring::Holder;
use super::{Digest, Keys};

/// The role of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Predictions and the metadata that they need. Nothing about other clients.
    Infer,
    /// Data for operators: metrics, statistics, the admin page's data, recordings. No predictions.
    Read,
    /// Everything, and every change: loading and unloading models, settings, instances, faults.
    Control,
}

/// The access that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// No key: health, and files without data.
    Everyone,
    /// A key of any role: metadata.
    AnyKey,
    /// A key for predictions.
    Infer,
    /// A key of an operator.
    Read,
    /// A key that allows changes.
    Control,
}

impl Role {
    /// All roles, the least powerful first.
    pub const ALL: [Role; 3] = [Role::Infer, Role::Read, Role::Control];

    /// Its name in the key file.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Infer => "infer",
            Role::Read => "read",
            Role::Control => "control",
        }
    }

    /// Whether a key of this role grants `access`.
    pub const fn opens(self, access: Access) -> bool {
        match access {
            Access::Everyone | Access::AnyKey => true,
            Access::Infer => matches!(self, Role::Infer | Role::Control),
            Access::Read => matches!(self, Role::Read | Role::Control),
            Access::Control => matches!(self, Role::Control),
        }
    }
}

impl Access {
    /// Its name for people: the least role that grants it, `none` if no key is required.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Everyone => "none",
            Access::AnyKey => "any",
            Access::Infer => Role::Infer.name(),
            Access::Read => Role::Read.name(),
            Access::Control => Role::Control.name(),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let role = Role::ALL.into_iter().find(|role| role.name() == text);
        role.ok_or_else(|| format!("'{text}' is not a role: use infer, read or control"))
    }
}

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

    /// Whether a key identified it; never if keys are not required.
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
        holder.limit.enter(name)?;
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

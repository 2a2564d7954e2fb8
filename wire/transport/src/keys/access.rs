//! Roles of keys, and the access that routes require.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

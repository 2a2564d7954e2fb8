//! What a key is for, and what a route wants.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Predictions, and what a client must know to ask for them. It sees nothing of other clients.
    Infer,
    /// What operators look at: metrics, statistics, the admin page's data, recordings. It asks for no predictions.
    Read,
    /// All of that, and every change: models loaded and unloaded, settings, instances, faults.
    Control,
}

/// What a route wants of who calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Nothing: health, and files that hold no data.
    Everyone,
    /// A key, whatever its role: what can be asked for, and how.
    AnyKey,
    /// A key for predictions.
    Infer,
    /// A key of an operator.
    Read,
    /// A key that may change things.
    Control,
}

impl Role {
    /// All, from the least.
    pub const ALL: [Role; 3] = [Role::Infer, Role::Read, Role::Control];

    /// As in the key file.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Infer => "infer",
            Role::Read => "read",
            Role::Control => "control",
        }
    }

    /// Whether a key of this role opens what wants `access`.
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
    /// In words, for people: the role that opens it, `none` where no key is wanted.
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
        role.ok_or_else(|| format!("'{text}' is no role: use infer, read or control"))
    }
}

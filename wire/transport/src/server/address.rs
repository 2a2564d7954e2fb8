//! The address of a listener in text form: `127.0.0.1:8000`, `[::]:8000`, `0.0.0.0:0`.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A numeric socket address. Names are not resolved: a listener must not depend on a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline)]
pub struct Address(pub SocketAddr);

impl Address {
    /// This port of the loopback interface; 0 takes a free port.
    pub const fn local(port: u16) -> Self {
        Address(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Address).map_err(|_| {
            format!(
                "'{text}' is not an address to listen on: use IP:PORT, such as 127.0.0.1:8000 or 0.0.0.0:8000"
            )
        })
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

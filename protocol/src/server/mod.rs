//! The server.

mod upgrade;

pub(crate) use upgrade::Offer;

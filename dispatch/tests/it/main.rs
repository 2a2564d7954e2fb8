//! The dispatcher against scripted worlds: what it does in each situation, and what it never does in any.

mod ahead;
mod behaviour;
mod blame;
mod coded;
mod fleet;
mod groups;
mod limits;
mod neighbours;
mod overload;
mod properties;
mod script;
mod shares;
mod sites;
mod stand_in;
mod twins;
mod world;

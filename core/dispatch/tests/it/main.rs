//! The dispatcher against scripted worlds: what it does in each situation, and what it never does in any.

mod ahead;
mod behaviour;
mod blame;
mod bounds;
mod coded;
mod drawn_settings;
mod fleet;
mod groups;
mod hangs;
mod limits;
mod lost;
mod neighbours;
mod overload;
mod poison;
mod properties;
mod removal;
mod schedule;
mod script;
mod shares;
mod silence;
mod sites;
mod stand_in;
mod stand_in_rows;
mod twins;
mod urgency;
mod world;

//! Changes of the state: each makes one change and the actions that belong to it.

pub(crate) mod answer;
pub(crate) mod eject;
pub(crate) mod end;
pub(crate) mod group;
pub(crate) mod hold;
pub(crate) mod judge;
pub(crate) mod line_up;
pub(crate) mod neighbours;
pub(crate) mod outputs;
pub(crate) mod pace;
pub(crate) mod pools;
pub(crate) mod reserve;
pub(crate) mod resize;
pub(crate) mod retries;
pub(crate) mod room;
pub(crate) mod start;
pub(crate) mod tell;
pub(crate) mod watch;

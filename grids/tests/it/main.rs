//! Grids in folders: leases under paused and killed holders, queues of several processes, and joins.

mod joins;
mod leases;
mod queues;
mod support;

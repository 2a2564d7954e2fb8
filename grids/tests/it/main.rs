//! Grids in folders: leases under paused and killed holders, queues of several processes, and joins.

mod hostile;
mod joins;
mod leases;
mod queues;
mod support;

//! Ids of queries, jobs, groups, instances, pools, shares and sites.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(pub $inner);
    };
}

id!(
    /// A query: one input row. Chosen by the driver, unique while the query is unanswered.
    QueryId(u64)
);
id!(
    /// A batch of queries (or a parity) sent to one instance. Chosen by the dispatcher, never reused.
    JobId(u64)
);
id!(
    /// A coding group. Chosen by the dispatcher, never reused.
    GroupId(u64)
);
id!(
    /// An instance. Chosen by the driver, never reused: an instance that comes back is a new one.
    InstanceId(u32)
);
id!(
    /// A model pool: the instances that serve one deployed model and its parity models. Chosen by the driver.
    PoolId(u32)
);
id!(
    /// A configured share. Chosen by the driver.
    ShareId(u32)
);
id!(
    /// A process with several instances. Chosen by the driver.
    ProcessId(u32)
);
id!(
    /// A card: an accelerator that instances share. Chosen by the driver.
    CardId(u32)
);
id!(
    /// A node (machine) of instances. Chosen by the driver.
    NodeId(u32)
);
id!(
    /// A zone: nodes that fail together. Chosen by the driver.
    ZoneId(u32)
);
id!(
    /// The shape of one query's inputs; only queries of one shape share a batch or a coding group.
    ShapeId(u32)
);

//! What is generated is what it is generated from.

mod generated;

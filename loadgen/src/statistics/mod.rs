//! What may be claimed about a tail, and how surely.

pub mod bootstrap;
pub mod evidence;
pub mod kolmogorov;

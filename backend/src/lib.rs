//! Engines behind one synchronous trait, instances, the worker and its fault injection

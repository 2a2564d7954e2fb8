//! Experiments as a user runs them: what their reports say.

mod repeatable;

//! Which frontend may send an instance its next job, where several frontends share the instances.
//!
//! Problem: frontends that do not know of each other send queries to the same instances, and leave others idle. Three of them
//! more than double the p99 of a healthy fleet.
//!
//! Choice: the worker knows when it is idle, and says so to one frontend at a time. Who holds its *token* may send it one job
//! and finds it idle. A frontend that has a query and no token leaves *reservations* at several workers, and keeps the query:
//! the first that comes to its reservation gives it a token, and only then is the query bound to an instance (late binding).
//! Until then it can be cancelled, answered by a stand-in, or go elsewhere. Reservations wait at a worker in one order with its
//! jobs, so that what is late goes first whoever's it is.
//!
//! A token goes with the answer to the frontend whose job ended, unless somebody waits: so frontends keep about as many as they
//! use, and nearly every query finds one without a message. Where a reservation waits at an idle worker whose token is out, the
//! worker calls the token back.
//!
//! A frontend that is alone needs nobody's leave. It is told so, and that it is not any more when another comes: a message for
//! each, where a token for every job cost a frontend before models of microseconds two thirds of what it could do.
//!
//! A token that meets a reservation says which. The worker knows what everybody wants and what each share has had of it; the frontend
//! knows only its own part. So what was reserved for is served before what else waits there, and shares are what they are set
//! to be however their clients are spread over frontends.
//!
//! Nothing depends on a token but the wait: a job that comes without one, or with one that is void, is queued like any other.
//! So a lost message costs a time-out and never a query, and frontends that know nothing of tokens are served as ever.
//!
//! Rejected: tokens to a frontend by chance (the first proposal of join-idle-queue): a message for every job, to one that may
//! have nothing to send. Probing for the shortest queue: what it says is old when the query arrives, and it is most wrong where
//! instances are slow. Tokens that are only hints: two jobs meet at an instance whenever one frontend is quicker than a message.
//!
//! Cold start: no frontend has a token. It reserves for its first jobs, and each answer brings one.

mod desk;
mod message;
mod settings;

pub use desk::{Desk, Reservation};
pub use message::{Class, Frontend, Grant, Message, Note, Order, Token};
pub use settings::Settings;

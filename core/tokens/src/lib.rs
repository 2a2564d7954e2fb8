//! Tokens that assign instances of a worker to frontends, and the worker's side of them.
//!
//! [`Desk`] decides which frontend gets the next token; [`Message`] and [`Order`] are what workers and frontends
//! exchange.
//!
//! Problem: frontends that do not know each other's load send queries to busy instances while others are idle. Three
//! such frontends more than double the p99 of a healthy fleet.
//!
//! Choice: a worker knows when it is idle, and offers itself to one frontend at a time. The holder of its *token* may
//! send one job and finds the instance idle. A frontend that has a query and no token places *reservations* at several
//! workers and keeps the query. The first worker that reaches its reservation grants a token, and only then is the
//! query bound to an instance (late binding). Until then the query can be cancelled, answered by a stand-in or sent
//! elsewhere. A worker orders reservations together with its waiting jobs, so late work goes first, whichever frontend
//! it comes from. Within a class the query that has waited longest goes first: a reservation reports its wait.
//!
//! When a job ends and no reservation waits, the token goes with the answer to the frontend that sent the job.
//! Frontends thus keep about as many tokens as they use, and nearly all queries find one without a message. If a
//! reservation waits at an idle worker whose token is out, the worker recalls the token.
//!
//! A single frontend needs no tokens. The worker tells it that it is alone, and that it is not once another joins. This
//! costs two messages, while a token for each job cost a frontend of microsecond models two thirds of its throughput.
//!
//! A token names the reservation that it meets. The worker knows the demand and the usage of all shares; a frontend
//! knows only its own part. Serving the reserved query first therefore keeps shares fair, however clients are spread
//! over frontends.
//!
//! Tokens affect only waiting: a job without a token, or with a void one, is queued like any other. A lost message thus
//! costs a timeout and never a query, and frontends without tokens are still served.
//!
//! Rejected: tokens to random frontends (join-idle-queue), because each job costs a message, possibly to a frontend
//! without queries. Probing for the shortest queue: the answer is stale when the query arrives, most of all at slow
//! instances. Tokens as mere hints: two jobs meet at an instance whenever one frontend is faster than a message.
//!
//! Cold start: no frontend has a token. It reserves for its first jobs, and each answer brings one.

mod arrivals;
mod desk;
mod message;
mod settings;

pub use arrivals::Arrivals;
pub use desk::{Desk, Reservation};
pub use message::{Class, Frontend, Grant, Message, Note, Order, Token};
pub use settings::Settings;

//! Runs: requests to a server, open-loop (on a schedule, however slow the earlier ones are) or closed-loop (each when an
//! earlier one is answered).

mod closed;
mod driver;
mod exchange;
mod open;

use std::sync::Arc;
use std::time::Duration;

use parm_protocol::client::Client;
use tokio::runtime::Handle;

pub use closed::Closed;
pub use driver::{Driver, Due, Permit};
pub(crate) use exchange::Exchange;
pub use open::Plan;

use crate::Error;
use crate::chat::{Answers, Chats};
use crate::failures::Failures;
use crate::grader::Grader;
use crate::inputs::Inputs;
use crate::live::Live;
use crate::outcome::Tally;
use crate::recorder::Sample;

/// The most samples that a run keeps, about 300 MB of them: quantiles and their intervals need all, in order.
pub const MOST_SAMPLES: usize = 5_000_000;

/// A server and the requests for it.
#[derive(Clone)]
pub struct Target {
    /// The requests, and the connection to the server.
    pub work: Work,
    /// Drives the connection.
    pub runtime: Handle,
    /// Records the results and shows them meanwhile. One for each run.
    pub live: Arc<Live>,
}

/// What a run sends.
#[derive(Clone)]
pub enum Work {
    /// Queries for a model.
    Queries(Queries),
    /// Chats for a server of a language model. The latency of a chat is the time to its first token.
    Chats(Chats),
}

/// Queries and the server for them.
#[derive(Clone)]
pub struct Queries {
    /// The connection to the server.
    pub client: Arc<dyn Client>,
    /// The requests.
    pub inputs: Inputs,
    /// Compares answers with the labels of the inputs, if there are any.
    pub grader: Option<Grader>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// The counted samples, in order of their intended send times.
    pub samples: Vec<Sample>,
    /// Requests that should have been sent after the warm-up.
    pub offered: usize,
    /// Requests that were not sent because too many were unanswered. They are among the samples, as late as the deadline.
    pub dropped: usize,
    /// Requests by outcome, and the rows that were right.
    pub tally: Tally,
    /// From the end of the warm-up to the last time a request was to be sent, or to the last answer of a closed loop.
    pub length: Duration,
    /// The failed requests by reason.
    pub failures: Failures,
    /// The answers of chats; `None` for queries.
    pub chats: Option<Answers>,
}

/// Runs an open-loop plan against a server without a viewer. Call it from a thread that may block.
pub fn run(client: Arc<dyn Client>, inputs: &Inputs, plan: &Plan, runtime: &Handle) -> Result<Run, Error> {
    let (inputs, runtime) = (inputs.clone(), runtime.clone());
    let work = Work::Queries(Queries { client, inputs, grader: None });
    Target { work, runtime, live: Arc::default() }.open(plan)
}

#[cfg(test)]
mod tests;

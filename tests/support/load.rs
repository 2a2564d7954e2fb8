//! Sends paced load to a running binary, compares every answer with the model's, and collects errors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Error, InferResponse};
use parm_transport::client;

use super::affine;

/// A client of a server at this address.
pub fn connect(url: &str) -> Arc<dyn Client> {
    client::connect(&url.parse().unwrap(), &client::Config::default()).unwrap()
}

/// How many requests, how often, and how long each may take.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub requests: usize,
    pub pace: Duration,
    pub deadline: Duration,
}

/// The result of a load.
#[derive(Debug, Default)]
pub struct Report {
    pub right: usize,
    pub wrong: usize,
    pub failed: Vec<Error>,
}

impl Report {
    /// Panics unless every request was answered with the model's own answer, within its deadline.
    pub fn assert_all_right(&self, load: Load) {
        assert!(
            self.failed.is_empty() && self.wrong == 0,
            "{} failed, first: {:?}; {} wrong; {} right",
            self.failed.len(),
            self.failed.first(),
            self.wrong,
            self.right
        );
        assert_eq!(self.right, load.requests);
    }
}

impl Load {
    /// Sends the load; `client` returns the client of each request. Requests overlap to keep the pace.
    pub async fn each(self, mut client: impl FnMut(usize) -> Arc<dyn Client>) -> Report {
        let mut pace = tokio::time::interval(self.pace);
        let mut running = tokio::task::JoinSet::new();
        for index in 0..self.requests {
            pace.tick().await;
            running.spawn(one(client(index), index, self.deadline));
        }
        let mut report = Report::default();
        while let Some(joined) = running.join_next().await {
            let (rows, outcome) = joined.unwrap();
            match outcome {
                Ok(response) if affine::is_answer(&response, &rows) => report.right += 1,
                Ok(_) => report.wrong += 1,
                Err(error) => report.failed.push(error),
            }
        }
        report
    }
}

async fn one(
    client: Arc<dyn Client>,
    index: usize,
    deadline: Duration,
) -> (Vec<f32>, Result<InferResponse, Error>) {
    let rows = affine::rows(1 + index % 3, index as u64);
    let context =
        CallContext { deadline: Some((Instant::now() + deadline).into()), ..CallContext::default() };
    let outcome = client.infer(affine::request(&rows), context).await;
    (rows, outcome)
}

//! Flags of `parm run`.

use std::time::Duration;

use clap::Args;

use super::{Common, Serve};

pub const EXAMPLES: &str = "Examples:
  parm run --replicas 3 -- uvicorn app:app --port {port}
      three copies of a FastAPI application behind http://127.0.0.1:8000
  parm run --replicas 2 -- python server.py
      the same for a server that listens on the port of the variable PORT
  parm run --replicas 2 --worker -- parm worker --http 127.0.0.1:{port} --grpc 127.0.0.1:0 --metrics 127.0.0.1:0
      servers of the Open Inference Protocol, whose requests parm can batch; here workers with the models of ./models";

/// `parm run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub common: Common,
    /// Copies of the server
    #[arg(long, short = 'n', value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub replicas: u16,
    /// The copies speak the Open Inference Protocol (V2, KServe) over HTTP: use them as `parm serve --worker` does, which batches
    /// requests and gives stand-ins and codes. Without it requests pass unread, as with `parm serve --upstream`
    #[arg(long)]
    pub worker: bool,
    /// Path that a copy may run twice (repeat), such as '/api/*': its requests are hedged and retried
    #[arg(long, value_name = "PATH", conflicts_with = "worker")]
    pub repeatable: Vec<String>,
    /// Policy: none, once, equal, replicate, hedge and, with --worker, those with approximate answers [default: hedge]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Address of the admin API [default: off]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,
    /// Time in which a started copy must answer, at `frontend.upstreams.probe` (`/health`) or, with --worker, `/v2/health/ready`
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub start_timeout: Duration,
    /// Time in which a copy must end after SIGTERM, before it is killed with all its processes
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub stop_timeout: Duration,
    /// Command of one copy, with `{port}` for its port, which the variable PORT names too
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Run {
    /// The flags of `parm serve` over copies at these addresses.
    pub fn serve(&self, urls: Vec<String>) -> Serve {
        let (worker, upstream) = if self.worker { (urls, Vec::new()) } else { (Vec::new(), urls) };
        Serve {
            common: self.common.clone(),
            worker,
            upstream,
            repeatable: self.repeatable.clone(),
            policy: self.policy.clone(),
            admin: self.admin.clone(),
            ..Serve::default()
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let read = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    read.filter(|time| !time.is_zero()).ok_or_else(|| "write a number of seconds above 0".to_owned())
}

//! `parm load`: open-loop load on any server of the Open Inference Protocol, and what may be said of its tail.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use parm_loadgen::arrivals::Arrivals;
use parm_loadgen::inputs::Inputs;
use parm_loadgen::report::{Report, missed};
use parm_loadgen::run::{Plan, run};
use parm_protocol::ModelRef;
use parm_protocol::client::{self, Endpoint};

use crate::cli::{Load, Output};

/// Runs the command. A run that is invalid or misses a requirement ends with status 1.
pub fn main(flags: &Load) -> anyhow::Result<()> {
    let endpoint: Endpoint = flags.url.parse().with_context(|| format!("'{}' is no address", flags.url))?;
    let arrivals = arrivals(flags)?;
    arrivals.schedule(flags.seed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _inside = runtime.enter();
    let client = client::connect(&endpoint, &client::Config::default())?;
    let metadata = runtime
        .block_on(client.model_metadata(&ModelRef::latest(&flags.model)))
        .with_context(|| format!("cannot ask {} about model '{}'", client.peer(), flags.model))?;
    let inputs = Inputs::generate(&metadata, flags.rows, flags.seed)?;
    let plan = Plan {
        arrivals,
        seed: flags.seed,
        length: Duration::from_secs_f64(flags.warm_up + flags.seconds),
        warm_up: Duration::from_secs_f64(flags.warm_up),
        deadline: Duration::from_millis(flags.deadline_ms),
        in_flight: flags.in_flight,
    };
    let outcome = run(client, &inputs, &plan, runtime.handle())?;
    let report = Report::of(&outcome);
    match flags.output {
        Output::Json => writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&report)?)?,
        Output::Text => writeln!(std::io::stdout(), "{report}")?,
    }
    let missed = missed(&outcome, &flags.require);
    if !report.is_valid() {
        bail!("the run is invalid: lower the rate or use a quieter machine");
    }
    if !missed.is_empty() {
        let names: Vec<String> = missed.iter().map(ToString::to_string).collect();
        bail!("not shown to hold: {}", names.join(", "));
    }
    Ok(())
}

fn arrivals(flags: &Load) -> anyhow::Result<Arrivals> {
    if let Some(path) = &flags.trace {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        return Arrivals::trace(&text).with_context(|| path.display().to_string());
    }
    let rate = flags.rate;
    Ok(match flags.cv {
        Some(0.0) => Arrivals::Constant { rate },
        Some(cv) => Arrivals::Gamma { rate, cv },
        None => Arrivals::Poisson { rate },
    })
}

//! Clients that send requests, wait or cancel, and check the answers.

use std::sync::Arc;
use std::time::Duration;

use parm_frontend::Frontend;
use parm_protocol::{
    Code, Context, Error, InferRequest, InferResponse, InferenceService, ModelRef, NamedTensor, Parameter,
    Parameters, RequestedOutput, Tensor, Transport,
};
use tokio::time::{Instant, sleep};

use crate::instances::{factor, shifted};
use crate::schedule::{Ask, Guilt, Model, Wanted};
use crate::world::{Request, Truth, World, values};

/// Tolerance for late answers: timers tick in milliseconds, and alarms are set up to five late.
pub(crate) const LATE: Duration = Duration::from_millis(25);

/// Deadline of requests without a timeout.
pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Sends a request and checks the answer.
pub(crate) async fn ask(frontend: Frontend, world: Arc<World>, ask: Ask) {
    let sent = Instant::now();
    let deadline = sent + ask.timeout.map_or(DEFAULT_DEADLINE, Duration::from_millis);
    let (number, request) = {
        let mut truth = world.0.lock();
        let number = truth.sends(&ask, deadline);
        (number, request(&truth.requests[number], number))
    };
    let context = Context::new(sent, Transport::Http);
    let mut answer = Box::pin(frontend.infer(request, context));
    let early = match ask.asleep {
        // The future is polled once, and then not for a while.
        Some(asleep) => {
            let first = futures::poll!(&mut answer);
            sleep(Duration::from_millis(asleep)).await;
            match first {
                std::task::Poll::Ready(answer) => Some(answer),
                std::task::Poll::Pending => None,
            }
        }
        None => None,
    };
    let answer = match (early, ask.patience) {
        (Some(answer), _) => answer,
        (None, None) => answer.await,
        (None, Some(patience)) => {
            match tokio::time::timeout_at(sent + Duration::from_millis(patience), answer).await {
                Ok(answer) => answer,
                Err(_) => {
                    world.0.lock().ends(number);
                    return;
                }
            }
        }
    };
    let mut truth = world.0.lock();
    let code = answer.as_ref().err().map_or(0, |error| 1 + error.code() as u64);
    truth.saw(1000 + number as u64, code);
    let asked = truth.requests[number].clone();
    let woken = ask.asleep.map_or(sent, |asleep| sent + Duration::from_millis(asleep));
    if Instant::now() > deadline.max(woken) + LATE {
        truth.breach("answered by the deadline", || format!("request {number} came late: {answer:?}"));
    }
    match answer {
        Ok(response) => judge(&mut truth, &asked, number, &response),
        Err(error) => excuse(&mut truth, &asked, number, &error),
    }
    truth.ends(number);
}

fn request(asked: &Request, number: usize) -> InferRequest {
    let ask = &asked.ask;
    let rows = asked.first..asked.first + ask.rows.len();
    let data: Vec<f32> = rows.map(values).flat_map(|(first, second)| [first as f32, second as f32]).collect();
    let mut parameters = Parameters::new();
    if let Some(timeout) = ask.timeout {
        parameters.insert("timeout".into(), (timeout * 1000).into());
    }
    if ask.exact {
        parameters.insert("parm_accept".into(), "exact".into());
    }
    if let Some(share) = ask.share {
        parameters.insert("parm_accept".into(), Parameter::Double(f64::from(share) / 1000.0));
    }
    if ask.priority > 0 {
        parameters.insert("priority".into(), u64::from(ask.priority).into());
    }
    if let Some(bias) = ask.bias {
        parameters.insert("bias".into(), u64::from(bias).into());
    }
    let output = |name: &str| {
        let shift =
            ask.shift.filter(|_| name == "y").map(|shift| ("shift".to_owned(), u64::from(shift).into()));
        RequestedOutput { name: name.into(), parameters: shift.into_iter().collect() }
    };
    let outputs = match (ask.wanted, ask.shift) {
        (Wanted::All, None) => Vec::new(),
        (Wanted::All, Some(_)) => vec![output("y"), output("z")],
        (Wanted::Y, _) => vec![output("y")],
        (Wanted::Z, _) => vec![output("z")],
    };
    let version = ask.version.map(|version| version.to_string());
    InferRequest {
        model: ModelRef { name: Model::Asked(ask.model).name(), version },
        id: format!("r{number}"),
        parameters,
        inputs: vec![NamedTensor::new(
            "x",
            Tensor::from_f32([ask.rows.len(), 2].as_slice(), &data).expect("two numbers a row"),
        )],
        outputs,
    }
}

/// Checks that an answer belongs to the request and matches it.
fn judge(truth: &mut Truth, asked: &Request, number: usize, response: &InferResponse) {
    let ask = &asked.ask;
    if response.id != format!("r{number}") {
        truth.breach("answers go to their requests", || format!("request {number} got {}", response.id));
    }
    let names: Vec<&str> = response.outputs.iter().map(|output| output.name.as_str()).collect();
    let wanted = match ask.wanted {
        Wanted::All => vec!["y", "z"],
        Wanted::Y => vec!["y"],
        Wanted::Z => vec!["z"],
    };
    if names != wanted {
        truth.breach("answers match their requests", || {
            format!("request {number} wanted {wanted:?}, got {names:?}")
        });
    }
    let text =
        |name: &str| response.parameters.get(name).and_then(|value| value.as_str()).unwrap_or_default();
    let worst = text("parm_outcome");
    let each = text("parm_outcomes");
    let outcomes: Vec<&str> = match each.is_empty() {
        true => vec![worst; ask.rows.len()],
        false => each.split(',').collect(),
    };
    if ask.exact && outcomes.iter().any(|outcome| !matches!(*outcome, "exact" | "hedged")) {
        truth.breach("clients of exact answers get no approximation", || {
            format!("request {number}: {outcomes:?}")
        });
    }
    let guilty = ask.rows.iter().any(|guilt| *guilt != Guilt::Good);
    if guilty && outcomes.iter().all(|outcome| matches!(*outcome, "exact" | "hedged")) {
        truth.breach("rows that every instance fails get no prediction", || {
            format!("request {number}: {response:?}")
        });
    }
    if truth.lied {
        return;
    }
    let version: u8 = response.model_version.parse().unwrap_or(1);
    if ask.version.is_some_and(|asked| asked != version) {
        truth.breach("answers match their requests", || format!("request {number}: version {version}"));
    }
    for output in &response.outputs {
        let had = output.tensor.as_f32().map(|values| values.to_vec()).unwrap_or_default();
        let more = f32::from(ask.bias.unwrap_or(0)) + shifted(ask.shift.unwrap_or(0).into());
        for (place, outcome) in outcomes.iter().enumerate() {
            let x = values(asked.first + place).0 as f32;
            let expected = match (*outcome, output.name.as_str()) {
                ("backup" | "stand-in", "y") => x * factor(Model::Cheap, 1) + more,
                (_, "y") => x * factor(Model::Asked(ask.model), version) + more,
                _ => -x,
            };
            let tolerance = if *outcome == "reconstructed" { 0.5 + 1e-4 * expected.abs() } else { 0.0 };
            let got = had.get(place * 2).copied().unwrap_or(f32::NAN);
            // NaN is not close to any number.
            if got.is_nan() || (got - expected).abs() > tolerance {
                let name = output.name.clone();
                truth.breach("rows get their own answers", || {
                    format!("request {number}, row {place}, {outcome} {name}: {got}, not {expected} (x is {x}, {ask:?})")
                });
            }
        }
    }
}

/// Checks that a failure has a reason.
fn excuse(truth: &mut Truth, asked: &Request, number: usize, error: &Error) {
    let ask = &asked.ask;
    if ask.rows.iter().any(|guilt| *guilt != Guilt::Good) || truth.is_in_flux(ask.model, asked.sent) {
        return;
    }
    let own = asked.first..asked.first + ask.rows.len();
    let rows = truth.rows[own].to_vec();
    let told = |why: &str| format!("request {number} ({ask:?}) failed though {why}: {error}; {rows:?}");
    match error.code() {
        Code::InvalidArgument => truth.breach("no request is rejected for another", || told("it is valid")),
        Code::NotFound => {
            if truth.could_be_answered(asked) {
                truth.breach("models stay known", || told("its model is served"));
            }
        }
        // The dispatcher's own schedules say when a query may be rejected, and when it may fail.
        Code::Overloaded | Code::DeadlineExceeded => {}
        _ if matches!(error, Error::NoInstance { .. }) => {
            if truth.could_be_answered(asked) {
                truth.breach("instances stay known", || told("an instance is available"));
            }
        }
        _ => {
            let failed = rows.iter().any(|row| row.faults > 0);
            let beside = rows.iter().any(|row| row.neighbours > 0);
            if !failed && beside && !truth.once {
                truth.breach("no query fails through another client's row", || {
                    told("only other rows of its batch failed")
                });
            }
        }
    }
}

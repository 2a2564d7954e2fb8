//! What a request asks for beside its prediction: until when, how urgently, and whether an approximation will do.

use std::time::Duration;

use parm_protocol::{Context, Error, Parameter, Parameters};

use crate::config::Requests;
use crate::dispatch::Accept;

/// Parameters that end here; all others travel on to the instance.
const OURS: [&str; 3] = ["timeout", "priority", "parm_accept"];

/// The terms of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// How long it may take from now on.
    pub(crate) remaining: Duration,
    /// 0 is the default, 1 the most urgent.
    pub(crate) priority: u8,
    pub(crate) accept: Accept,
}

impl Terms {
    /// Reads a request's terms. The deadline is the earliest of the `timeout` parameter's (microseconds from arrival),
    /// the transport's, and the server's bound.
    pub(crate) fn read(parameters: &Parameters, context: &Context, limits: &Requests) -> Result<Self, Error> {
        // The runtime's time, which tests hold still; otherwise it is the system's.
        let now = tokio::time::Instant::now().into_std();
        let asked = timeout(parameters)?.map(|timeout| context.arrived + timeout);
        let wanted = match (asked, context.deadline) {
            (Some(asked), Some(transport)) => asked.min(transport),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => context.arrived + limits.default_deadline,
        };
        let deadline = wanted.min(context.arrived + limits.max_deadline);
        Ok(Self {
            remaining: deadline.saturating_duration_since(now),
            priority: priority(parameters)?,
            accept: accept(parameters)?,
        })
    }
}

/// The parameters that an instance should see.
pub(crate) fn forwarded(mut parameters: Parameters) -> Parameters {
    if !parameters.is_empty() {
        parameters.retain(|name, _| !OURS.contains(&name.as_str()));
    }
    parameters
}

fn timeout(parameters: &Parameters) -> Result<Option<Duration>, Error> {
    let Some(value) = parameters.get("timeout") else { return Ok(None) };
    let micros = value.as_u64().ok_or_else(|| malformed("timeout", value, "a number of microseconds"))?;
    // More than a century is no deadline, and could not be added to a clock.
    Ok(Some(Duration::from_micros(micros.min(1 << 51))))
}

/// Urgencies beyond the last are the last: Triton's range is wider than anybody's use of it.
fn priority(parameters: &Parameters) -> Result<u8, Error> {
    let Some(value) = parameters.get("priority") else { return Ok(0) };
    let priority =
        value.as_u64().ok_or_else(|| malformed("priority", value, "a number, 1 being the most urgent"))?;
    Ok(u8::try_from(priority).unwrap_or(u8::MAX))
}

fn accept(parameters: &Parameters) -> Result<Accept, Error> {
    let Some(value) = parameters.get("parm_accept") else { return Ok(Accept::Any) };
    match value.as_str() {
        Some("any") => Ok(Accept::Any),
        Some("exact") => Ok(Accept::Exact),
        _ => Err(malformed("parm_accept", value, "'any' or 'exact'")),
    }
}

fn malformed(name: &str, value: &Parameter, wanted: &str) -> Error {
    Error::Malformed { message: format!("parameter '{name}' is {value:?}, it should be {wanted}") }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use parm_protocol::Transport;

    use super::*;

    fn read(parameters: &[(&str, Parameter)], transport: Option<Duration>) -> Result<Terms, Error> {
        let arrived = Instant::now();
        let deadline = transport.map(|after| arrived + after);
        let context = Context { arrived, deadline, transport: Transport::Http, traceparent: None };
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Terms::read(&parameters, &context, &Requests::default())
    }

    #[test]
    fn the_earliest_deadline_counts() {
        let timeout = |micros: u64| ("timeout", Parameter::Uint64(micros));
        let second = Duration::from_secs(1);
        // (parameters, transport's deadline, most that may remain)
        let cases = [
            (vec![], None, 10 * second),
            (vec![timeout(2_000_000)], None, 2 * second),
            (vec![timeout(2_000_000)], Some(second), second),
            (vec![timeout(2_000_000)], Some(3 * second), 2 * second),
            (vec![], Some(30 * second), 30 * second),
            (vec![timeout(u64::MAX)], None, 120 * second),
            (vec![timeout(0)], None, Duration::ZERO),
        ];
        for (parameters, transport, most) in cases {
            let terms = read(&parameters, transport).unwrap();
            assert!(terms.remaining <= most, "{parameters:?} {transport:?}: {terms:?}");
            assert!(terms.remaining + 20 * second > most, "{parameters:?} {transport:?}: {terms:?}");
        }
    }

    #[test]
    fn nonsense_is_malformed_and_names_the_parameter() {
        for name in ["timeout", "priority", "parm_accept"] {
            let error = read(&[(name, Parameter::Bool(true))], None).unwrap_err();
            assert!(matches!(&error, Error::Malformed { message } if message.contains(name)), "{error}");
        }
        let terms = read(&[("priority", 1000u64.into()), ("parm_accept", "exact".into())], None).unwrap();
        assert_eq!((terms.priority, terms.accept), (255, Accept::Exact));
    }

    #[test]
    fn only_parameters_of_others_travel_on() {
        let mut all = Parameters::new();
        all.insert("timeout".into(), 5u64.into());
        all.insert("sequence_id".into(), 7u64.into());
        assert_eq!(forwarded(all).into_keys().collect::<Vec<_>>(), ["sequence_id"]);
    }
}

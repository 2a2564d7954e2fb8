//! Terms of a request: deadline, priority, accepted approximation, and the share that pays.
//!
//! Sequences are not supported. A stateful model needs the requests of a sequence at one instance, each once and in
//! order. Requests here are balanced, split by rows, hedged and mixed by codes, so answers would be wrong without an
//! error. Pinning sequences to instances would disable all of that, so such requests are rejected.

use std::time::Duration;

use parm_dispatcher::{Accept, ShareKey, Time};
use parm_protocol::fleet::{ROWS, SHARE};
use parm_protocol::{Context, Error, InferRequest, Parameter, Parameters, validate};
use parm_shares::{Asked, Refusal, Table};

use super::clock::Clock;
use crate::config::Requests;

/// The parameter that says which answers a client accepts.
pub(crate) const ACCEPT: &str = "parm_accept";

/// Parameters that are not forwarded to the instance. It would reject some that jobs have of their own, by no fault of its own.
const OURS: [&str; 5] = ["timeout", "priority", ACCEPT, SHARE, ROWS];

/// The terms of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) deadline: Time,
    /// 0 is the default, 1 the most urgent.
    pub(crate) priority: u8,
    pub(crate) accept: Accept,
    /// The share that pays for it; by default the model's own.
    pub(crate) share: Option<ShareKey>,
}

impl Terms {
    /// Reads a request's terms. The deadline is the earliest of the `timeout` parameter (microseconds from arrival),
    /// the transport's deadline and the server's bound.
    pub(crate) fn read(
        request: &InferRequest,
        context: &Context,
        limits: &Requests,
        shares: &Table,
        clock: &Clock,
    ) -> Result<Self, Error> {
        let parameters = &request.parameters;
        validate::reject_sequences(parameters)?;
        let asked = timeout(parameters)?.map(|timeout| context.arrived + timeout);
        let wanted = match (asked, context.deadline) {
            (Some(asked), Some(transport)) => asked.min(transport),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => context.arrived + limits.default_deadline,
        };
        let deadline = wanted.min(context.arrived + limits.max_deadline);
        Ok(Self {
            deadline: clock.time_of(deadline),
            priority: priority(parameters)?,
            accept: accept(parameters)?,
            share: charged(request, context, shares)?,
        })
    }
}

/// Removes the parameters that instances should not see.
pub(crate) fn forwarded(mut parameters: Parameters) -> Parameters {
    if !parameters.is_empty() {
        parameters.retain(|name, _| !OURS.contains(&name.as_str()));
    }
    parameters
}

fn timeout(parameters: &Parameters) -> Result<Option<Duration>, Error> {
    let Some(value) = parameters.get("timeout") else { return Ok(None) };
    let micros = value.as_u64().ok_or_else(|| malformed("timeout", value, "a number of microseconds"))?;
    // Bounded to about a century, because more could not be added to a clock. As in Triton, 0 means the default.
    Ok((micros > 0).then(|| Duration::from_micros(micros.min(1 << 51))))
}

/// Priorities beyond the last count as the last: Triton's range is wider.
fn priority(parameters: &Parameters) -> Result<u8, Error> {
    let Some(value) = parameters.get("priority") else { return Ok(0) };
    let priority =
        value.as_u64().ok_or_else(|| malformed("priority", value, "a number, with 1 as the most urgent"))?;
    Ok(u8::try_from(priority).unwrap_or(u8::MAX))
}

fn accept(parameters: &Parameters) -> Result<Accept, Error> {
    let Some(value) = parameters.get(ACCEPT) else { return Ok(Accept::Any) };
    match value.as_str() {
        Some("any") => Ok(Accept::Any),
        Some("exact") => Ok(Accept::Exact),
        _ => share(value).ok_or_else(|| {
            malformed(ACCEPT, value, "'any', 'exact', or a share of approximate answers such as 0.01")
        }),
    }
}

fn charged(request: &InferRequest, context: &Context, shares: &Table) -> Result<Option<ShareKey>, Error> {
    let named = match request.parameters.get(SHARE) {
        None => None,
        Some(value) => Some(value.as_str().ok_or_else(|| malformed(SHARE, value, "the name of a share"))?),
    };
    let asked = Asked { model: &request.model.name, key: context.key.as_deref(), share: named };
    let share = shares.charged(asked).map_err(|refusal| {
        let message = refusal.to_string();
        match refusal {
            Refusal::Unknown { .. } => Error::Malformed { message },
            Refusal::Tied { .. } | Refusal::Closed { .. } => Error::WrongShare { message },
        }
    })?;
    Ok(share.map(ShareKey))
}

/// Maximum share of approximate answers in 0..=1, in steps of a thousandth.
fn share(value: &Parameter) -> Option<Accept> {
    let share = match value {
        Parameter::Double(share) => *share,
        Parameter::String(text) => text.parse().ok()?,
        other => other.as_u64()? as f64,
    };
    if !(0.0..=1.0).contains(&share) {
        return None;
    }
    // 0.029 is slightly less in binary.
    Some(match (share * 1000.0 + 1e-6) as u16 {
        0 => Accept::Exact,
        1000.. => Accept::Any,
        thousandths => Accept::AtMost(thousandths),
    })
}

fn malformed(name: &str, value: &Parameter, wanted: &str) -> Error {
    Error::Malformed { message: format!("invalid parameter '{name}': {value}: use {wanted}") }
}

#[cfg(test)]
mod tests {
    use parm_protocol::{ModelRef, Transport};
    use parm_shares::Settings;
    use tokio::time::Instant;

    use super::*;

    fn read(parameters: &[(&str, Parameter)], transport: Option<Duration>) -> Result<Terms, Error> {
        let arrived = Instant::now();
        let deadline = transport.map(|after| arrived + after);
        let context = Context { deadline, ..Context::new(arrived, Transport::Http) };
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let (model, id) = (ModelRef::latest("m"), String::new());
        let request = InferRequest { model, id, parameters, inputs: Vec::new(), outputs: Vec::new() };
        Terms::read(
            &request,
            &context,
            &Requests::default(),
            &Table::new(&Settings::default()),
            &Clock::start(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn earliest_deadline_counts() {
        let timeout = |micros: u64| ("timeout", Parameter::Uint64(micros));
        let second = Duration::from_secs(1);
        // (parameters, transport's deadline, what remains)
        let cases = [
            (vec![], None, 10 * second),
            (vec![timeout(2_000_000)], None, 2 * second),
            (vec![timeout(2_000_000)], Some(second), second),
            (vec![timeout(2_000_000)], Some(3 * second), 2 * second),
            (vec![], Some(30 * second), 30 * second),
            (vec![timeout(u64::MAX)], None, 120 * second),
            (vec![timeout(0)], None, 10 * second),
            (vec![timeout(0)], Some(second), second),
        ];
        for (parameters, transport, remaining) in cases {
            let terms = read(&parameters, transport).unwrap();
            assert_eq!(terms.deadline, Time::ZERO + remaining, "{parameters:?} {transport:?}");
        }
    }

    #[test]
    fn invalid_parameter_error_names_the_parameter() {
        for name in ["timeout", "priority", "parm_accept", "parm_share"] {
            let error = read(&[(name, Parameter::Bool(true))], None).unwrap_err();
            assert!(matches!(&error, Error::Malformed { message } if message.contains(name)), "{error}");
        }
        let terms = read(&[("priority", 1000u64.into()), ("parm_accept", "exact".into())], None).unwrap();
        assert_eq!((terms.priority, terms.accept), (255, Accept::Exact));
    }

    #[test]
    fn share_of_approximate_answers_is_read() {
        let check = |value: Parameter, accept| {
            let terms = read(&[("parm_accept", value.clone())], None);
            assert_eq!(terms.ok().map(|terms| terms.accept), accept, "{value:?}");
        };
        check("0.01".into(), Some(Accept::AtMost(10)));
        check(Parameter::Double(0.029), Some(Accept::AtMost(29)));
        check("0.0004".into(), Some(Accept::Exact));
        check(0u64.into(), Some(Accept::Exact));
        check(1u64.into(), Some(Accept::Any));
        let error = read(&[("parm_accept", "exakt".into())], None).unwrap_err().to_string();
        assert!(error.contains("invalid parameter 'parm_accept': \"exakt\": use 'any', 'exact'"), "{error}");
        for nonsense in ["-0.1", "1.5", "NaN", "some"] {
            check(nonsense.into(), None);
        }
    }

    #[test]
    fn sequence_is_rejected_with_advice() {
        for (name, value) in [
            ("sequence_id", Parameter::Uint64(7)),
            ("sequence_id", "session-7".into()),
            ("sequence_start", Parameter::Bool(true)),
            ("sequence_end", Parameter::Bool(true)),
        ] {
            let error = read(&[(name, value)], None).unwrap_err();
            let helps = |message: &str| message.contains(name) && message.contains("send them to");
            assert!(matches!(&error, Error::Malformed { message } if helps(message)), "{error}");
        }
        let none = [
            ("sequence_id", Parameter::Uint64(0)),
            ("sequence_id", "".into()),
            ("sequence_start", Parameter::Bool(false)),
        ];
        for (name, value) in none {
            assert!(read(&[(name, value.clone())], None).is_ok(), "{name} {value:?}");
        }
    }
}

//! Requests of a sequence, which stateful models take.

use crate::{Error, Parameter, Parameters};

/// Parameters that only stateful models support.
const OF_SEQUENCES: [&str; 3] = ["sequence_id", "sequence_start", "sequence_end"];

/// Rejects sequences. Clients that always send these parameters use 0, an empty string or false for none.
pub fn reject(parameters: &Parameters) -> Result<(), Error> {
    if parameters.is_empty() {
        return Ok(());
    }
    let means_one = |value: &Parameter| match value {
        Parameter::Bool(value) => *value,
        Parameter::String(value) => !value.is_empty(),
        number => number.as_u64() != Some(0),
    };
    let named = OF_SEQUENCES.into_iter().find(|name| parameters.get(*name).is_some_and(means_one));
    named.map_or(Ok(()), |name| {
        let message = format!(
            "parameter '{name}' is for a stateful model, which needs every request of a sequence once and at one \
             instance; parm balances and repeats them: send them to the model's server itself"
        );
        Err(Error::Malformed { message })
    })
}

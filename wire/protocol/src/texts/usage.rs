//! The number of tokens that a text model read, a parameter of its responses.
//!
//! A worker lists the tokens of each row, special ones included and padding not. A frontend lists those of a request's rows
//! from the jobs that answered them, which may be of different instances and of stand-ins.

use crate::{InferResponse, Parameter, Parameters};

/// The response parameter: numbers in row order, with commas.
const TOKENS: &str = "parm_tokens";

/// Sets the tokens of each row.
pub fn set_tokens(parameters: &mut Parameters, rows: impl Iterator<Item = u64>) {
    let listed = rows.map(|tokens| tokens.to_string()).collect::<Vec<_>>().join(",");
    parameters.insert(TOKENS.into(), Parameter::String(listed));
}

/// The tokens of each row; `None` if the server did not count them.
pub fn tokens(parameters: &Parameters) -> Option<Vec<u64>> {
    parameters.get(TOKENS)?.as_str()?.split(',').map(|number| number.parse().ok()).collect()
}

/// The tokens of all rows, 0 if the server did not count them.
pub(super) fn total(response: &InferResponse) -> u64 {
    tokens(&response.parameters).into_iter().flatten().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_were_listed() {
        let mut parameters = Parameters::new();
        assert_eq!(tokens(&parameters), None);
        set_tokens(&mut parameters, [5, 0, 7].into_iter());
        assert_eq!(parameters[TOKENS].as_str(), Some("5,0,7"));
        assert_eq!(tokens(&parameters), Some(vec![5, 0, 7]));
        for invalid in ["", "5,", "-1", "many"] {
            parameters.insert(TOKENS.into(), invalid.into());
            assert_eq!(tokens(&parameters), None, "{invalid}");
        }
    }
}

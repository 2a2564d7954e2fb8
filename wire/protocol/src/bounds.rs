//! What one request may be made of, however it came.
//!
//! A body's size says little about what it becomes: an empty tensor takes two bytes in a message and some three hundred in
//! memory, a JSON number two and eight, a parameter five and a hundred. With each kind of part bounded, whatever a body
//! holds beside its tensors' bytes is bounded too, and those may not exceed the bound on the body: a request costs a few
//! times its own size, not a hundred times. The bounds on parts are the protocol's and no settings: they are far beyond
//! what models have, and two servers that differ in them would refuse each other's requests.

use crate::{Error, InferRequest, Parameter, Parameters};

/// Inputs that one request may have, and outputs, each; models have a handful.
pub const MOST_TENSORS: usize = 4096;

/// Parameters that one request may have, those of its tensors included.
pub const MOST_PARAMETERS: usize = 1024;

/// Bytes of names, ids and parameters that one request may have: they are copied, and passed on with every row.
pub const MOST_TEXT_BYTES: usize = 1 << 20;

/// Dimensions that one tensor may have; engines stop at eight to sixty-four.
pub const MOST_DIMENSIONS: usize = 64;

/// Counts the parts of a request or answer while it is read.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    parameters: usize,
    text: usize,
}

impl Parts {
    /// One more in a list of `what`, which has `count` already.
    pub fn tensor(count: usize, what: &str) -> Result<(), Error> {
        match count {
            0..MOST_TENSORS => Ok(()),
            _ => Err(beyond(format!("{MOST_TENSORS} {what}"), "split the request")),
        }
    }

    /// One more dimension of a tensor that has `count` already.
    pub fn dimension(count: usize) -> Result<(), Error> {
        match count {
            0..MOST_DIMENSIONS => Ok(()),
            _ => Err(beyond(format!("{MOST_DIMENSIONS} dimensions of a tensor"), "flatten it")),
        }
    }

    /// So many parameters more, or an error that names the bound.
    pub fn parameters(&mut self, more: usize) -> Result<(), Error> {
        self.parameters = self.parameters.saturating_add(more);
        match self.parameters {
            0..=MOST_PARAMETERS => Ok(()),
            _ => Err(beyond(format!("{MOST_PARAMETERS} parameters"), "send data as tensors")),
        }
    }

    /// So many bytes of names, ids and parameters more, likewise.
    pub fn text(&mut self, more: usize) -> Result<(), Error> {
        self.text = self.text.saturating_add(more);
        match self.text {
            0..=MOST_TEXT_BYTES => Ok(()),
            _ => {
                let most = format!("{MOST_TEXT_BYTES} bytes of names, ids and parameters");
                Err(beyond(most, "send data as tensors"))
            }
        }
    }
}

fn beyond(most: String, instead: &str) -> Error {
    Error::Malformed { message: format!("more than the {most} that one request may have: {instead}") }
}

/// Room for the bytes of a request's tensors where these are not the body's own.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    limit: usize,
    left: usize,
}

impl Room {
    /// At most so many bytes, all tensors together.
    pub fn of(limit: usize) -> Self {
        Self { limit, left: limit }
    }

    /// So many bytes less, or the refusal.
    pub fn take(&mut self, bytes: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| self.refusal(bytes))?;
        Ok(())
    }

    /// The error of a request that wants so many bytes more than there is room for.
    pub fn refusal(&self, bytes: usize) -> Error {
        let bytes = (self.limit - self.left).saturating_add(bytes);
        Error::TensorsTooLarge { bytes, limit: self.limit }
    }
}

impl Default for Room {
    /// Whatever the body says.
    fn default() -> Self {
        Self::of(usize::MAX)
    }
}

/// About how many bytes a request takes in memory.
pub fn weight(request: &InferRequest) -> usize {
    /// A parameter's place in its map, with the room that the map leaves free.
    const ENTRY: usize = 2 * (size_of::<String>() + size_of::<Parameter>());
    let text = |parameters: &Parameters| -> usize {
        let value = |value: &Parameter| ENTRY + value.as_str().map_or(0, str::len);
        parameters.iter().map(|(name, it)| name.len() + value(it)).sum()
    };
    let inputs = request.inputs.iter().map(|input| {
        let data = input.tensor.data().len() + size_of_val(input.tensor.shape());
        size_of_val(input) + input.name.len() + data + text(&input.parameters)
    });
    let outputs = request
        .outputs
        .iter()
        .map(|output| size_of_val(output) + output.name.len() + text(&output.parameters));
    size_of_val(request) + request.id.len() + text(&request.parameters) + inputs.chain(outputs).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelRef, NamedTensor, RequestedOutput, Tensor};

    #[test]
    fn what_is_beyond_a_bound_is_told_the_bound() {
        let words = |outcome: Result<(), Error>| outcome.unwrap_err().to_string();
        assert_eq!(Parts::tensor(MOST_TENSORS - 1, "inputs"), Ok(()));
        assert!(
            words(Parts::tensor(MOST_TENSORS, "inputs"))
                .contains("more than the 4096 inputs that one request")
        );
        assert_eq!(Parts::dimension(MOST_DIMENSIONS - 1), Ok(()));
        assert!(words(Parts::dimension(MOST_DIMENSIONS)).contains("64 dimensions"));
        let mut parts = Parts::default();
        assert_eq!((parts.parameters(MOST_PARAMETERS), parts.text(MOST_TEXT_BYTES)), (Ok(()), Ok(())));
        assert!(words(parts.parameters(1)).contains("1024 parameters"));
        assert!(words(parts.text(usize::MAX)).contains("1048576 bytes of names"));
        let mut room = Room::of(10);
        assert_eq!(room.take(6), Ok(()));
        assert_eq!(room.take(5), Err(Error::TensorsTooLarge { bytes: 11, limit: 10 }));
        assert!(words(room.take(5)).contains("server.max_body_bytes"));
    }

    #[test]
    fn every_part_of_a_request_weighs() {
        let parameters = Parameters::from([("p".repeat(1000), "v".repeat(1000).as_str().into())]);
        let tensor = Tensor::from_f32([1000].as_slice(), &[0.0; 1000]).unwrap();
        let mut request = InferRequest {
            model: ModelRef::latest("m"),
            id: String::new(),
            parameters: Parameters::new(),
            inputs: vec![],
            outputs: vec![],
        };
        let grown = |request: &InferRequest, before: usize, by: usize| {
            let by_now = weight(request) - before;
            assert!((by..by + 500).contains(&by_now), "{by_now} more, not about {by}");
            weight(request)
        };
        let mut before = weight(&request);
        request.id = "i".repeat(1000);
        before = grown(&request, before, 1000);
        request.parameters = parameters.clone();
        before = grown(&request, before, 2000);
        request.inputs.push(NamedTensor { name: "x".repeat(1000), tensor, parameters: parameters.clone() });
        before = grown(&request, before, 7000);
        request.outputs.push(RequestedOutput { name: "y".repeat(1000), parameters });
        grown(&request, before, 3000);
    }
}

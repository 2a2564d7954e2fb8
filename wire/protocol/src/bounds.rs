//! Bounds on the parts of one request, the same for every transport.
//!
//! The size of a body says little about its size in memory: an empty tensor takes 2 bytes in a message and about 300 in
//! memory, a JSON number 2 and 8, a parameter 5 and 100. With each kind of part bounded, a request costs a few times
//! its own size. The bounds are constants of the protocol, not settings: they are far above what models use, and two
//! servers with different bounds would reject each other's requests.

use crate::{Error, InferRequest, Parameter, Parameters};

/// Most inputs of one request, and most outputs; models have a handful.
pub const MOST_TENSORS: usize = 4096;

/// Most parameters of one request, those of its tensors included.
pub const MOST_PARAMETERS: usize = 1024;

/// Most bytes of names, ids and parameters in one request: they are copied, and passed on with every row.
pub const MOST_TEXT_BYTES: usize = 1 << 20;

/// Most dimensions of one tensor; engines stop at eight to 64.
pub const MOST_DIMENSIONS: usize = 64;

/// Counts the parts of a request or answer while it is read.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    parameters: usize,
    text: usize,
}

impl Parts {
    /// Counts one more in a list of `what`, which has `count` already.
    pub fn tensor(count: usize, what: &str) -> Result<(), Error> {
        match count {
            0..MOST_TENSORS => Ok(()),
            _ => Err(beyond(format!("{MOST_TENSORS} {what}"), "split the request")),
        }
    }

    /// Counts one more dimension of a tensor that has `count` already.
    pub fn dimension(count: usize) -> Result<(), Error> {
        match count {
            0..MOST_DIMENSIONS => Ok(()),
            _ => Err(beyond(format!("{MOST_DIMENSIONS} dimensions of a tensor"), "flatten it")),
        }
    }

    /// Counts `more` parameters. The error names the bound.
    pub fn parameters(&mut self, more: usize) -> Result<(), Error> {
        self.parameters = self.parameters.saturating_add(more);
        match self.parameters {
            0..=MOST_PARAMETERS => Ok(()),
            _ => Err(beyond(format!("{MOST_PARAMETERS} parameters"), "send data as tensors")),
        }
    }

    /// Counts `more` bytes of names, ids and parameters. The error names the bound.
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

/// Memory budget for a request's tensors if their bytes are not the body's own.
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

    /// Takes bytes from the budget, or rejects the request.
    pub fn take(&mut self, bytes: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| self.refusal(bytes))?;
        Ok(())
    }

    /// The error of a request that needs so many bytes more than are left.
    pub fn refusal(&self, bytes: usize) -> Error {
        let bytes = (self.limit - self.left).saturating_add(bytes);
        Error::TensorsTooLarge { bytes, limit: self.limit }
    }
}

impl Default for Room {
    /// No limit.
    fn default() -> Self {
        Self::of(usize::MAX)
    }
}

/// Approximate size of a request in memory, in bytes.
pub fn weight(request: &InferRequest) -> usize {
    /// A parameter's entry in its map, including the map's spare room.
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
    fn weight_counts_every_part_of_a_request() {
        let parameters = Parameters::from([("p".repeat(1000), "v".repeat(1000).as_str().into())]);
        let tensor = Tensor::from_f32([1000].as_slice(), &[0.0; 1000]).unwrap();
        let mut request = InferRequest { model: ModelRef::latest("m"), ..InferRequest::default() };
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

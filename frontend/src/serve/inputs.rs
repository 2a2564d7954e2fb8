//! Inputs of a request, shared by its queries, and the assembly of rows into the inputs of a job.

use std::sync::Arc;

use bytes::Bytes;
use parm_protocol::{
    Error, InferRequest, ModelRef, NamedTensor, OpaqueRequest, Parameters, RequestedOutput, Tensor,
};
use smallvec::SmallVec;

/// Contents of a request, in the model's order.
#[derive(Clone)]
pub(crate) struct Inputs {
    /// The client's id of the request.
    pub(crate) id: String,
    /// Parameters for the instance.
    pub(crate) parameters: Parameters,
    pub(crate) tensors: Vec<NamedTensor>,
    /// Requested outputs; empty means all.
    pub(crate) outputs: Vec<RequestedOutput>,
    /// Number of queries.
    pub(crate) rows: usize,
    /// Turn of the codes whose guards accepted its rows for mixing; 0 without guards.
    pub(crate) guarded_by: u64,
    /// Span of the request.
    pub(crate) span: tracing::Span,
    /// The request itself if it is for an upstream server; `tensors` is then empty.
    pub(crate) opaque: Option<Arc<OpaqueRequest>>,
}

/// Maximum bytes of a sample, which is kept as long as its model is served and is in no budget.
const LARGEST_SAMPLE: usize = 16 << 20;

impl Inputs {
    /// The size of one of its queries for the dispatcher: 256 bytes each of an opaque request. Rows count as equal.
    pub(crate) fn size(&self) -> u32 {
        // Of a client that still sends, those that came until now.
        let bytes = |request: &OpaqueRequest| match &request.stream {
            Some(stream) => stream.held(),
            None => request.body.len(),
        };
        let bytes = self.opaque.as_deref().map_or(0, bytes);
        u32::try_from(bytes / 256).unwrap_or(u32::MAX).max(1)
    }

    /// Whether instances need only its values and requested outputs: then it may share a batch.
    pub(crate) fn is_plain(&self) -> bool {
        self.opaque.is_none()
            && self.parameters.is_empty()
            && self.tensors.iter().all(|input| input.parameters.is_empty())
            && self.outputs.iter().all(|output| output.parameters.is_empty())
    }
}

impl Row {
    /// Copies the row without its client's id and span, and without a reference to the request's bytes. `None` if it
    /// needs its parameters, is too large, or is a request for an upstream server, of which no probe is made.
    pub(crate) fn sample(&self) -> Option<Inputs> {
        let Inputs { tensors, rows, .. } = &*self.inputs;
        let bytes: usize = tensors.iter().map(|input| input.tensor.data().len() / (*rows).max(1)).sum();
        if self.inputs.opaque.is_some() || !self.inputs.is_plain() || bytes > LARGEST_SAMPLE {
            return None;
        }
        let copy = |input: &NamedTensor| {
            let row = run(input, &self.inputs, self.index, 1)?.tensor;
            let data = Bytes::copy_from_slice(row.data());
            Ok(NamedTensor::new(input.name.clone(), Tensor::new(row.datatype(), row.shape(), data)?))
        };
        Some(Inputs {
            id: String::new(),
            parameters: Parameters::new(),
            tensors: tensors.iter().map(copy).collect::<Result<_, Error>>().ok()?,
            outputs: Vec::new(),
            rows: 1,
            guarded_by: 0,
            span: tracing::Span::none(),
            opaque: None,
        })
    }
}

/// One row of a request.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) index: usize,
}

/// The rows of a job, in order.
pub(crate) type JobRows = SmallVec<[Row; 1]>;

/// Builds the request that runs these rows as one batch. A whole request and consecutive rows of one request share
/// their bytes; rows of several requests are copied.
///
/// Rows of unequal lengths are padded with zeros if the model takes that.
pub(crate) fn request(model: &ModelRef, rows: &[Row], longest: Option<usize>) -> Result<InferRequest, Error> {
    let first = rows.first().ok_or(Error::NothingToConcatenate)?;
    let of_one = rows.iter().all(|row| Arc::ptr_eq(&row.inputs, &first.inputs));
    let inputs = &first.inputs;
    let tensors = if of_one && is_run(rows) {
        inputs
            .tensors
            .iter()
            .map(|input| run(input, inputs, first.index, rows.len()))
            .collect::<Result<_, _>>()?
    } else {
        let places = 0..inputs.tensors.len();
        places.map(|place| concatenated(rows, place, of_one, longest)).collect::<Result<_, _>>()?
    };
    Ok(InferRequest {
        model: model.clone(),
        id: if of_one { inputs.id.clone() } else { String::new() },
        parameters: if of_one { inputs.parameters.clone() } else { Parameters::new() },
        inputs: tensors,
        outputs: if of_one { inputs.outputs.clone() } else { wanted_by_any(rows) },
    })
}

/// Whether rows are all of one request, in order.
pub(crate) fn is_whole(rows: &[Row]) -> bool {
    let Some(first) = rows.first() else { return true };
    let of_one = rows.iter().all(|row| Arc::ptr_eq(&row.inputs, &first.inputs));
    of_one && rows.len() == first.inputs.rows && is_run(rows)
}

fn is_run(rows: &[Row]) -> bool {
    rows.windows(2).all(|pair| pair[0].index + 1 == pair[1].index)
}

fn run(input: &NamedTensor, inputs: &Inputs, start: usize, count: usize) -> Result<NamedTensor, Error> {
    if count == inputs.rows {
        return Ok(input.clone());
    }
    let tensor = input.tensor.slice_rows(start, count)?;
    Ok(NamedTensor { name: input.name.clone(), tensor, parameters: input.parameters.clone() })
}

/// Rows that are not consecutive. The tensor keeps its parameters if all rows are `of_one` request. Those that differ in
/// their second dimension get the longest one.
fn concatenated(
    rows: &[Row],
    place: usize,
    of_one: bool,
    longest: Option<usize>,
) -> Result<NamedTensor, Error> {
    let shape = |row: &Row| row.inputs.tensors[place].tensor.shape().get(1).copied();
    let longest = longest.filter(|_| rows.iter().any(|row| shape(row) != shape(&rows[0])));
    let part = |row: &Row| {
        let row = row.inputs.tensors[place].tensor.slice_rows(row.index, 1)?;
        longest.map_or(Ok(row.clone()), |longest| row.resized(1, longest))
    };
    let parts: SmallVec<[Tensor; 8]> = rows.iter().map(part).collect::<Result<_, _>>()?;
    let NamedTensor { name, parameters, .. } = &rows[0].inputs.tensors[place];
    let parameters = if of_one { parameters.clone() } else { Parameters::new() };
    Ok(NamedTensor { name: name.clone(), tensor: Tensor::concat_rows(&parts)?, parameters })
}

/// Union of the requested outputs; all outputs if one request wants all.
fn wanted_by_any(rows: &[Row]) -> Vec<RequestedOutput> {
    let mut wanted: Vec<RequestedOutput> = Vec::new();
    for row in rows {
        if row.inputs.outputs.is_empty() {
            return Vec::new();
        }
        for output in &row.inputs.outputs {
            if !wanted.iter().any(|known| known.name == output.name) {
                wanted.push(output.clone());
            }
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(values: &[f32], wanted: &[&str]) -> Arc<Inputs> {
        let tensor = Tensor::from_f32([values.len(), 1].as_slice(), values).unwrap();
        let output = |name: &&str| RequestedOutput { name: (*name).into(), parameters: Parameters::new() };
        Arc::new(Inputs {
            id: "q".into(),
            parameters: Parameters::new(),
            tensors: vec![NamedTensor::new("x", tensor)],
            outputs: wanted.iter().map(output).collect(),
            rows: values.len(),
            guarded_by: 0,
            span: tracing::Span::none(),
            opaque: None,
        })
    }

    fn row(inputs: &Arc<Inputs>, index: usize) -> Row {
        Row { inputs: inputs.clone(), index }
    }

    fn sent(rows: &[Row]) -> InferRequest {
        request(&ModelRef::latest("m"), rows, None).unwrap()
    }

    #[test]
    fn consecutive_rows_of_one_request_share_its_bytes() {
        let all = inputs(&[1., 2., 3.], &[]);
        let base = all.tensors[0].tensor.data().as_ptr();
        for (from, count) in [(0, 3), (1, 2), (2, 1)] {
            let rows: Vec<Row> = (from..from + count).map(|index| row(&all, index)).collect();
            let tensor = &sent(&rows).inputs[0].tensor;
            assert_eq!(tensor.rows(), count);
            assert_eq!(tensor.data().as_ptr(), base.wrapping_add(4 * from));
        }
    }

    #[test]
    fn sample_is_a_copy_of_one_row() {
        let all = inputs(&[1., 2., 3.], &["y"]);
        let sample = row(&all, 1).sample().unwrap();
        let tensor = &sample.tensors[0].tensor;
        assert_eq!((tensor.shape(), tensor.as_f32().unwrap().as_ref()), (&[1, 1][..], &[2.][..]));
        assert_eq!((sample.id.as_str(), sample.rows, sample.outputs.len()), ("", 1, 0));
        let held = all.tensors[0].tensor.data().as_ptr_range();
        assert!(!held.contains(&tensor.data().as_ptr()));
        let parameters = Parameters::from([("sequence_id".to_string(), 7u64.into())]);
        let session = Arc::new(Inputs { parameters, ..Inputs::clone(&all) });
        assert!(row(&session, 0).sample().is_none(), "a row of a sequence must not be sampled");
        let request = OpaqueRequest {
            method: http::Method::POST,
            target: "/predict".parse().unwrap(),
            headers: http::HeaderMap::new(),
            body: Bytes::new(),
            stream: None,
            repeatable: true,
            stall: std::time::Duration::ZERO,
        };
        let opaque = Arc::new(Inputs { opaque: Some(Arc::new(request)), ..Inputs::clone(&all) });
        assert!(row(&opaque, 0).sample().is_none(), "a probe cannot send it");
        let large = inputs(&vec![0.; LARGEST_SAMPLE / 4 + 1], &[]);
        let whole = Arc::new(Inputs { rows: 1, ..Inputs::clone(&large) });
        assert!(row(&whole, 0).sample().is_none() && row(&large, 0).sample().is_some());
    }

    #[test]
    fn rows_of_several_requests_are_concatenated_in_order() {
        let (a, b) = (inputs(&[1., 2.], &["y"]), inputs(&[3.], &["z"]));
        let request = sent(&[row(&b, 0), row(&a, 1), row(&a, 0)]);
        assert_eq!(request.inputs[0].tensor.as_f32().unwrap().as_ref(), &[3., 2., 1.]);
        assert_eq!(request.id, "");
        assert_eq!(request.outputs.iter().map(|output| output.name.as_str()).collect::<Vec<_>>(), ["z", "y"]);
        assert!(sent(&[row(&b, 0), row(&inputs(&[1.], &[]), 0)]).outputs.is_empty());
    }

    #[test]
    fn parameters_of_tensors_stay_when_rows_are_apart() {
        let mut own = Inputs::clone(&inputs(&[1., 2., 3.], &[]));
        own.tensors[0].parameters.insert("content_type".into(), "np".into());
        let own = Arc::new(own);
        for rows in [[0, 1], [0, 2], [1, 0]] {
            let request = sent(&rows.map(|index| row(&own, index)));
            assert_eq!(request.inputs[0].parameters, own.tensors[0].parameters, "{rows:?}");
        }
    }
}

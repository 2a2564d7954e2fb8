//! Inputs of a request, shared by its queries: which rows share a batch, and the assembly of rows into the inputs of a job.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use parm_protocol::{
    Error, InferRequest, ModelMetadata, ModelRef, NamedTensor, OpaqueRequest, Parameters, RequestedOutput,
    Tensor,
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
    /// Rows without an id, parameters and a span, of which all outputs are wanted.
    pub(crate) fn of(tensors: Vec<NamedTensor>, rows: usize) -> Self {
        Self {
            id: String::new(),
            parameters: Parameters::new(),
            tensors,
            outputs: Vec::new(),
            rows,
            guarded_by: 0,
            span: tracing::Span::none(),
            opaque: None,
        }
    }

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
            let row = run(input, self.index, 1)?.tensor;
            let data = Bytes::copy_from_slice(row.data());
            Ok(NamedTensor::new(input.name.clone(), Tensor::new(row.datatype(), row.shape(), data)?))
        };
        Some(Inputs::of(tensors.iter().map(copy).collect::<Result<_, Error>>().ok()?, 1))
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
pub(crate) fn request(model: &ModelRef, rows: &[Row]) -> Result<InferRequest, Error> {
    let first = rows.first().ok_or(Error::NothingToConcatenate)?;
    let of_one = rows.iter().all(|row| Arc::ptr_eq(&row.inputs, &first.inputs));
    let inputs = &first.inputs;
    let tensors = if is_whole(rows) {
        inputs.tensors.clone()
    } else if of_one && is_run(rows) {
        inputs.tensors.iter().map(|input| run(input, first.index, rows.len())).collect::<Result<_, _>>()?
    } else {
        let places = 0..inputs.tensors.len();
        places.map(|place| concatenated(rows, place, of_one)).collect::<Result<_, _>>()?
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

fn run(input: &NamedTensor, start: usize, count: usize) -> Result<NamedTensor, Error> {
    let tensor = input.tensor.slice_rows(start, count)?;
    Ok(NamedTensor { name: input.name.clone(), tensor, parameters: input.parameters.clone() })
}

/// Rows that are not consecutive. The tensor keeps its parameters if all rows are `of_one` request.
fn concatenated(rows: &[Row], place: usize, of_one: bool) -> Result<NamedTensor, Error> {
    let part = |row: &Row| row.inputs.tensors[place].tensor.slice_rows(row.index, 1);
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

/// Names of the shapes of one model's queries: queries of one name may share a batch.
///
/// A name is a hash, so that nothing has to be remembered. If two shapes have the same one, at worst a batch of both cannot be built,
/// and its rows run alone.
pub(crate) struct Shapes {
    /// Whether every dimension but the batch is fixed, so that there is only one shape.
    fixed: bool,
    hasher: RandomState,
    unique: AtomicU32,
}

/// The bit of the names of queries that must not share.
const ALONE: u32 = 1 << 31;

impl Shapes {
    pub(crate) fn of(model: &ModelMetadata, batched: bool) -> Self {
        let skipped = usize::from(batched);
        let fixed = model.inputs.iter().all(|input| input.shape.iter().skip(skipped).all(|&dim| dim >= 0));
        Self { fixed, hasher: RandomState::new(), unique: AtomicU32::new(0) }
    }

    /// The name of the shape of one row of these inputs.
    pub(crate) fn name(&self, inputs: &[NamedTensor], batched: bool) -> u32 {
        if self.fixed {
            return 0;
        }
        let skipped = usize::from(batched);
        let mut hasher = self.hasher.build_hasher();
        inputs.iter().for_each(|input| input.tensor.shape().get(skipped..).hash(&mut hasher));
        hasher.finish() as u32 & !ALONE
    }

    /// A unique name, for a query that must not share. Names repeat after two billion; by then the first are unused.
    pub(crate) fn alone(&self) -> u32 {
        self.unique.fetch_add(1, Ordering::Relaxed) | ALONE
    }
}

#[cfg(test)]
mod tests {
    use parm_protocol::TensorMetadata;

    use super::*;

    fn inputs(values: &[f32], wanted: &[&str]) -> Arc<Inputs> {
        let tensor = Tensor::from_f32([values.len(), 1].as_slice(), values).unwrap();
        let output = |name: &&str| RequestedOutput { name: (*name).into(), parameters: Parameters::new() };
        let of_values = Inputs::of(vec![NamedTensor::new("x", tensor)], values.len());
        Arc::new(Inputs { id: "q".into(), outputs: wanted.iter().map(output).collect(), ..of_values })
    }

    fn row(inputs: &Arc<Inputs>, index: usize) -> Row {
        Row { inputs: inputs.clone(), index }
    }

    fn sent(rows: &[Row]) -> InferRequest {
        request(&ModelRef::latest("m"), rows).unwrap()
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
    fn parameters_of_tensors_stay_when_rows_are_apart() {
        let mut own = Inputs::clone(&inputs(&[1., 2., 3.], &[]));
        own.tensors[0].parameters.insert("content_type".into(), "np".into());
        let own = Arc::new(own);
        for rows in [[0, 1], [0, 2], [1, 0]] {
            let request = sent(&rows.map(|index| row(&own, index)));
            assert_eq!(request.inputs[0].parameters, own.tensors[0].parameters, "{rows:?}");
        }
    }

    fn model(shape: &[i64]) -> ModelMetadata {
        let input = TensorMetadata { name: "x".into(), datatype: "FP32".into(), shape: shape.into() };
        ModelMetadata { inputs: vec![input], ..ModelMetadata::default() }
    }

    fn shaped(shape: &[usize]) -> Vec<NamedTensor> {
        let values = vec![0.0; shape.iter().product()];
        vec![NamedTensor::new("x", Tensor::from_f32(shape, &values).unwrap())]
    }

    #[test]
    fn shape_has_all_dimensions_but_the_batch() {
        let shapes = Shapes::of(&model(&[-1, -1]), true);
        let name = |shape: &[usize]| shapes.name(&shaped(shape), true);
        assert_eq!(name(&[1, 4]), name(&[7, 4]));
        assert_ne!(name(&[1, 4]), name(&[1, 5]));
        assert_ne!(shapes.alone(), shapes.alone());
        let fixed = Shapes::of(&model(&[-1, 4]), true);
        assert_eq!(fixed.name(&shaped(&[1, 4]), true), 0);
        assert_ne!(fixed.alone(), 0);
    }
}

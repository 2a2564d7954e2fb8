//! Everything that can go wrong in this crate.

use std::path::PathBuf;

use parm_encoder::Kind;
use parm_parity_models::onnx;

use crate::data;
use crate::fit::CheckpointError;
use crate::graph::Problem;

/// An error of training. Messages say what to do next.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("{node}: {problem}")]
    Node { node: String, problem: Problem },
    #[error("the graph has {nodes} nodes, more than {limit}: simplify the model, or use it as a black box")]
    TooManyNodes { nodes: usize, limit: usize },
    #[error("output '{output}' is made by no node: export the model again")]
    NoOutput { output: String },
    #[error("'{given}' is no device: use cpu, vulkan, vulkan:N, cuda or cuda:N")]
    UnknownDevice { given: String },
    #[error(
        "this build cannot compute on {device}: build with `cargo build --release --features train,{feature}`"
    )]
    DeviceFeature { device: crate::Device, feature: &'static str },
    #[error(
        "device {device} is not there, {found} of its kind are: check that its driver is installed, or use --device cpu"
    )]
    NoDevice { device: crate::Device, found: usize },
    #[error("input '{input}' is missing: the model takes {wanted} inputs, {given} were given")]
    NoInput { input: String, wanted: usize, given: usize },
    #[error("input '{input}' is given {given:?} where {wanted} is wanted")]
    InputShape { input: String, given: Vec<usize>, wanted: String },
    #[error("output '{output}' holds {actual}, which has no gradient: train on an output of floats")]
    NoGradient { output: String, actual: &'static str },
    #[error("output {at} has shape {actual:?}, its gradient {given:?}")]
    GradientShape { at: usize, actual: Vec<usize>, given: Vec<usize> },
    #[error("the model has no parameter '{name}'")]
    NoParameter { name: String },
    #[error("parameter '{name}' has shape {actual:?}, the new value {given:?}")]
    ParameterShape { name: String, actual: Vec<usize>, given: Vec<usize> },
    #[error("the model has {inputs} inputs: codes are trained for models of one input")]
    OneInput { inputs: usize },
    #[error(
        "the model has {inputs} inputs, the rows hold {given}: give an array for each, in the model's order"
    )]
    Inputs { inputs: usize, given: usize },
    #[error("rows of {given:?} numbers are not as long as those that the model was prepared for")]
    Parts { given: Vec<usize> },
    #[error(
        "a row has classes in {dims:?} dimensions: only models that say one class a row can be trained by labels"
    )]
    ClassDims { dims: Vec<usize> },
    #[error(
        "the model puts out {outputs} numbers a row, {values} are to be predicted: give it an end for them"
    )]
    Outputs { outputs: usize, values: usize },
    #[error("the model has no output of floats: train on one that has")]
    OutputKind,
    #[error(
        "output '{output}' is of whole numbers and made by weights that no other output is made by, so nothing would teach them: let \
         the model put out the scores, too"
    )]
    Untaught { output: String },
    #[error(
        "output '{output}' has the shape {shape:?}: of several outputs each must have a row for each query to be taught"
    )]
    RowsOfOutput { output: String, shape: Vec<usize> },
    #[error("the deployed model cannot be asked: {message}")]
    Teacher { message: String },
    #[error("the run stopped in epoch {epoch} of {epochs}: its checkpoint is written, run it again to go on")]
    Stopped { epoch: u64, epochs: u64 },
    #[error("the loss is no number any more in epoch {epoch}, at step size {rate}: lower the step size")]
    Diverged { epoch: u64, rate: f32 },
    #[error("cannot write '{}': {message}; what was there before is untouched", path.display())]
    Write { path: PathBuf, message: String },
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("the checkpoint '{}' does not fit the networks: remove it to start again", path.display())]
    CheckpointContent { path: PathBuf },
    #[error("code {kind} has no parity models that could be trained: use sum, weighted, tiles or slots")]
    Untrained { kind: Kind },
    #[error("a divergence of sums of predictions means nothing: use the loss mse or huber with the head sum")]
    LossOfSums,
    #[error("{rows} rows where at least {wanted} are wanted: give more data or a smaller k")]
    TooFew { rows: usize, wanted: usize },
    #[error("rows of dimensions {dims:?} are no images: leave augmentation out")]
    NotImages { dims: Vec<usize> },
    #[error(
        "{rows} rows of {classes} classes take more than {limit} bytes: are the labels numbers to predict, or names of rows?"
    )]
    TooManyClasses { rows: usize, classes: usize, limit: u64 },
    #[error("the data has no labels, which a base model learns from: give a file of labels")]
    NoLabels,
    #[error(
        "row {row} has label {label}, the model knows {classes} classes: is it the right file of labels?"
    )]
    Label { row: usize, label: usize, classes: usize },
    #[error(
        "rows of the data are {data:?}, the model wants {model}: prepare the data as the model expects it"
    )]
    RowShape { data: Vec<usize>, model: String },
    #[error("{rows} rows of data but outputs of {outputs} rows: are both of the same set?")]
    OutputRows { rows: usize, outputs: usize },
    #[error("the model says {value} of row {row}: a teacher must give finite numbers")]
    Output { row: usize, value: f32 },
    #[error(
        "the model answers label {agreement:.3} of the rows as they are labelled, no better than chance: is it the \
         right file of labels, in the right order?"
    )]
    WrongLabels { agreement: f64 },
    #[error("no base model is called '{name}': there are {known}")]
    UnknownBase { name: String, known: String },
    #[error("a {name} cannot take rows of {dims:?}: {wanted} are wanted")]
    BaseInput { name: &'static str, dims: Vec<usize>, wanted: &'static str },
    #[error("'{}' is no matrix: {message}", path.display())]
    Matrix { path: PathBuf, message: String },
    #[error("a setting cannot be used: {message}")]
    Setting { message: String },
    #[error(transparent)]
    Code(#[from] parm_encoder::Error),
    #[error(transparent)]
    Evaluation(#[from] crate::evaluate::Mismatch),
    #[error(transparent)]
    Data(#[from] data::Unusable),
    #[error(transparent)]
    Repository(#[from] parm_parity_models::Error),
    #[error(transparent)]
    Onnx(#[from] onnx::Defect),
}

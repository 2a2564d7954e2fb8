//! All errors of this crate.

use std::path::PathBuf;

use parm_encoder::Kind;
use parm_parity_models::onnx;

use crate::data;
use crate::fit::CheckpointError;
use crate::graph::Problem;

/// An error of training. Messages name the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("{node}: {problem}")]
    Node { node: String, problem: Problem },
    #[error("the graph has {nodes} nodes, more than {limit}: simplify the model, or use it as a black box")]
    TooManyNodes { nodes: usize, limit: usize },
    #[error("no node makes output '{output}': export the model again")]
    NoOutput { output: String },
    #[error("'{given}' is not a device: use cpu, vulkan, vulkan:N, cuda or cuda:N")]
    UnknownDevice { given: String },
    #[error(
        "this build cannot compute on {device}: build with `cargo build --release --features train,{feature}`"
    )]
    DeviceFeature { device: crate::Device, feature: &'static str },
    #[error(
        "device {device} is missing, {found} of its kind exist: check that its driver is installed, or use --device cpu"
    )]
    NoDevice { device: crate::Device, found: usize },
    #[error("input '{input}' is missing: the model takes {wanted} inputs but got {given}")]
    NoInput { input: String, wanted: usize, given: usize },
    #[error("input '{input}' takes {wanted} but got {given:?}")]
    InputShape { input: String, given: Vec<usize>, wanted: String },
    #[error("output '{output}' holds {actual}, which has no gradient: use a model with an output of floats")]
    NoGradient { output: String, actual: &'static str },
    #[error("output {at} has shape {actual:?}, its gradient {given:?}")]
    GradientShape { at: usize, actual: Vec<usize>, given: Vec<usize> },
    #[error("the model has no parameter '{name}'")]
    NoParameter { name: String },
    #[error("parameter '{name}' has shape {actual:?}, but the new value has {given:?}")]
    ParameterShape { name: String, actual: Vec<usize>, given: Vec<usize> },
    #[error("the model has {inputs} inputs: codes need a model with one input")]
    OneInput { inputs: usize },
    #[error(
        "the model has {inputs} inputs, the rows have {given}: give one array per input, in the model's order"
    )]
    Inputs { inputs: usize, given: usize },
    #[error("rows of {given:?} numbers differ in length from those that the model was prepared for")]
    Parts { given: Vec<usize> },
    #[error("a row has classes in {dims:?} dimensions: labels can train only models with one class per row")]
    ClassDims { dims: Vec<usize> },
    #[error(
        "the model has {outputs} outputs per row, the data has {values} values: use a model with as many outputs"
    )]
    Outputs { outputs: usize, values: usize },
    #[error("the model has no output of floats: use a model with one")]
    OutputKind,
    #[error(
        "output '{output}' is of whole numbers and made by weights that no other output is made by, so nothing would teach them: let \
         the model put out the scores, too"
    )]
    Untaught { output: String },
    #[error("output '{output}' has shape {shape:?}: with several outputs, each must have one row per query")]
    RowsOfOutput { output: String, shape: Vec<usize> },
    #[error("running the deployed model failed: {message}")]
    Teacher { message: String },
    #[error("the run stopped in epoch {epoch}: its checkpoint is saved, run it again to continue")]
    Stopped { epoch: u64 },
    #[error("the loss became NaN or infinite in epoch {epoch}, at step size {rate}: lower the step size")]
    Diverged { epoch: u64, rate: f32 },
    #[error("cannot write '{}': {message}; an older file is unchanged", path.display())]
    Write { path: PathBuf, message: String },
    #[error(transparent)]
    Grid(#[from] parm_grids::Error),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("the checkpoint '{}' does not fit the networks: remove it to start again", path.display())]
    CheckpointContent { path: PathBuf },
    #[error("code {kind} has no trainable parity models: use sum, weighted, tiles or slots")]
    Untrained { kind: Kind },
    #[error("the loss kl is undefined for sums of predictions: use mse or huber with the head sum")]
    LossOfSums,
    #[error("{rows} rows are fewer than {wanted}: give more data or a smaller k")]
    TooFew { rows: usize, wanted: usize },
    #[error("rows of dimensions {dims:?} are not images: remove the augmentation")]
    NotImages { dims: Vec<usize> },
    #[error(
        "{rows} rows of {classes} classes take more than {limit} bytes: check that labels are classes, not numbers to predict"
    )]
    TooManyClasses { rows: usize, classes: usize, limit: u64 },
    #[error("the data has no labels: base models learn from labels: give a file of labels")]
    NoLabels,
    #[error(
        "row {row} has label {label}, the model has {classes} classes: check that it is the right file of labels"
    )]
    Label { row: usize, label: usize, classes: usize },
    #[error("rows of the data are {data:?}, the model takes {model}: prepare the data accordingly")]
    RowShape { data: Vec<usize>, model: String },
    #[error("{rows} rows of data but outputs of {outputs} rows: use outputs of the same data")]
    OutputRows { rows: usize, outputs: usize },
    #[error("the model's output for row {row} is {value}: a teacher must give finite numbers")]
    Output { row: usize, value: f32 },
    #[error(
        "the model answers label {agreement:.3} of the rows as they are labelled, no better than chance: is it the \
         right file of labels, in the right order?"
    )]
    WrongLabels { agreement: f64 },
    #[error("unknown base model '{name}': use {known}")]
    UnknownBase { name: String, known: String },
    #[error("a {name} cannot take rows of {dims:?}: give {wanted}")]
    BaseInput { name: &'static str, dims: Vec<usize>, wanted: &'static str },
    #[error("'{}' is not a valid matrix: {message}", path.display())]
    Matrix { path: PathBuf, message: String },
    #[error("invalid setting: {message}")]
    Setting { message: String },
    #[error(transparent)]
    Code(#[from] parm_encoder::Error),
    #[error("{what}: {actual} rows instead of {expected}: use the same data and groups")]
    Rows { what: &'static str, expected: usize, actual: usize },
    #[error("{what}: {actual} values per row instead of {expected}: check that it is the right model")]
    Width { what: &'static str, expected: usize, actual: usize },
    #[error("{metric} cannot judge {truth}: choose another metric or other labels")]
    Metric { metric: &'static str, truth: &'static str },
    #[error("'{text}' is not a metric: use top-1 (or another number), iou or absolute-error")]
    NoMetric { text: String },
    #[error("code {kind} takes {expected} parity models but got {actual}")]
    Models { kind: Kind, expected: usize, actual: usize },
    #[error(transparent)]
    Data(#[from] data::Unusable),
    #[error(transparent)]
    Repository(#[from] parm_parity_models::Error),
    #[error(transparent)]
    Onnx(#[from] onnx::Defect),
}

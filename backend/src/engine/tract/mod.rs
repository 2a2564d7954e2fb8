//! tract, the built-in engine: pure Rust without libraries to install. `auto` takes it if there is no ONNX Runtime.
//!
//! *Problem.* tract is fastest and most reliable on graphs whose dimensions are all known, but compiling takes from
//! milliseconds to seconds.
//!
//! *Choice.* The parsed graph is kept, and plans for fixed input shapes are compiled from it ahead of time in
//! [`Model::prepare`], for the shapes of warm-up. Their number is limited; the least recently used one is evicted.
//! Other shapes run on one plan with symbolic dimensions. A plan is compiled while a client waits only where that one is
//! missing or fails.
//!
//! *Rejected.* Compiling for every shape: clients that never repeat a shape would keep the instance compiling.

mod trees;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parm_parity_models::onnx::{self, Limits, Model as File};
use parm_protocol::{DataType, Shape, Tensor};
use tract_onnx::pb::tensor_shape_proto::dimension::Value as Dim;
use tract_onnx::pb::type_proto::{Tensor as ProtoTensor, Value as Kind};
use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use tract_onnx::prelude::{
    DatumType, Framework, InferenceModel, InferenceModelExt, IntoRunnable, IntoTValue, TValue, TVec,
    TractError, TractResult, TypedModel, TypedRunnableModel, tensor1,
};
use tract_onnx::tract_hir::internal::{
    DimFact, GenericFactoid, InferenceFact, ShapeFactoid, Tensor as Native, ToDim,
};

use super::{Declared, Engine, Model, NOT_A_TENSOR, Signature, TRY_ORT, guarded, pack, texts_of};
use crate::{EngineConfig, Error};

/// The engine, with or without graph optimisation.
struct Tract {
    optimises: bool,
}

/// The engine.
pub(super) fn engine() -> Box<dyn Engine> {
    Box::new(Tract { optimises: true })
}

type Runnable = Arc<TypedRunnableModel>;

/// A parsed graph and the plans compiled from it.
#[derive(Clone)]
struct TractModel {
    graph: Arc<InferenceModel>,
    signature: Arc<Signature>,
    /// For any shape; `None` if tract cannot compile the graph with symbolic dimensions.
    general: Option<Runnable>,
    /// For fixed shapes, the most recently used last.
    fixed: Vec<(Vec<Shape>, Runnable)>,
    bound: usize,
    optimises: bool,
    /// Whether its values decide how long a run takes.
    loops: bool,
}

impl Engine for Tract {
    fn platform(&self) -> &'static str {
        "onnx_tract"
    }

    fn load(&self, path: &Path, config: &EngineConfig) -> Result<Box<dyn Model>, Error> {
        let advised = |error: Error, advice: &str| match error {
            Error::Panicked { message } | Error::Run { message } => {
                Error::Load { path: path.into(), message: message + advice }
            }
            error => error,
        };
        let proto = guarded(|| read(path)).map_err(|error| advised(error, TRY_ORT))?;
        let advice = advice(&proto);
        let loaded = guarded(|| TractModel::of(proto, path, config, self.optimises));
        Ok(Box::new(loaded.map_err(|error| match broken(path) {
            Some(broken) => advised(error, broken),
            None => advised(error, &advice),
        })?))
    }

    fn references(&self, config: &EngineConfig) -> Vec<(&'static str, Box<dyn Engine>)> {
        let plain: Box<dyn Engine> = Box::new(Tract { optimises: false });
        let other = super::ort::found(config)
            .ok()
            .and_then(Result::ok)
            .and_then(|library| super::ort::engine(library).ok());
        let other = other.map(|chosen| ("ONNX Runtime", chosen.engine));
        std::iter::once(("tract without graph optimisation", plain)).chain(other).collect()
    }
}

/// Measured: 4.0 ms on tract and 5 us on ONNX Runtime for 40 trees per class.
const TREES: &str =
    "trees run hundreds of times slower on tract than on ONNX Runtime: pip install onnxruntime";

/// Reads a file.
fn read(path: &Path) -> Result<ModelProto, Error> {
    let damaged = |error: TractError| {
        let message = format!("{}: the file is damaged or is not an ONNX model", describe(&error));
        Error::Load { path: path.into(), message }
    };
    let proto = tract_onnx::onnx().proto_model_for_path(path).map_err(damaged)?;
    if proto.graph.is_none() {
        let message = "it has no graph: the file is empty or is not an ONNX model".into();
        return Err(Error::Load { path: path.into(), message });
    }
    Ok(proto)
}

impl TractModel {
    fn of(mut proto: ModelProto, path: &Path, config: &EngineConfig, optimises: bool) -> Result<Self, Error> {
        // Exporters record inner shapes for their own batch size, which do not hold here.
        let onnx = tract_onnx::onnx().with_ignore_value_info(true);
        trees::complete(&mut proto);
        let mut nodes = proto.graph.iter().flat_map(|graph| &graph.node);
        let loops = nodes.any(|node| matches!(&*node.op_type, "Loop" | "Scan"));
        if optimises {
            let mut nodes = proto.graph.iter().flat_map(|graph| &graph.node);
            if nodes.any(|node| node.op_type.starts_with("TreeEnsemble")) {
                tracing::warn!(path = %path.display(), "{TREES}");
            }
        }
        let folder = path.parent().and_then(Path::to_str);
        let parsed = onnx.parse(&proto, folder).map_err(failed)?;
        if !parsed.unresolved_inputs.is_empty() {
            let message = format!("its nodes read {:?}, which no node produces", parsed.unresolved_inputs);
            return Err(Error::Load { path: path.into(), message });
        }
        let graph = parsed.model;
        let general = guarded(|| symbolic(&graph, optimises).map_err(failed));
        if let Err(error) = &general {
            tracing::debug!(path = %path.display(), %error, "no plan for every shape: compiling one for each");
        }
        let signature = declared_signature(path, &proto, general.as_ref().ok().map(|plan| plan.model()))?;
        let (graph, signature) = (Arc::new(graph), Arc::new(signature));
        let mut loaded = Self {
            graph,
            signature,
            general: general.ok(),
            fixed: vec![],
            bound: config.plans.get(),
            optimises,
            loops,
        };
        if loaded.general.is_none() {
            loaded.try_blank(path)?;
        }
        Ok(loaded)
    }

    /// Fails now if tract cannot run the graph at all. If other dimensions than the batch vary, blank inputs may have a
    /// size that the model rejects; then only requests can tell.
    fn try_blank(&mut self, path: &Path) -> Result<(), Error> {
        let shapes = shapes(&self.signature.blank(1)?);
        let inputs = &self.signature.inputs;
        let open = inputs.iter().any(|input| input.shape.iter().skip(1).any(|&dim| dim < 0));
        match guarded(|| self.plan(&shapes).map(drop)) {
            Err(error) if open => {
                tracing::warn!(path = %path.display(), %error, "no plan for inputs of the smallest size");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// The plan for these shapes, compiled on demand.
    fn plan(&mut self, shapes: &[Shape]) -> Result<&Runnable, Error> {
        match self.fixed.iter().position(|(known, _)| known == shapes) {
            Some(at) => self.fixed[at..].rotate_left(1),
            None => {
                let plan = compile(&self.graph, shapes, self.optimises).map_err(failed)?;
                if self.fixed.len() == self.bound {
                    self.fixed.remove(0);
                }
                self.fixed.push((shapes.to_vec(), plan));
            }
        }
        Ok(&self.fixed[self.fixed.len() - 1].1)
    }

    fn run_plan(&self, plan: &Runnable, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let inputs = inputs.iter().map(to_native).collect::<Result<TVec<_>, Error>>()?;
        let outputs = plan.run(inputs).map_err(failed)?;
        outputs
            .into_iter()
            .zip(&self.signature.outputs)
            .map(|(output, declared)| from_native(&output, declared.datatype))
            .collect()
    }
}

impl Model for TractModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        // Some operators only fail at run time without known dimensions: compile a plan then.
        let shapes = shapes(inputs);
        let has_plan = self.fixed.iter().any(|(known, _)| *known == shapes);
        if let Some(general) = self.general.as_ref().filter(|_| !has_plan)
            && let Ok(outputs) = guarded(|| self.run_plan(general, inputs))
        {
            return Ok(outputs);
        }
        let plan = self.plan(&shapes)?.clone();
        self.run_plan(&plan, inputs)
    }

    fn is_steady(&self) -> bool {
        !self.loops
    }

    fn prepare(&mut self, shapes: &[Shape]) -> Result<(), Error> {
        self.plan(shapes).map(drop)
    }

    fn replica(&self) -> Option<Box<dyn Model>> {
        Some(Box::new(self.clone()))
    }
}

/// A plan for any shape: each unknown dimension gets a symbol. The first dimensions, the batch, share one.
fn symbolic(graph: &InferenceModel, optimises: bool) -> TractResult<Runnable> {
    let mut graph = graph.clone();
    for input in 0..graph.inputs.len() {
        let fact = graph.input_fact(input)?.clone();
        let dims: Vec<DimFact> = fact.shape.dims().cloned().collect();
        let named = dims.into_iter().enumerate().map(|(axis, dim)| match dim {
            GenericFactoid::Any if axis == 0 => graph.sym("parm_batch").to_dim().into(),
            GenericFactoid::Any => graph.new_sym_with_prefix("parm_dim").to_dim().into(),
            known => known,
        });
        let shape = ShapeFactoid::closed(named.collect());
        graph.set_input_fact(input, fact.with_shape(shape))?;
    }
    runnable(graph, optimises)
}

fn compile(graph: &InferenceModel, shapes: &[Shape], optimises: bool) -> TractResult<Runnable> {
    let mut graph = graph.clone();
    for (input, shape) in shapes.iter().enumerate() {
        let fact: InferenceFact = graph.input_fact(input)?.clone();
        graph.set_input_fact(input, fact.with_shape(ShapeFactoid::from(shape.iter().copied())))?;
    }
    runnable(graph, optimises)
}

fn runnable(graph: InferenceModel, optimises: bool) -> TractResult<Runnable> {
    match optimises {
        true => graph.into_optimized()?.into_runnable(),
        false => graph.into_typed()?.into_runnable(),
    }
}

fn shapes(inputs: &[Tensor]) -> Vec<Shape> {
    inputs.iter().map(|input| Shape::from(input.shape())).collect()
}

fn failed(error: TractError) -> Error {
    Error::Run { message: describe(&error) }
}

/// The whole chain of tract's errors: outer ones name the node and inner ones the reason.
fn describe(error: &TractError) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Copies a tensor into tract's aligned memory.
fn to_native(tensor: &Tensor) -> Result<TValue, Error> {
    let datatype = native_type(tensor.datatype())?;
    if datatype == DatumType::String {
        let strings = texts_of(tensor)?;
        return Ok(tensor1(&strings).into_shape(tensor.shape()).map_err(failed)?.into_tvalue());
    }
    let mut native = Native::zero_dt(datatype, tensor.shape()).map_err(failed)?;
    if tensor.datatype() == DataType::Bool {
        // Rust's booleans must be 0 or 1; clients may send any byte.
        let truths = native.as_bytes_mut().iter_mut().zip(tensor.data());
        truths.for_each(|(truth, byte)| *truth = u8::from(*byte != 0));
    } else {
        native.as_bytes_mut().copy_from_slice(tensor.data());
    }
    Ok(native.into_tvalue())
}

/// Copies a tensor out, in the datatype that the model declares.
fn from_native(native: &Native, declared: DataType) -> Result<Tensor, Error> {
    let wanted = native_type(declared)?;
    // Shapes computed in the graph are symbolic dimensions in tract; quantised values have a scale.
    let native = native.cast_to_dt(wanted).map_err(failed)?;
    let data = if wanted == DatumType::String {
        let view = native.try_as_plain_ram().map_err(failed)?;
        pack(view.as_slice::<String>().map_err(failed)?)
    } else {
        Bytes::copy_from_slice(native.as_bytes())
    };
    Ok(Tensor::new(declared, native.shape(), data)?)
}

fn native_type(datatype: DataType) -> Result<DatumType, Error> {
    Ok(match datatype {
        DataType::Bool => DatumType::Bool,
        DataType::Uint8 => DatumType::U8,
        DataType::Uint16 => DatumType::U16,
        DataType::Uint32 => DatumType::U32,
        DataType::Uint64 => DatumType::U64,
        DataType::Int8 => DatumType::I8,
        DataType::Int16 => DatumType::I16,
        DataType::Int32 => DatumType::I32,
        DataType::Int64 => DatumType::I64,
        DataType::Fp16 => DatumType::F16,
        DataType::Fp32 => DatumType::F32,
        DataType::Fp64 => DatumType::F64,
        DataType::Bytes => DatumType::String,
        DataType::Bf16 => {
            return Err(Error::Run { message: "tract has no BF16: use engine 'ort'".into() });
        }
    })
}

/// Inputs without an initialiser, and outputs; `typed` has output shapes that the file omits.
fn declared_signature(
    path: &Path,
    proto: &ModelProto,
    typed: Option<&TypedModel>,
) -> Result<Signature, Error> {
    let missing = || Error::Load { path: path.into(), message: "the file has no graph".into() };
    let graph = proto.graph.as_ref().ok_or_else(missing)?;
    let given = |input: &&ValueInfoProto| !graph.initializer.iter().any(|tensor| tensor.name == input.name);
    let inputs = graph.input.iter().filter(given).map(|input| {
        declared(path, input)?.ok_or_else(|| Error::Load {
            path: path.into(),
            message: format!("input '{}' declares no shape: export it with one", input.name),
        })
    });
    let outputs = graph.output.iter().enumerate().map(|(at, output)| {
        let declared = declared(path, output)?;
        let inferred = || Declared {
            name: output.name.clone(),
            datatype: tensor_type(output).and_then(datatype).unwrap_or(DataType::Fp32),
            shape: typed.map(|model| inferred_shape(model, at)).unwrap_or_default(),
        };
        Ok::<_, Error>(declared.unwrap_or_else(inferred))
    });
    Ok(Signature { inputs: inputs.collect::<Result<_, _>>()?, outputs: outputs.collect::<Result<_, _>>()? })
}

/// `None` if the file declares no shape.
fn declared(path: &Path, value: &ValueInfoProto) -> Result<Option<Declared>, Error> {
    let unknown = |found: String| Error::TensorType { path: path.into(), tensor: value.name.clone(), found };
    let Some(tensor) = tensor_type(value) else {
        return Err(unknown(NOT_A_TENSOR.into()));
    };
    let datatype = datatype(tensor).ok_or_else(|| unknown(format!("of type {}", tensor.elem_type)))?;
    let Some(shape) = &tensor.shape else {
        return Ok(None);
    };
    let dims = shape.dim.iter().map(|dim| match dim.value {
        Some(Dim::DimValue(size)) if size >= 0 => size,
        _ => -1,
    });
    Ok(Some(Declared { name: value.name.clone(), datatype, shape: dims.collect() }))
}

fn tensor_type(value: &ValueInfoProto) -> Option<&ProtoTensor> {
    value.r#type.as_ref().and_then(|kind| kind.value.as_ref()).map(|value| match value {
        Kind::TensorType(tensor) => tensor,
    })
}

fn datatype(tensor: &ProtoTensor) -> Option<DataType> {
    onnx::DataType::try_from(tensor.elem_type).ok()?.to_protocol()
}

fn inferred_shape(model: &TypedModel, output: usize) -> Vec<i64> {
    let Ok(fact) = model.output_fact(output) else {
        return Vec::new();
    };
    fact.shape.iter().map(|dim| dim.to_i64().unwrap_or(-1)).collect()
}

/// The advice on a file that no engine can load.
const BROKEN: &str = ": the file is broken: parm models inspect shows its faults";

/// Returns the end of an error about a broken file, such as one without its external data or with a cycle.
fn broken(path: &Path) -> Option<&'static str> {
    let file = File::open(path, &Limits::default()).ok()?;
    // Another engine may know more types of elements.
    let is_known = |finding: &str| !finding.contains("unknown element type");
    let findings = file.inspect().findings;
    let mut faults = findings.iter().filter(|finding| finding.is_fatal).map(ToString::to_string);
    faults.any(|fault| is_known(&fault)).then_some(BROKEN)
}

/// Returns the end of an error about this model.
fn advice(proto: &ModelProto) -> String {
    let is_own = |node: &NodeProto| {
        proto.functions.iter().any(|function| function.name.as_deref() == Some(&*node.op_type))
    };
    let known = ["ai.onnx", "com.microsoft", "org.pytorch."];
    let is_unknown = |node: &NodeProto| {
        !node.domain.is_empty()
            && !known.iter().any(|domain| node.domain.starts_with(domain))
            && !is_own(node)
    };
    match proto.graph.as_ref().and_then(|graph| find(graph, &is_unknown)) {
        None => TRY_ORT.to_owned(),
        Some(NodeProto { op_type, domain, .. }) => {
            format!(
                ": operator '{op_type}' of the domain '{domain}' is not one of ONNX: export the model without it"
            )
        }
    }
}

/// Returns the first such node of a graph and the graphs in its attributes.
fn find<'a>(graph: &'a GraphProto, is: &impl Fn(&NodeProto) -> bool) -> Option<&'a NodeProto> {
    let inner = |attribute: &'a AttributeProto| attribute.g.iter().chain(&attribute.graphs);
    graph.node.iter().find_map(|node| {
        if is(node) {
            Some(node)
        } else {
            node.attribute.iter().flat_map(inner).find_map(|graph| find(graph, is))
        }
    })
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Value};

    use super::*;

    /// The error of a model with these nodes, of which the last has the output.
    fn error_of(nodes: impl FnOnce(&mut Builder, &str) -> String) -> String {
        let mut graph = Builder::new("m", 1);
        let x = graph.input(Value::batch_of_f32("x", &[4]));
        let y = nodes(&mut graph, &x);
        graph.output(Value::batch_of_f32(&y, &[4]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, graph.build().unwrap().bytes()).unwrap();
        engine().load(&path, &EngineConfig::default()).err().expect("tract does not run it").to_string()
    }

    #[test]
    fn other_engine_is_advised_for_an_operator_of_onnx() {
        let known = error_of(|graph, x| graph.node("Det", "y", &[x]));
        assert!(known.ends_with("engine 'ort' may run it (pip install onnxruntime)"), "{known}");
    }

    #[test]
    fn no_engine_is_advised_for_a_cyclic_graph() {
        let cyclic = error_of(|graph, x| {
            graph.node("Add", "sum", &[x, "y"]);
            graph.node("Relu", "y", &["sum"])
        });
        assert!(cyclic.ends_with("the file is broken: parm models inspect shows its faults"), "{cyclic}");
    }
}

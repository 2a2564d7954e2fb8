//! tract, the default engine: pure Rust without libraries to install.
//!
//! *Problem.* tract is fastest and most reliable on graphs whose dimensions are all known, but compiling takes from
//! milliseconds to seconds.
//!
//! *Choice.* The parsed graph is kept, and plans for fixed input shapes are compiled from it ahead of time in
//! [`Model::prepare`], for the shapes of warm-up. Their number is limited; the least recently used one is evicted.
//! Other shapes run on one plan with symbolic dimensions. Only models without such a plan are compiled while a client
//! waits.
//!
//! *Rejected.* Compiling for every shape: clients that never repeat a shape would keep the instance compiling.

mod convert;
mod declared;
mod operators;
mod softmax;
mod trees;

use std::path::Path;
use std::sync::Arc;

use parm_protocol::{Shape, Tensor};
use tract_onnx::pb::ModelProto;
use tract_onnx::prelude::{
    Framework, InferenceModel, InferenceModelExt, IntoRunnable, TVec, TractError, TractResult,
    TypedRunnableModel,
};
use tract_onnx::tract_hir::internal::{DimFact, GenericFactoid, InferenceFact, ShapeFactoid, ToDim};

use super::{Engine, Model, Signature, TRY_ORT, guarded};
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
        let advice = operators::advice(&proto);
        let loaded = guarded(|| TractModel::of(proto, path, config, self.optimises));
        Ok(Box::new(loaded.map_err(|error| match operators::broken(path) {
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
            softmax::spell_out(&mut proto);
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
        let signature = declared::signature(path, &proto, general.as_ref().ok().map(|plan| plan.model()))?;
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

    fn has_plan(&self, inputs: &[Tensor]) -> bool {
        self.fixed.iter().any(|(known, _)| {
            known.len() == inputs.len()
                && known.iter().zip(inputs).all(|(shape, input)| shape.as_slice() == input.shape())
        })
    }

    fn run_plan(&self, plan: &Runnable, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let inputs = inputs.iter().map(convert::to_native).collect::<Result<TVec<_>, Error>>()?;
        let outputs = plan.run(inputs).map_err(failed)?;
        outputs
            .into_iter()
            .zip(&self.signature.outputs)
            .map(|(output, declared)| convert::from_native(&output, declared.datatype))
            .collect()
    }
}

impl Model for TractModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        // Some operators only fail at run time without known dimensions: compile a plan then.
        if let Some(general) = self.general.as_ref().filter(|_| !self.has_plan(inputs))
            && let Ok(outputs) = guarded(|| self.run_plan(general, inputs))
        {
            return Ok(outputs);
        }
        let plan = self.plan(&shapes(inputs))?.clone();
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

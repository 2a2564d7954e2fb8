//! Advice on a graph that tract cannot run: another engine, or a name that no engine knows.

use std::path::Path;

use parm_parity_models::onnx::{Limits, Model as File};
use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto};

use crate::engine::TRY_ORT;

/// The advice on a file that no engine can load.
const BROKEN: &str = ": the file is broken: parm models inspect shows its faults";

/// The operators of ONNX up to set 24, and those that ONNX Runtime adds to the same domains.
const STANDARD: &str = "Abs Acos Acosh Add Affine AffineGrid And ArgMax ArgMin ArrayFeatureExtractor Asin Asinh Atan Atanh \
    Attention AveragePool BatchNormalization Bernoulli Binarizer BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr \
    BitwiseXor BlackmanWindow Cast CastLike CastMap CategoryMapper Ceil Celu CenterCropPad Clip Col2Im Compress Concat \
    ConcatFromSequence Constant ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh Crop CumProd CumSum DFT \
    DeformConv DepthToSpace DequantizeLinear Det DictVectorizer Div Dropout DynamicQuantizeLinear DynamicSlice Einsum \
    Elu Equal Erf Exp Expand EyeLike FeatureVectorizer Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm \
    GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization HammingWindow \
    HannWindow HardSigmoid HardSwish Hardmax Identity If ImageDecoder ImageScaler Imputer InstanceNormalization IsInf \
    IsNaN LRN LSTM LabelEncoder LayerNormalization LeakyRelu Less LessOrEqual LinearClassifier LinearRegressor Log \
    LogSoftmax Loop LpNormalization LpPool MatMul MatMulInteger Max MaxPool MaxRoiPool MaxUnpool Mean \
    MeanVarianceNormalization MelWeightMatrix Min Mish Mod Mul Multinomial Neg NegativeLogLikelihoodLoss \
    NonMaxSuppression NonZero Normalizer Not OneHot OneHotEncoder Optional OptionalGetElement OptionalHasElement Or \
    PRelu Pad ParametricSoftplus Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization RNN RandomNormal \
    RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp \
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare RegexFullMatch Relu Reshape Resize \
    ReverseSequence RoiAlign RotaryEmbedding Round STFT SVMClassifier SVMRegressor Scale ScaledTanh Scaler Scan Scatter \
    ScatterElements ScatterND Selu SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert \
    SequenceLength SequenceMap Shape Shrink Sigmoid Sign SimplifiedLayerNormalization Sin Sinh Size Slice Softmax \
    SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split SplitToSequence Sqrt Squeeze StringConcat \
    StringNormalizer StringSplit Sub Sum Swish Tan Tanh TensorScatter TfIdfVectorizer ThresholdedRelu Tile TopK \
    Transpose TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor Trilu Unique Unsqueeze Upsample Where Xor ZipMap";

/// Returns the end of an error about a broken file, such as one without its external data or with a cycle.
pub(super) fn broken(path: &Path) -> Option<&'static str> {
    let file = File::open(path, &Limits::default()).ok()?;
    // Another engine may know more types of elements.
    let is_known = |finding: &str| !finding.contains("unknown element type");
    let findings = file.inspect().findings;
    let mut faults = findings.iter().filter(|finding| finding.is_fatal()).map(ToString::to_string);
    faults.any(|fault| is_known(&fault)).then_some(BROKEN)
}

/// Returns the end of an error about this model.
pub(super) fn advice(proto: &ModelProto) -> String {
    let own = |node: &NodeProto| {
        proto.functions.iter().any(|function| function.name.as_deref() == Some(&*node.op_type))
    };
    let is_unknown = |node: &NodeProto| !is_known(node) && !own(node);
    match proto.graph.as_ref().and_then(|graph| find(graph, &is_unknown)) {
        None => TRY_ORT.to_owned(),
        Some(node) if node.domain.is_empty() => {
            format!(": ONNX has no operator '{}': correct its name", node.op_type)
        }
        Some(NodeProto { op_type, domain, .. }) => {
            format!(
                ": operator '{op_type}' of the domain '{domain}' is not one of ONNX: export the model without it"
            )
        }
    }
}

/// Whether ONNX or ONNX Runtime may know the operator of a node.
fn is_known(node: &NodeProto) -> bool {
    match &*node.domain {
        "" | "ai.onnx" | "ai.onnx.ml" => STANDARD.split(' ').any(|name| name == node.op_type),
        domain => ["com.microsoft", "ai.onnx.", "org.pytorch."].iter().any(|own| domain.starts_with(own)),
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

    use super::super::engine;
    use crate::engine::Options;

    /// The error of a model with one operator.
    fn error(operator: &str) -> String {
        error_of(|graph, x| graph.node(operator, "y", &[x]))
    }

    /// The error of a model with these nodes, of which the last has the output.
    fn error_of(nodes: impl FnOnce(&mut Builder, &str) -> String) -> String {
        let mut graph = Builder::new("m", 1);
        let x = graph.input(Value::batch_of_f32("x", &[4]));
        let y = nodes(&mut graph, &x);
        graph.output(Value::batch_of_f32(&y, &[4]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, graph.build().unwrap().bytes()).unwrap();
        engine().load(&path, &Options::default()).err().expect("tract does not run it").to_string()
    }

    #[test]
    fn other_engine_is_advised_only_for_known_operators() {
        let known = error("Det");
        assert!(known.ends_with("engine 'ort' may run it (pip install onnxruntime)"), "{known}");
        let misspelt = error("Reul");
        assert!(misspelt.ends_with("ONNX has no operator 'Reul': correct its name"), "{misspelt}");
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

//! One vector for each row, from one for each token: of a run, and in the graph for tools that rewrite it.

use parm_parity_models::onnx::proto::{NodeProto, TensorShapeProto, ValueInfoProto};
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, DataType, Defect, Model, Tensor as Constant};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use parm_parity_models::repository::POOLING;
use parm_protocol::Tensor;
use serde::Deserialize;

use super::tokens::Tokenised;
use crate::Error;

/// Which vectors of tokens make that of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pooling {
    /// The mean of all tokens.
    Mean,
    /// The first token.
    First,
}

/// `1_Pooling/config.json` of a sentence encoder: a flag for each mode, of which exporters set one.
#[derive(Deserialize)]
struct PoolingConfig {
    #[serde(flatten)]
    fields: BTreeMap<String, serde_json::Value>,
}

/// The prefix of the flags.
const MODE: &str = "pooling_mode_";

impl Pooling {
    /// As the files next to a model say; the mean if they do not. Another mode is an error: its vectors would be others.
    pub(super) fn beside(model: &Path) -> Result<Self, Error> {
        let path = model.with_file_name(POOLING);
        // A pipe would block.
        let read = path.is_file().then(|| fs::read(&path).ok());
        let Some(bytes) = read.flatten() else { return Ok(Self::Mean) };
        let refused = |message: String| Error::Load { path: path.clone(), message };
        let config: PoolingConfig =
            serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))?;
        let is_set = |(name, value): &(&String, &serde_json::Value)| {
            name.starts_with(MODE) && **value == serde_json::Value::Bool(true)
        };
        let modes: Vec<&str> =
            config.fields.iter().filter(is_set).map(|(name, _)| &name[MODE.len()..]).collect();
        match modes[..] {
            [] | ["mean_tokens"] => Ok(Self::Mean),
            ["cls_token"] => Ok(Self::First),
            _ => {
                let modes = modes.join(", ");
                Err(refused(format!("pooling by {modes}: export the model with its pooling in the graph")))
            }
        }
    }

    /// Pools an output with a vector for each token.
    pub(super) fn rows(self, output: &Tensor, tokens: &Tokenised) -> Result<Tensor, Error> {
        let failed = |message: String| Error::Run { message };
        let &[rows, length, width] = output.shape() else {
            return Err(failed(format!(
                "an output has shape {:?}, not one vector per token",
                output.shape()
            )));
        };
        let given = (tokens.counts.len(), tokens.length);
        if (rows, length) != given {
            let (rows, length) = given;
            return Err(failed(format!("{rows} rows of {length} tokens gave shape {:?}", output.shape())));
        }
        let values = output.as_f32()?;
        let mut pooled = Vec::with_capacity(rows * width);
        for row in 0..rows {
            let vector = |token: usize| &values[(row * length + token) * width..][..width];
            match self {
                Self::First => pooled.extend_from_slice(vector(0)),
                Self::Mean => {
                    let seen = length.min(tokens.counts[row] as usize);
                    let sum = |at: usize| (0..seen).map(|token| vector(token)[at]).sum::<f32>();
                    pooled.extend((0..width).map(|at| sum(at) / seen.max(1) as f32));
                }
            }
        }
        Ok(Tensor::from_f32([rows, width].as_slice(), &pooled)?)
    }
}

/// The input that hides padding.
const MASK: &str = "attention_mask";

/// From this version on, axes are inputs of operators and no longer attributes.
const AXES_ARE_INPUTS: i64 = 13;

/// The model with one vector for each row in each output that had one for each token.
pub(super) fn pooled(model: &Model, pooling: Pooling) -> Result<Model, Defect> {
    let mut draft = Draft::new(model)?;
    let outputs: Vec<String> = draft
        .graph()
        .output
        .iter()
        .filter(|output| is_of_tokens(output))
        .map(|output| output.name.clone())
        .collect();
    for output in outputs {
        let tokens = draft.fresh(&format!("{output}/tokens"));
        for node in &mut draft.nodes {
            let names = node.input.iter_mut().chain(&mut node.output);
            names.filter(|name| **name == output).for_each(|name| name.clone_from(&tokens));
        }
        draft.forget(|name| name == output);
        match pooling {
            Pooling::First => first(&mut draft, &tokens, &output)?,
            Pooling::Mean => mean(&mut draft, &tokens, &output)?,
        }
        let declared = draft.graph_mut().output.iter_mut().find(|declared| declared.name == output);
        if let Some(shape) = declared.and_then(shape_of) {
            shape.dim.remove(1);
        }
    }
    draft.finish()
}

fn first(draft: &mut Draft, tokens: &str, output: &str) -> Result<(), Defect> {
    let zero = draft.add_constant(Constant::from_i64("first", &[], &[0])?);
    let node = draft.make("Gather", &[tokens, &zero], output, [("axis", Attribute::Int(1))]);
    draft.nodes.push(node);
    Ok(())
}

fn mean(draft: &mut Draft, tokens: &str, output: &str) -> Result<(), Defect> {
    let [seen, wide, kept, sum, count, some] =
        ["seen", "wide", "kept", "sum", "count", "some"].map(|name| draft.fresh(&format!("{output}/{name}")));
    let one = draft.add_constant(Constant::from_f32("one", &[], &[1.0])?);
    let cast = draft.make("Cast", &[MASK], &seen, [("to", Attribute::Int(DataType::Float as i64))]);
    draft.nodes.push(cast);
    along(draft, "Unsqueeze", &seen, 2, &wide)?;
    let masked = draft.make("Mul", &[tokens, &wide], &kept, []);
    draft.nodes.push(masked);
    along(draft, "ReduceSum", &kept, 1, &sum)?;
    along(draft, "ReduceSum", &wide, 1, &count)?;
    // A row without tokens has the mean 0.
    let at_least = draft.make("Max", &[&count, &one], &some, []);
    let divided = draft.make("Div", &[&sum, &some], output, []);
    draft.nodes.extend([at_least, divided]);
    Ok(())
}

/// Adds an operator along one axis. A sum loses the axis.
fn along(draft: &mut Draft, op: &str, input: &str, axis: i64, output: &str) -> Result<(), Defect> {
    let mut node: NodeProto = if draft.opset() >= AXES_ARE_INPUTS {
        let axes = draft.add_constant(Constant::from_i64("axes", &[1], &[axis])?);
        draft.make(op, &[input, &axes], output, [])
    } else {
        draft.make(op, &[input], output, [("axes", Attribute::Ints(vec![axis]))])
    };
    if op == "ReduceSum" {
        node.attribute.push(Attribute::Int(0).to_proto("keepdims"));
    }
    draft.nodes.push(node);
    Ok(())
}

fn is_of_tokens(output: &ValueInfoProto) -> bool {
    let tensor = output.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
    tensor.is_some_and(|tensor| {
        let is_float = tensor.elem_type == DataType::Float as i32;
        is_float && tensor.shape.as_ref().is_some_and(|shape| shape.dim.len() == 3)
    })
}

fn shape_of(output: &mut ValueInfoProto) -> Option<&mut TensorShapeProto> {
    output.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_next_to_a_model_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model.onnx");
        fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        let config = folder.path().join("tokenizer_config.json");
        for pipe in [&folder.path().join(POOLING), &config] {
            assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
        }
        let (tell, told) = std::sync::mpsc::sync_channel(2);
        std::thread::spawn(move || {
            tell.send(Pooling::beside(&model).is_ok_and(|pooling| matches!(pooling, Pooling::Mean))).unwrap();
            tell.send(super::super::tokens::configured(&config) > 1).unwrap();
        });
        for file in ["pooling", "tokenizer"] {
            assert_eq!(told.recv_timeout(std::time::Duration::from_secs(60)), Ok(true), "{file}");
        }
    }

    #[test]
    fn padding_is_left_out_of_the_mean() {
        let tokens = Tokenised { length: 2, ids: vec![7; 4], kinds: vec![0; 4], counts: vec![1, 2] };
        let output = Tensor::from_f32([2, 2, 1].as_slice(), &[1.0, 9.0, 2.0, 4.0]).unwrap();
        let rows = |pooling: Pooling| pooling.rows(&output, &tokens).unwrap().as_f32().unwrap().into_owned();
        assert_eq!([Pooling::Mean, Pooling::First].map(rows), [[1.0, 3.0], [1.0, 2.0]]);
        let other = Tensor::from_f32([1, 2, 1].as_slice(), &[1.0, 9.0]).unwrap();
        assert!(Pooling::Mean.rows(&other, &tokens).is_err());
    }
}

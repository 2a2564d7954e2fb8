//! Reads captured requests as training data.

use std::path::Path;

use anyhow::{Context, ensure};
use parm_backend::engine::{Declared, Signature};
use parm_parity_models::onnx::Value;
use parm_protocol::{DataType, Tensor};
use parm_training::Array;
use parm_training::data::{Parts, Samples, part_in_time};

use super::Deployed;
use super::engine::is_float;
use crate::stand_in::traffic;

/// Prefix of a source of captured rows.
const KIND: &str = "capture:";
/// All integers up to this one are exact in 32-bit floats.
const EXACT: f64 = 16_777_216.0;

/// Reads the rows of a capture folder, oldest first; returns `None` for any other source.
pub fn read(source: &str, deployed: &Deployed) -> anyhow::Result<Option<Samples>> {
    let Some(rest) = source.strip_prefix(KIND) else { return Ok(None) };
    let (folder, settings) = rest.split_once('?').unwrap_or((rest, ""));
    let found = deployed.model.inspect();
    let [inputs, outputs] =
        [&found.inputs, &found.outputs].map(|values| values.iter().map(declared).collect());
    let signature = Signature { inputs, outputs };
    let rows = traffic::read(Path::new(folder), &deployed.name, &signature)?;
    let samples = samples(&rows.inputs()?)?;
    Ok(Some(part_in_time(samples, settings).with_context(|| source.to_owned())?))
}

/// Returns rows without labels.
pub fn samples(inputs: &[Tensor]) -> anyhow::Result<Samples> {
    let inputs = inputs.iter().map(array).collect::<anyhow::Result<Vec<_>>>()?;
    let (inputs, parts) = Parts::join(inputs).context("the inputs have different numbers of rows")?;
    Ok(Samples { parts, ..Samples::new(inputs, None)? })
}

/// Converts numbers of any type to the trainer's floats.
pub fn array(tensor: &Tensor) -> anyhow::Result<Array<f32>> {
    let numbers = parm_arrays::numbers(tensor).context("the rows are not numbers")?;
    let is_float = is_float(tensor.datatype());
    let numbers: Vec<f32> = numbers
        .map(|number| {
            ensure!(
                is_float || number.abs() <= EXACT,
                "the trainer's integers end at {EXACT}, but a row has {number}"
            );
            Ok(number as f32)
        })
        .collect::<anyhow::Result<_>>()?;
    Array::new(tensor.shape().to_vec(), numbers).context("the rows have an invalid shape")
}

fn declared(value: &Value) -> Declared {
    Declared {
        name: value.name.clone(),
        datatype: value.datatype.to_protocol().unwrap_or(DataType::Fp32),
        shape: value.protocol_shape().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use parm_captures::{Folder, Keep, Limits, Record, Source};
    use parm_parity_models::onnx::Builder;
    use parm_protocol::NamedTensor;

    use super::*;

    #[test]
    fn row_that_is_not_finite_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { bytes: 1 << 20, age: std::time::Duration::from_secs(3600) };
        let mut kept = Folder::open(folder.path(), limits).unwrap();
        let source = Source { model: "m".into(), version: String::new() };
        for (unix_ms, value) in [(1, 1.0), (2, f32::NAN), (3, 2.0), (4, 3.0)] {
            let x = NamedTensor::new("x", Tensor::from_f32([1, 1].as_slice(), &[value]).unwrap());
            kept.keep(&source, &Record { unix_ms, inputs: vec![x], outputs: vec![] }).unwrap();
        }
        drop(kept);
        let mut builder = Builder::new("m", 1);
        let x = builder.input(Value::batch_of_f32("x", &[1]));
        let y = builder.node("Relu", "y", &[&x]);
        builder.output(Value::batch_of_f32(&y, &[1]));
        let deployed = Deployed { name: "m".into(), path: "m.onnx".into(), model: builder.build().unwrap() };
        let rows = |settings: &str| {
            let source = format!("capture:{}{settings}", folder.path().display());
            read(&source, &deployed).map(|samples| samples.unwrap().inputs.into_data())
        };
        assert_eq!(rows("").unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(rows("?part=test&hold=0.4").unwrap(), [3.0]);
        assert!(rows("?newest=1").is_err());
        assert!(read("npy:rows.npy", &deployed).unwrap().is_none());
    }
}

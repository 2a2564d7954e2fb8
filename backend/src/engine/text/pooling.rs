//! One vector for each row, from one for each token.

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
        if (rows, length) != (tokens.rows, tokens.length) {
            let (rows, length) = (tokens.rows, tokens.length);
            return Err(failed(format!("{rows} rows of {length} tokens gave shape {:?}", output.shape())));
        }
        let values = output.as_f32()?;
        let mut pooled = Vec::with_capacity(rows * width);
        for row in 0..rows {
            let vector = |token: usize| &values[(row * length + token) * width..][..width];
            match self {
                Self::First => pooled.extend_from_slice(vector(0)),
                Self::Mean => {
                    let mask = &tokens.mask[row * length..][..length];
                    let seen = (0..length).filter(|token| mask[*token] != 0);
                    let count = seen.clone().count().max(1) as f32;
                    let sum = |at: usize| seen.clone().map(|token| vector(token)[at]).sum::<f32>();
                    pooled.extend((0..width).map(|at| sum(at) / count));
                }
            }
        }
        Ok(Tensor::from_f32([rows, width].as_slice(), &pooled)?)
    }
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
        let (ids, mask, kinds) = (vec![7; 4], vec![1, 0, 1, 1], vec![0; 4]);
        let tokens = Tokenised { rows: 2, length: 2, ids, mask, kinds, counts: vec![1, 2] };
        let output = Tensor::from_f32([2, 2, 1].as_slice(), &[1.0, 9.0, 2.0, 4.0]).unwrap();
        let rows = |pooling: Pooling| pooling.rows(&output, &tokens).unwrap().as_f32().unwrap().into_owned();
        assert_eq!([Pooling::Mean, Pooling::First].map(rows), [[1.0, 3.0], [1.0, 2.0]]);
        let other = Tensor::from_f32([1, 2, 1].as_slice(), &[1.0, 9.0]).unwrap();
        assert!(Pooling::Mean.rows(&other, &tokens).is_err());
    }
}

//! Saves samples as numpy arrays, for all commands that take `npy:`.

use std::path::{Path, PathBuf};

use parm_protocol::{DataType, Tensor};

use super::Samples;
use crate::file::write;
use crate::{Array, Error};

const LABELS: &str = "labels.npy";
const VALUES: &str = "values.npy";

impl Samples {
    /// Writes `inputs.npy` (numbered files for several inputs), and `labels.npy` or `values.npy` if there are any,
    /// each atomically. Returns the paths.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>, Error> {
        let mut files: Vec<(String, Tensor)> = Vec::new();
        let inputs = self.parts.split(self.inputs.clone()).unwrap_or_default();
        let several = inputs.len() > 1;
        files.extend(inputs.iter().enumerate().map(|(at, input)| {
            (if several { format!("inputs-{}.npy", at + 1) } else { "inputs.npy".into() }, floats(input))
        }));
        if let Some(labels) = &self.labels {
            let classes = labels.iter().flat_map(|&label| (label as i64).to_le_bytes()).collect::<Vec<u8>>();
            files.push((LABELS.into(), tensor(DataType::Int64, &[labels.len()], classes)));
        }
        if let Some(values) = &self.values {
            files.push((VALUES.into(), floats(values)));
        }
        // Labels of earlier rows must not remain next to these rows.
        let stale = [LABELS, VALUES].into_iter().filter(|name| files.iter().all(|(file, _)| file != name));
        if let Some(path) = stale.map(|name| folder.join(name)).find(|path| path.exists()) {
            let message = "it belongs to other rows: remove it, or name another folder".into();
            return Err(Error::Write { path, message });
        }
        let put = |(name, tensor): (String, Tensor)| {
            let path = folder.join(name);
            write(&path, &parm_arrays::npy(&tensor).expect("floats and integers can be stored"))?;
            Ok(path)
        };
        files.into_iter().map(put).collect()
    }
}

fn floats(array: &Array<f32>) -> Tensor {
    let bytes = array.data().iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(DataType::Fp32, array.shape(), bytes)
}

fn tensor(datatype: DataType, shape: &[usize], bytes: Vec<u8>) -> Tensor {
    Tensor::new(datatype, shape, bytes.into()).expect("as many elements as before")
}

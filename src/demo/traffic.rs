//! Reads the queries of the demo: labelled images that the supplied models were not trained on.

use std::path::Path;

use anyhow::Context;
use parm_loadgen::grader::Grader;
use parm_loadgen::inputs::{Column, Inputs, Recorded};
use parm_protocol::{InferRequest, InferResponse, ModelMetadata};

/// Images and labels, in the format of MNIST's files.
const IMAGES: &str = "images-idx3-ubyte.gz";
const LABELS: &str = "labels-idx1-ubyte.gz";

/// Requests with known classes.
pub struct Traffic {
    inputs: Inputs,
    grader: Grader,
}

impl Traffic {
    /// Reads a folder's images for a model that takes them.
    pub fn read(folder: &Path, model: &ModelMetadata) -> anyhow::Result<Self> {
        let images = Column { input: None, path: folder.join(IMAGES) };
        let recorded = Recorded::read(model, &[images], 1)
            .and_then(|recorded| recorded.with_labels(&folder.join(LABELS)))
            .context("no images: run the demo in the project's folder, or give --images FOLDER")?;
        Ok(Self { inputs: Inputs::recorded(recorded), grader: Grader::new(model, None)? })
    }

    /// Returns the request number `index`; the images repeat.
    pub fn request(&self, index: usize) -> InferRequest {
        self.inputs.request(index)
    }

    /// Whether a response has the right class.
    pub fn is_right(&self, index: usize, response: &InferResponse) -> bool {
        let right = self.inputs.labels(index).and_then(|labels| labels.first().copied());
        right.is_some() && self.grader.classes(response, 1) == [right]
    }
}

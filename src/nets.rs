//! Runs the networks of learned codes, on the engine that runs the models.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use parm_backend::EngineConfig;
use parm_backend::engine::{self, Model};
use parm_encoder::Nets;
use parm_frontend::LoadNets;
use parm_protocol::Tensor;

/// Loads networks with an engine.
pub struct Engine(pub EngineConfig);

/// Encoder and decoder. A model runs one batch at a time, so groups that are coded at the same time wait for each other.
struct Pair {
    encoder: Mutex<Box<dyn Model>>,
    decoder: Mutex<Box<dyn Model>>,
}

impl LoadNets for Engine {
    fn load(&self, encoder: &Path, decoder: &Path) -> Result<Box<dyn Nets>, String> {
        let engine = engine::by_name(&self.0.name, &self.0).map_err(|error| error.to_string())?;
        let load = |path: &Path| {
            let model = engine.load(path, &self.0).map_err(|error| error.to_string())?;
            Ok::<_, String>(Mutex::new(model))
        };
        Ok(Box::new(Pair { encoder: load(encoder)?, decoder: load(decoder)? }))
    }
}

impl Nets for Pair {
    fn encode(&self, queries: &[f32], parities: &mut [f32]) -> Result<(), String> {
        run(&self.encoder, queries, parities)
    }

    fn decode(&self, outputs: &[f32], predictions: &mut [f32]) -> Result<(), String> {
        run(&self.decoder, outputs, predictions)
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair")
    }
}

/// Runs a network with one input and one output on one group, in the network's own shape.
fn run(net: &Mutex<Box<dyn Model>>, values: &[f32], out: &mut [f32]) -> Result<(), String> {
    // A run that panicked leaves no state behind, so the next one may use the model.
    let mut net = net.lock().unwrap_or_else(PoisonError::into_inner);
    let [input] = net.signature().inputs.as_slice() else {
        return Err("a network of a learned code needs exactly one input".into());
    };
    let row: Option<Vec<usize>> = input.shape.iter().skip(1).map(|&dim| usize::try_from(dim).ok()).collect();
    let row = row.ok_or("a network of a learned code needs rows of a fixed size")?;
    let shape: Vec<usize> = std::iter::once(1).chain(row).collect();
    let tensor = Tensor::from_f32(shape, values).map_err(|error| error.to_string())?;
    let outputs = net.run(&[tensor]).map_err(|error| error.to_string())?;
    let made = outputs.first().ok_or("a network of a learned code needs an output")?;
    let made = made.as_f32().map_err(|error| error.to_string())?;
    if made.len() != out.len() {
        return Err(format!(
            "a network of a learned code returned {} values instead of {}",
            made.len(),
            out.len()
        ));
    }
    out.copy_from_slice(&made);
    Ok(())
}

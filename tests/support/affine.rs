//! The test model, y = x W + b, as `tests/models/make.py` writes it.

use std::net::SocketAddr;

use parm_protocol::{InferRequest, InferResponse, ModelRef, NamedTensor, Parameters, Tensor};
use serde_json::{Value, json};

use super::http;

const WEIGHTS: [[f32; 2]; 4] = [[1., 2.], [3., 4.], [5., 6.], [7., 8.]];
const BIAS: [f32; 2] = [0.5, -0.5];

/// Distinct, deterministic rows.
pub fn rows(count: usize, seed: u64) -> Vec<f32> {
    (0..count * 4).map(|i| ((seed.wrapping_mul(31) + i as u64 * 7) % 97) as f32 / 16.0 - 3.0).collect()
}

/// The model's answer to these rows.
pub fn expected(rows: &[f32]) -> Vec<f32> {
    rows.chunks_exact(4)
        .flat_map(|x| {
            (0..2).map(move |j| BIAS[j] + x.iter().zip(&WEIGHTS).map(|(x, w)| x * w[j]).sum::<f32>())
        })
        .collect()
}

/// A request for these rows.
pub fn request(rows: &[f32]) -> InferRequest {
    let tensor = Tensor::from_f32([rows.len() / 4, 4].as_slice(), rows).unwrap();
    InferRequest {
        model: ModelRef::latest("affine"),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", tensor)],
        outputs: Vec::new(),
    }
}

/// The same in JSON.
pub fn json(rows: &[f32]) -> Value {
    let input = json!({"name": "x", "shape": [rows.len() / 4, 4], "datatype": "FP32", "data": rows});
    json!({ "inputs": [input] })
}

/// Sends these rows over HTTP.
pub fn infer(address: SocketAddr, rows: &[f32]) -> http::Answer {
    http::post(address, "/v2/models/affine/infer", json(rows).to_string().as_bytes())
}

/// Whether a response is the model's answer to these rows.
pub fn is_answer(response: &InferResponse, rows: &[f32]) -> bool {
    let Some(output) = response.outputs.iter().find(|output| output.name == "y") else {
        return false;
    };
    let got = output.tensor.as_f32().unwrap();
    let want = expected(rows);
    got.len() == want.len() && got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-3)
}

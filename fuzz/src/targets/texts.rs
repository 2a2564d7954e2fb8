//! Any bytes as the body of a request for embeddings or scores, and the answer to it.

use parm_protocol::bounds::Room;
use parm_protocol::texts::{
    Embed, Embeddings, Exchange, Rerank, ScoreDocuments, read, request, texts_in_row,
};
use parm_protocol::{
    InferResponse, ModelMetadata, ModelRef, NamedTensor, Parameters, Rows, Tensor, TensorMetadata, validate,
};

/// The most bytes of all copies of a query.
const ROOM: usize = 1 << 20;

/// Runs the target.
pub fn run(data: &[u8]) {
    answered::<Embeddings>(data, 2);
    answered::<Embed>(data, 2);
    answered::<Rerank>(data, 1);
    answered::<ScoreDocuments>(data, 1);
}

/// Makes the request of a body, and answers it with so many values for each row.
fn answered<E: Exchange>(body: &[u8], width: usize) {
    let Ok(mut exchange) = read::<E>(body) else { return };
    let Ok(texts) = exchange.rows(&mut Room::of(ROOM)) else { return };
    let shape = vec![-1, E::IN_ROW as i64];
    let input = TensorMetadata { name: "text".into(), datatype: "BYTES".into(), shape };
    let model = ModelMetadata { name: "m".into(), inputs: vec![input], ..ModelMetadata::default() };
    assert_eq!(texts_in_row(&model), Some(E::IN_ROW));
    let request =
        request(ModelRef::latest("m"), &model, texts, Parameters::new()).expect("texts are a tensor");
    assert!(validate(&request, &model, Rows::UpTo(4096)).is_ok(), "the request fits the model");
    let rows = request.inputs[0].tensor.rows();
    let values: Vec<f32> = (0..rows * width).map(|at| at as f32).collect();
    let output =
        Tensor::from_f32([rows, width].as_slice(), &values).expect("as many values as the shape has");
    let response = InferResponse {
        model_name: "m".into(),
        model_version: "1".into(),
        outputs: vec![NamedTensor::new("y", output)],
        ..Default::default()
    };
    let Ok(answer) = exchange.answer(&response, rows) else { return };
    serde_json::from_slice::<serde_json::Value>(&answer).expect("the answer is JSON");
}

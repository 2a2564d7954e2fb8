//! The report of `parm models inspect`.

use crate::sample;

#[test]
fn report_counts_operators_parameters_and_bytes() {
    let report = sample::lenet().inspect();
    let operators: Vec<(&str, usize)> = report.operators.iter().map(|(op, n)| (op.as_str(), *n)).collect();
    assert_eq!(
        operators,
        [("Conv", 2), ("Flatten", 1), ("Gemm", 2), ("MaxPool", 2), ("Relu", 3), ("Softmax", 1)]
    );
    let parameters = (4 * 25 + 4) + (8 * 4 * 9 + 8) + (32 * 16 + 16) + (16 * 5 + 5);
    assert_eq!(report.parameters, parameters);
    assert_eq!(report.weights["FP32"], 4 * parameters);
    assert_eq!(report.opsets["ai.onnx"], 17);
    assert_eq!(report.inputs[0].protocol_shape(), Some(vec![-1, 1, 12, 12]));
}

#[test]
fn report_has_a_text_and_a_json_form() {
    let report = sample::mlp().inspect();
    let text = report.to_string();
    assert!(text.contains("input       input FP32[batch, 1, 6, 6]\n"), "{text}");
    assert!(text.contains("operators   Gemm 2, Flatten 1, Relu 1\n"), "{text}");
    assert!(text.contains("checks      passed\n"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["inputs"][0]["shape"], serde_json::json!(["batch", 1, 6, 6]));
    assert_eq!(json["inputs"][0]["datatype"], "FP32");
}

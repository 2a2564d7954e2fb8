//! Operator sets' names: ONNX's own is written both as nothing and as `ai.onnx`.

/// The one spelling used here: empty for ONNX's own operators.
pub(super) fn canonical(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// The spelling for people.
pub(super) fn full(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

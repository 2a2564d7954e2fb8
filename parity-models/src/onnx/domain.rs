//! The names of operator sets: files name ONNX's own with an empty string or `ai.onnx`.

/// The spelling used here: empty for ONNX's own operators.
pub(super) fn canonical(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// The spelling in messages.
pub(super) fn full(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

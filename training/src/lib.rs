//! Training parity models and learned codes in Burn for any ONNX model

"""The encoder in ONNX Runtime, one thread. MLServer's adaptive batching joins the requests."""

import os

import numpy
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Encoder(MLModel):
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["NETWORK"], options, ["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {tensor.name: NumpyCodec.decode_input(tensor).astype(numpy.int64) for tensor in payload.inputs}
        (vectors,) = self.session.run(None, inputs)
        outputs = [NumpyCodec.encode_output("sentence_embedding", vectors)]
        return InferenceResponse(id=payload.id, model_name=self.name, model_version=self.version, outputs=outputs)

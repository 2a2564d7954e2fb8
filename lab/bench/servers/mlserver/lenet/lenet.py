"""The network in ONNX Runtime, one thread."""

import os

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Lenet(MLModel):
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["NETWORK"], options, ["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        x = NumpyCodec.decode_input(payload.inputs[0])
        (y,) = self.session.run(None, {"input": x})
        outputs = [NumpyCodec.encode_output("output", y)]
        return InferenceResponse(id=payload.id, model_name=self.name, model_version=self.version, outputs=outputs)

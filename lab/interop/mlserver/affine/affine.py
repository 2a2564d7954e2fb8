"""y = x W + b, for which the recipe knows every answer."""

import numpy
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

WEIGHTS = numpy.array([[1, 2], [3, 4], [5, 6], [7, 8]], numpy.float32)
BIAS = numpy.array([0.5, -0.5], numpy.float32)


class Affine(MLModel):
    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        x = NumpyCodec.decode_input(payload.inputs[0])
        y = NumpyCodec.encode_output("y", x @ WEIGHTS + BIAS)
        return InferenceResponse(id=payload.id, model_name=self.name, model_version=self.version, outputs=[y])

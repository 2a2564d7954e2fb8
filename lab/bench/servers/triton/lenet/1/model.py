"""The network in ONNX Runtime, one thread, for each batch of the server."""

import os
import sys

sys.path.insert(0, os.environ["SITE_PACKAGES"])  # the embedded Python ignores virtual environments

import onnxruntime  # noqa: E402
import triton_python_backend_utils as utils  # noqa: E402


class TritonPythonModel:
    def initialize(self, arguments):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["NETWORK"], options, ["CPUExecutionProvider"])

    def execute(self, requests):
        answers = []
        for request in requests:
            x = utils.get_input_tensor_by_name(request, "input").as_numpy()
            (y,) = self.session.run(None, {"input": x})
            answers.append(utils.InferenceResponse([utils.Tensor("output", y)]))
        return answers

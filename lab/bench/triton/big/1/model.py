"""Sleeps for 20 ms (lognormal, sigma 0.05) and answers with sums, like parm's emulated models."""

import math
import os
import random
import sys
import time

sys.path.insert(0, os.environ["SITE_PACKAGES"])  # the embedded Python ignores virtual environments

import triton_python_backend_utils as utils  # noqa: E402


class TritonPythonModel:
    def initialize(self, _):
        self.random = random.Random(os.getpid())

    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep(0.020 * math.exp(0.05 * self.random.gauss(0.0, 1.0)))
            rows = utils.get_input_tensor_by_name(request, "input").as_numpy()
            answers.append(utils.InferenceResponse([utils.Tensor("output", rows.reshape(-1, 4, 4).sum(1))]))
        return answers

"""LitServe: a prediction and a stream. Run by `servers.py` with the port."""

import sys
import time

import litserve


class Doubles(litserve.LitAPI):
    def setup(self, device):
        self.factor = 2

    def decode_request(self, request):
        return request["input"]

    def predict(self, x):
        return [self.factor * value for value in x]

    def encode_response(self, output):
        return {"output": output}


class Counts(litserve.LitAPI):
    """Streams the numbers up to the input."""

    def setup(self, device):
        pass

    def decode_request(self, request):
        return request["input"]

    def predict(self, x):
        for number in range(x):
            time.sleep(0.01)
            yield number

    def encode_response(self, output):
        for number in output:
            yield f'{{"n": {number}}}\n'


if __name__ == "__main__":
    apis = [Doubles(api_path="/predict"), Counts(api_path="/count", stream=True)]
    server = litserve.LitServer(apis, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")

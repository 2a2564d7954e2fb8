"""Compares parm's embeddings with those of ONNX Runtime, tokenizers and numpy: clients.py FOLDER HOST:PORT

FOLDER has the model and the tokenizer (`encoder.py` writes them). The clients are openai and huggingface_hub, unmodified.
"""

import base64
import pathlib
import sys

import numpy
import onnxruntime
import openai
from huggingface_hub import InferenceClient
from tokenizers import Tokenizer

TEXTS = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day", "", "é" * 3000]


def reference(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    for text in TEXTS:
        ids = numpy.array([tokenizer.encode(text).ids])
        (tokens,) = session.run(None, {"input_ids": ids, "attention_mask": numpy.ones_like(ids)})
        mean = tokens[0].mean(0)
        yield mean / numpy.linalg.norm(mean)


def same(what, vectors, wanted):
    vectors = numpy.array(vectors, numpy.float32)
    difference = numpy.abs(vectors - wanted).max()
    assert vectors.shape == wanted.shape and difference < 1e-5, f"{what}: {vectors.shape}, {difference}"
    print(f"ok   {what}: at most {difference:.1e} from the reference")


def main():
    folder, address = pathlib.Path(sys.argv[1]), sys.argv[2]
    wanted = numpy.array(list(reference(folder)))
    client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)
    floats = client.embeddings.create(model="minilm", input=TEXTS, encoding_format="float")
    same("openai, floats", [item.embedding for item in floats.data], wanted)
    usual = client.embeddings.create(model="minilm", input=TEXTS)
    same("openai, base64 by itself", [item.embedding for item in usual.data], wanted)
    raw = client.embeddings.with_raw_response.create(model="minilm", input=TEXTS[0], encoding_format="base64")
    text = raw.http_response.json()["data"][0]["embedding"]
    same("openai, base64", [numpy.frombuffer(base64.b64decode(text), "<f4")], wanted[:1])
    assert raw.headers["parm-outcome"] in ("exact", "hedged"), raw.headers
    hub = InferenceClient(base_url=f"http://{address}/embed?model=minilm")
    same("huggingface_hub, feature_extraction", hub.feature_extraction(TEXTS[0]), wanted[:1])
    for error, call in [
        (openai.NotFoundError, lambda: client.embeddings.create(model="none", input="a")),
        (openai.BadRequestError, lambda: client.embeddings.create(model="minilm", input=[1, 2])),
        (openai.BadRequestError, lambda: client.embeddings.create(model="minilm", input="a", dimensions=8)),
    ]:
        try:
            call()
        except error as told:
            print(f"ok   openai, {error.__name__}: {told.body['message']}")
        else:
            raise AssertionError(f"no {error.__name__}")


if __name__ == "__main__":
    main()

"""Measures how often a stand-in's nearest sentences are the encoder's: recall.py ENCODER STAND_IN IDS MASK

For each sentence it takes the ten nearest others by cosine, and prints the share that both models name.
"""

import sys

import numpy
import onnxruntime

NEAREST, TOGETHER = 10, 100


def embeddings(path, ids, mask):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    parts = range(0, len(ids), TOGETHER)
    made = [session.run(None, dict(zip(names, (ids[at : at + TOGETHER], mask[at : at + TOGETHER]))))[0] for at in parts]
    made = numpy.concatenate(made)
    return made / numpy.linalg.norm(made, axis=1, keepdims=True)


def nearest(vectors):
    found = []
    for at in range(0, len(vectors), 1_000):
        near = vectors[at : at + 1_000] @ vectors.T
        near[numpy.arange(len(near)), numpy.arange(at, at + len(near))] = -1
        found.append(numpy.argpartition(-near, NEAREST, axis=1)[:, :NEAREST])
    return numpy.concatenate(found)


def main(encoder, stand_in, ids, mask):
    ids, mask = numpy.load(ids), numpy.load(mask)
    theirs, own = (embeddings(path, ids, mask) for path in (encoder, stand_in))
    shared = [len(set(a) & set(b)) / NEAREST for a, b in zip(nearest(theirs), nearest(own))]
    print(f"{len(ids)} sentences: mean cosine {(theirs * own).sum(1).mean():.4f}, recall@{NEAREST} {100 * numpy.mean(shared):.1f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Trains networks with scikit-learn and exports them with skl2onnx into UNPACKED/trained, to fill up the published models."""
import os
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_digits, make_classification, make_friedman1
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def data(name):
    if name == "digits":
        return load_digits(return_X_y=True)
    if name == "clusters":
        return make_classification(6000, 40, n_informative=20, n_classes=6, random_state=1)
    return make_friedman1(6000, 30, noise=0.1, random_state=1)


NETWORKS = {
    "digits": MLPClassifier((512, 512), max_iter=40, random_state=1),
    "clusters": MLPClassifier((1024, 512), max_iter=15, random_state=1),
    "friedman": MLPRegressor(hidden_layer_sizes=(1024, 512), max_iter=15, random_state=1),
}

if __name__ == "__main__":
    folder = Path(os.environ["UNPACKED"]) / "trained"
    folder.mkdir(exist_ok=True)
    for name, network in NETWORKS.items():
        x, y = data(name)
        x = x.astype(np.float32)
        trained = make_pipeline(StandardScaler(), network).fit(x[: len(x) // 3], y[: len(x) // 3])
        options = {"zipmap": False} if name != "friedman" else None
        exported = to_onnx(trained, x[:1], options=options, target_opset=17)
        (folder / f"trained-{name}.onnx").write_bytes(exported.SerializeToString())
        np.save(folder / f"trained-{name}.npy", x[len(x) // 3:])

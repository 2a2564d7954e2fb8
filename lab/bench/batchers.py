"""Servers that batch the requests of one encoder: parm at a setting, MLServer and Triton. Used by batches.py."""

import json
import pathlib
import shutil
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "lab" / "interop"))

import processes  # noqa: E402
import servers  # noqa: E402

HERE = pathlib.Path(__file__).parent / "batchers"
MODEL = "encoder"


class ParmBatcher:
    """Workers with one thread each, and a frontend with a largest batch."""

    def __init__(self, size, workers, network, folder, log):
        models = folder / "models"
        if not models.exists():
            (models / MODEL / "1").mkdir(parents=True)
            shutil.copy(network, models / MODEL / "1" / "model.onnx")
        flags = ["--models", str(models), "--engine", "ort", "--instances", "1", "--set", "backend.engine.threads=1"]
        self.parts = [processes.Parm("worker", *flags, log=log) for _ in range(workers)]
        urls = [flag for worker in self.parts for flag in ("--worker", f"http://{worker.http}")]
        size = json.dumps(size)
        self.frontend = processes.Parm("serve", *urls, "--policy", "none", "--set", f"frontend.dispatch.batch.max_size={size}", log=log)
        self.parts.append(self.frontend)
        self.frontend.wait_for_model(MODEL)
        self.url = f"grpc://{self.frontend.grpc}"
        self.http = self.frontend.http

    def counts(self):
        return counts(self.frontend.metrics)

    def end(self):
        for part in reversed(self.parts):
            part.__exit__()


class TritonBatcher:
    """Triton with its dynamic batcher, from the Python package, which has only the Python backend."""

    def __init__(self, python, workers, network, folder, log):
        models = folder / "triton"
        shutil.copytree(HERE / "triton", models)
        config = models / MODEL / "config.pbtxt"
        config.write_text(config.read_text() + f"instance_group [ {{ count: {workers} kind: KIND_CPU }} ]\n")
        self.address, self.metrics, self.server = servers.triton(python, log, models, network, has_metrics=True)
        processes.wait_for_http(f"http://{self.address}/v2/models/{MODEL}/ready", self.server.process)
        self.url = f"http://{self.address}"

    def counts(self):
        return counts(self.metrics)

    def end(self):
        self.server.__exit__()


class MlserverBatcher:
    """MLServer with adaptive batching, over gRPC: its REST side takes no binary tensors."""

    def __init__(self, python, workers, network, folder, log):
        models = folder / "mlserver"
        shutil.copytree(HERE / "mlserver", models)
        http, grpc = processes.free_port(), processes.free_port()
        settings = json.loads((models / "settings.json").read_text())
        settings |= {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "parallel_workers": workers}
        (models / "settings.json").write_text(json.dumps(settings))
        command = [str(pathlib.Path(python).parent / "mlserver"), "start", "."]
        ready = f"http://127.0.0.1:{http}/v2/models/{MODEL}/ready"
        self.server = processes.Server(command, ready, env={"NETWORK": str(network)}, cwd=models, log=log)
        self.url = f"grpc://127.0.0.1:{grpc}"

    def counts(self):
        return None

    def end(self):
        self.server.__exit__()


def counts(metrics):
    """Returns the rows and the runs so far."""
    page = urllib.request.urlopen(f"http://{metrics}/metrics", timeout=5).read().decode()

    def total(name):
        lines = [line for line in page.splitlines() if line.startswith(name + "{") and f'"{MODEL}"' in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    return total("nv_inference_count"), total("nv_inference_exec_count")

"""A parm frontend over a real MLServer, by gRPC (its REST side takes no binary tensors). Run by `just interop-mlserver`."""

import json
import pathlib
import shutil
import sys
import tempfile

from foreign import check
from processes import ROOT, Parm, Server, free_port


def main():
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "mlserver.log", "w+") as log:
        models = pathlib.Path(folder) / "models"
        shutil.copytree(ROOT / "lab" / "interop" / "mlserver", models)
        http, grpc = free_port(), free_port()
        settings = json.loads((models / "settings.json").read_text())
        settings |= {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc}
        (models / "settings.json").write_text(json.dumps(settings))
        command = [str(pathlib.Path(sys.executable).parent / "mlserver"), "start", "."]
        try:
            with Server(command, f"http://127.0.0.1:{http}/v2/health/ready", cwd=models, log=log):
                print("frontend over MLServer, gRPC")
                with Parm("serve", "--worker", f"grpc://127.0.0.1:{grpc}") as frontend:
                    check(frontend)
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read()[-4000:])
            raise
    print("parm serves predictions in front of MLServer")


if __name__ == "__main__":
    main()

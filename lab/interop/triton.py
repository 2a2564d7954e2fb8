"""A parm frontend over two real Triton servers (python backend). Run by `just interop-triton`."""

import pathlib
import sys
import sysconfig
import tempfile

import pytriton

from foreign import check
from processes import ROOT, Parm, Server, free_port

TRITON = pathlib.Path(pytriton.__file__).parent / "tritonserver"


def stub():
    """Copies the stub that fits this Python to the folder of the python backend."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    link = TRITON / "backends" / "python" / "triton_python_backend_stub"
    if not link.exists():
        link.symlink_to(TRITON / "python_backend_stubs" / version / "triton_python_backend_stub")


def triton(models, http, grpc, log):
    environment = {"SITE_PACKAGES": sysconfig.get_path("purelib"), "LD_LIBRARY_PATH": f"{sys.base_prefix}/lib"}
    command = [str(TRITON / "bin" / "tritonserver"), f"--model-repository={models}",
               f"--backend-directory={TRITON / 'backends'}", f"--cache-directory={TRITON / 'caches'}",
               "--allow-metrics=false", f"--http-port={http}", f"--grpc-port={grpc}",
               "--http-address=127.0.0.1", "--grpc-address=127.0.0.1",
               f"--backend-config=python,shm-region-prefix-name=parm{http}"]
    return Server(command, f"http://127.0.0.1:{http}/v2/health/ready", env=environment, log=log)


def main():
    stub()
    models = ROOT / "lab" / "interop" / "triton"
    with tempfile.TemporaryFile("w+") as log:
        first, second = (free_port(), free_port()), (free_port(), free_port())
        try:
            with triton(models, *first, log), triton(models, *second, log):
                for name, workers in [
                    ("frontend over one Triton, HTTP", [f"http://127.0.0.1:{first[0]}"]),
                    ("frontend over one Triton, gRPC", [f"grpc://127.0.0.1:{first[1]}"]),
                    ("frontend over two Tritons, one HTTP and one gRPC, policy replicate",
                     [f"http://127.0.0.1:{first[0]}", f"grpc://127.0.0.1:{second[1]}", "--policy", "replicate"]),
                ]:
                    print(name)
                    options = [option for worker in workers for option in
                               (("--worker", worker) if "://" in worker else (worker,))]
                    with Parm("serve", *options) as frontend:
                        check(frontend)
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read()[-4000:])
            raise
    print("parm serves predictions in front of Triton")


if __name__ == "__main__":
    main()

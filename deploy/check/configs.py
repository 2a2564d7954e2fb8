"""Every command line and configuration in a manifest, as the binary itself reads it; and times that must agree."""

import os
import pathlib
import subprocess
import tomllib

from rules_of_ours import by_kind

# What a Service called `parm`, and others of that namespace, put into a container where somebody left Service links on.
LINKS = {
    "PARM_PORT": "tcp://10.96.0.7:8000",
    "PARM_PORT_8000_TCP_ADDR": "10.96.0.7",
    "PARM_SERVICE_HOST": "10.96.0.7",
    "PARM_SERVICE_PORT_GRPC": "8001",
    "PARM_FRONTENDS_PORT_8002_TCP": "tcp://10.96.0.8:8002",
}
# Seconds that an answer of DNS lives where CoreDNS is as kubeadm makes it.
DNS = 30
# Seconds between two attempts to connect, at most: `connect_backoff_max` in frontend/src/config.rs.
LONGEST_BACKOFF = 5
# Seconds to spare before the process is killed.
SPARE = 5


def dumped(parm, args, env, scratch):
    """The configuration that a command would use; a text says what is wrong."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PARM_")}
    command = [parm, *args, "--dump-config"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean | LINKS | env, cwd=scratch)
    return tomllib.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def containers(objects):
    """Name, grace, minReadySeconds, container, and mounted configuration of whatever runs parm."""
    maps = {found["metadata"]["name"]: found.get("data", {}) for found in by_kind(objects, "ConfigMap")}
    for found in by_kind(objects, "Deployment"):
        spec = found["spec"]["template"]["spec"]
        mounted = {}
        for volume in spec.get("volumes", []):
            mounted |= maps.get(volume.get("configMap", {}).get("name"), {})
        ready = found["spec"].get("minReadySeconds", 0)
        yield found["metadata"]["name"], spec["terminationGracePeriodSeconds"], ready, spec["containers"][0], mounted
    for found in by_kind(objects, "ClusterServingRuntime"):
        # Kubernetes' own grace period, which KServe leaves.
        yield found["metadata"]["name"], 30, None, found["spec"]["containers"][0], {}


def settings(parm, objects, scratch):
    """Name, what times the manifest gives, and the configuration in use (or a text), of every container."""
    scratch = pathlib.Path(scratch)
    models = scratch / "models"
    models.mkdir(exist_ok=True)

    def here(arg):
        """The argument with the container's paths as they are on this machine."""
        if arg.startswith("/etc/parm/"):
            return str(scratch / pathlib.Path(arg).name)
        return arg.replace("--models=/mnt/models", f"--models={models}")

    for name, grace, ready, container, mounted in containers(objects):
        for file, text in mounted.items():
            (scratch / file).write_text(text.replace('models = "/models"', f'models = "{models}"'))
        args = [here(arg) for arg in container["args"]]
        # What a pod is told of itself is known when it runs.
        env = {each["name"]: each.get("value", "told-to-the-pod") for each in container.get("env", [])}
        yield name, grace, ready, dumped(parm, args, env, scratch)


def problems(parm, objects, scratch):
    """Configurations that are refused, and times that do not agree."""
    found = list(settings(parm, objects, scratch))
    for name, _, _, used in found:
        if isinstance(used, str):
            yield f"{name}: {used}"
    found = [each for each in found if not isinstance(each[3], str)]
    frontends = [each for each in found if each[3]["frontend"]["workers"]]
    for name, grace, _, used in found:
        server = used["server"]
        needed = (server["drain_delay_ms"] + server["drain_timeout_ms"]) / 1000 + SPARE
        if grace < needed:
            yield f"{name}: is killed after {grace} s, and may need {needed:g} s to drain"
    for name, _, ready, used in frontends:
        if used["server"]["drain_delay_ms"] / 1000 < DNS + SPARE:
            yield f"{name}: stops listening while DNS may still name it"
        if ready < DNS + SPARE:
            yield f"{name}: replaces frontends faster than DNS tells of new ones"
        instances = used["frontend"]["instances"]
        seen = (instances["health_interval_ms"] + instances["health_timeout_ms"]) / 1000
        # An answer that lives, the look after it, one that is lost, and the connection.
        known = DNS + 2 * instances["dns_interval_ms"] / 1000 + LONGEST_BACKOFF
        for worker, _, pause, other in found:
            if other["frontend"]["workers"]:
                continue
            if other["server"]["drain_delay_ms"] / 1000 < seen:
                yield f"{worker}: stops listening before frontends saw that it is not ready ({seen:g} s)"
            if pause is not None and pause < known:
                yield f"{worker}: is replaced every {pause} s, and frontends may need {known:g} s to know a new one"

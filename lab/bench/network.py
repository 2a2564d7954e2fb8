"""Hosts of the workers of the chaos benchmarks: each in its own network namespace that can be cut off, or all on loopback.

A host is a network namespace with one cable to a bridge. Cutting it off makes the bridge drop its packets: nothing is
refused or reset, and the addresses stay known, as when a switch fails. That needs root and the namespaces that
`lab/bench/chaos.sh` makes; without them every worker is on loopback and none can be cut off.
"""

import itertools
import os
import subprocess
import time

from processes import free_port

OWN_NAMESPACES = os.environ.get("PARM_NAMESPACES") == "1"
BRIDGE = "parm-hub"
BRIDGE_ADDRESS, BRIDGE_MAC = "10.77.0.1", "02:77:00:00:ff:01"


# Below the kernel's ephemeral ports: in our own namespace no process takes a port between its choice and its use.
OURS = itertools.count(20000)


def port():
    """Returns a port on loopback for a later server."""
    return next(OURS) if OWN_NAMESPACES else free_port()


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")


class Host:
    """A host: a prefix for commands that run there, and its address."""

    count = 0

    def __init__(self):
        Host.count += 1
        self.number = Host.count
        self.prefix, self.address, self.holder = [], "127.0.0.1", None
        self.ports = [port() for _ in range(3)]
        if not OWN_NAMESPACES:
            return
        if self.number == 1:
            make_bridge()
        self.address = f"10.77.1.{self.number}"
        self.ports = [8000, 8001, 8002]
        # Holds the namespace while the worker in it is dead.
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        process = f"/proc/{self.holder.pid}/ns/net"
        while os.readlink(process) == os.readlink("/proc/self/ns/net"):
            time.sleep(0.005)
        self.prefix = ["nsenter", f"--net={process}"]
        self.port = f"parm{self.number}"
        mac = f"02:77:00:00:00:{self.number:02x}"
        run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "cable", "address", mac,
            "netns", str(self.holder.pid))
        run("ip", "link", "set", self.port, "master", BRIDGE, "up")
        inside = lambda *words: run(*self.prefix, "ip", *words)  # noqa: E731
        inside("link", "set", "lo", "up")
        inside("address", "add", f"{self.address}/16", "dev", "cable")
        inside("link", "set", "cable", "up")
        inside("neighbour", "replace", BRIDGE_ADDRESS, "lladdr", BRIDGE_MAC, "dev", "cable", "nud", "permanent")
        run("ip", "neighbour", "replace", self.address, "lladdr", mac, "dev", BRIDGE, "nud", "permanent")

    def cut(self, cut):
        """Cuts the host off, or reconnects it."""
        run("bridge", "link", "set", "dev", self.port, "state", "0" if cut else "3")


def make_bridge():
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "address", BRIDGE_MAC, "type", "bridge", "stp_state", "0", "forward_delay", "0")
    run("ip", "address", "add", f"{BRIDGE_ADDRESS}/16", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")

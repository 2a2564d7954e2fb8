"""Replicas of a server on loopback, and the frontend in front of them."""

import concurrent.futures
import re
import time
import urllib.request

from processes import PATIENCE, Parm, Server, free_port


class Fleet:
    """Replicas that one command starts. `{port}` in the command and the environment stands for the port of each, `{other}`
    for a second port."""

    def __init__(self, stack, command, ready, replicas=2, env=None, cwd=None, log=None):
        self.ports = [free_port() for _ in range(replicas)]
        self.addresses = [f"127.0.0.1:{port}" for port in self.ports]
        others = {port: free_port() for port in self.ports}
        fill = lambda text, port: text.replace("{port}", str(port)).replace("{other}", str(others[port]))
        self.starts = [
            ([fill(part, port) for part in command], f"http://127.0.0.1:{port}{ready}",
             {key: fill(value, port) for key, value in (env or {}).items()}, cwd, log)
            for port in self.ports
        ]
        with concurrent.futures.ThreadPoolExecutor(replicas) as pool:
            started = [pool.submit(Server, *start) for start in self.starts]
        self.servers = [stack.enter_context(server.result()) for server in started]
        self.stack = stack

    def restart(self, index):
        """Starts a replica again that was killed, on its port."""
        self.servers[index] = self.stack.enter_context(Server(*self.starts[index]))

    def frontend(self, *flags, log=None):
        """A frontend over all replicas, once each is in use."""
        urls = [part for address in self.addresses for part in ("--upstream", f"http://{address}")]
        parm = self.stack.enter_context(Parm("serve", *urls, *flags, log=log))
        wait_for_instances(parm, len(self.addresses))
        return parm


def metric(parm, name, label=""):
    """The sum of a metric's series that have this label."""
    with urllib.request.urlopen(f"http://{parm.metrics}/metrics", timeout=5) as answer:
        lines = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", answer.read().decode(), re.MULTILINE)
    return sum(float(value) for labels, value in lines if label in labels)


def wait_for_instances(parm, count):
    until(f"{count} instances are ready", lambda: metric(parm, "parm_instances", 'state="ready"') >= count)


def until(what, holds, patience=PATIENCE):
    """Waits until a condition holds."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {what}"
        time.sleep(0.05)

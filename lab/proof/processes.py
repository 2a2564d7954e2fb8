"""Processes that end with this one, and a host that can be cut off from the network."""

import atexit
import contextlib
import ctypes
import itertools
import os
import pathlib
import signal
import socket
import subprocess
import time

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_NETWORK, END_WITH_PARENT = 0x40000000, 1
BRIDGE = "proof-hub"
# Of all that is started; the client itself may take precedence.
PRIORITY = os.getpriority(os.PRIO_PROCESS, 0)
OURS = itertools.count(20000)


class Process:
    """A process in a session of its own, which `end` and the end of this program end, with all that it started."""

    everything = set()

    def __init__(self, command, log, last_signal=signal.SIGTERM):
        def prepare():
            # Should this program be killed, the kernel ends the process.
            LIBC.prctl(END_WITH_PARENT, last_signal)
            os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)

        with open(log, "ab") as out:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, start_new_session=True, preexec_fn=prepare)
        self.pid = self.process.pid
        Process.everything.add(self)

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def ended(self):
        return self.process.poll() is not None

    def end(self):
        self.signal(signal.SIGKILL)
        self.process.wait()
        Process.everything.discard(self)

    def members(self):
        """The processes of its session. To look through all processes takes long, so never during a measurement."""
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(stat.read_text().rsplit(")", 1)[1].split()[3]) == self.pid:
                    found.append(stat)
        return found


def processor_seconds(members):
    """The processor time of these processes, as accounted by the kernel."""
    ticks = 0
    for stat in members:
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@atexit.register
def end_everything():
    for process in list(Process.everything):
        process.end()


def own_network():
    """Moves this program into a network of its own, if that is allowed here, and returns whether it did."""
    if os.geteuid() != 0 or LIBC.unshare(NEW_NETWORK) != 0:
        return False
    run("ip", "link", "set", "lo", "up")
    try:
        # Without a fixed address, a bridge takes that of a port.
        run("ip", "link", "add", BRIDGE, "address", "02:77:00:00:ff:01", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        run("ip", "address", "add", "10.77.0.1/16", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def free_port(own=False):
    """A port on loopback for a later server; in a network of our own no other program takes one."""
    if own:
        return next(OURS)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(*words):
    subprocess.run(words, check=True, capture_output=True)


class Host:
    """A network namespace with one cable to a bridge. Cut off, its packets are dropped: nothing is refused or reset."""

    numbers = itertools.count(1)

    def __init__(self, log):
        number = next(Host.numbers)
        self.address, self.cable = f"10.77.{number // 200 + 1}.{number % 200 + 1}", f"proof{number}"
        self.holder = Process(["unshare", "--net", "sleep", "infinity"], log, signal.SIGKILL)
        namespace = f"/proc/{self.holder.pid}/ns/net"
        while os.readlink(namespace) == os.readlink("/proc/self/ns/net"):
            time.sleep(0.005)
        self.prefix = ["nsenter", f"--net={namespace}"]
        run("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "cable", "netns", str(self.holder.pid))
        run("ip", "link", "set", self.cable, "master", BRIDGE, "up")
        run(*self.prefix, "ip", "link", "set", "lo", "up")
        run(*self.prefix, "ip", "address", "add", f"{self.address}/16", "dev", "cable")
        run(*self.prefix, "ip", "link", "set", "cable", "up")
        # Both ends stay known, as when a switch fails: packets are lost, and no address is unknown.
        run("ip", "neighbour", "replace", self.address, "lladdr", mac("cable", self.prefix), "dev", BRIDGE, "nud", "permanent")
        run(*self.prefix, "ip", "neighbour", "replace", "10.77.0.1", "lladdr", mac(BRIDGE), "dev", "cable",
            "nud", "permanent")

    def cut(self, cut):
        run("bridge", "link", "set", "dev", self.cable, "state", "0" if cut else "3")


def mac(device, prefix=()):
    shown = subprocess.run([*prefix, "ip", "-o", "link", "show", device], capture_output=True, text=True, check=True).stdout
    return shown.split("link/ether ")[1].split()[0]

"""A Slurm cluster of two nodes on the loopback device, without accounting, with its own munge."""

import pathlib
import signal
import socket
import subprocess
import time

import work

CONF = """
ClusterName=grids
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
CredType=cred/munge
SlurmctldPort={ports[0]}
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
ReturnToService=1
SlurmdTimeout=5
MessageTimeout=5
KillWait=2
MinJobAge=600
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Slurm:
    """The cluster. Its processes end with it."""

    def __init__(self, folder, environment):
        self.folder, self.environment = folder, environment | {"SLURM_CONF": str(folder / "slurm.conf")}
        for name in ("state", "spool-n1", "spool-n2"):
            (folder / name).mkdir(parents=True)
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, ports=[free_port() for _ in range(3)]))
        key = folder / "munge.key"
        key.write_bytes(pathlib.Path("/dev/urandom").open("rb").read(1024))
        key.chmod(0o400)
        own = [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
        munge = ["/usr/sbin/munged", "--foreground", "--force", f"--key-file={key}", *own]
        self.running = {"munged": subprocess.Popen(munge, stderr=subprocess.DEVNULL)}
        self.until(lambda: (folder / "munge.socket").exists(), "munged listens")
        self.running["slurmctld"] = self.start("/usr/sbin/slurmctld", "-D")
        for node in ("n1", "n2"):
            self.running[node] = self.start("/usr/sbin/slurmd", "-D", "-N", node)
        self.until(lambda: self.say("sinfo", "-h", "-o", "%T").split() == ["idle"], "both nodes are idle")

    def start(self, *command):
        """Starts a daemon in a process group of its own."""
        return subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL, start_new_session=True)

    def say(self, *command):
        """The output of one of Slurm's commands."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True).stdout

    def until(self, holds, what, patience=600):
        """Waits."""
        deadline = time.monotonic() + patience
        while not holds():
            if time.monotonic() > deadline:
                raise SystemExit(f"slurm: not true after {patience} s: {what}; see {self.folder}")
            time.sleep(0.2)

    def lose(self, node, task):
        """Kills a node: its daemon, and the task with the step that started it."""
        step = int(pathlib.Path(f"/proc/{task}/stat").read_text().rsplit(")", 1)[1].split()[1])
        for pid in (self.running[node].pid, step, task):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        self.running.pop(node).wait()

    def stop(self):
        """Ends all daemons, the last started first."""
        for process in reversed(self.running.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def node_of(task):
    """The node on which a task runs."""
    for variable in pathlib.Path(f"/proc/{task}/environ").read_bytes().split(b"\0"):
        if variable.startswith(b"SLURMD_NODENAME="):
            return variable.split(b"=", 1)[1].decode()
    raise SystemExit(f"slurm: process {task} is not a task")


def run(cluster, grid, kind):
    """Submits the recipe, loses a node in the middle of a cell, and waits for the end."""
    log = cluster.folder / f"{kind}-%a.out"
    command = [work.ROOT / "deploy/grids/slurm.sh", *grid.arguments("slurm", kind)]
    job = cluster.say("sbatch", "--parsable", "-o", str(log), *map(str, command)).strip()
    found = []
    cluster.until(lambda: found.append(grid.victim("slurm", kind)) or found[-1], f"a cell of {kind} is in its middle")
    task = found[-1]
    node = node_of(task)
    cluster.lose(node, task)
    print(f"slurm {kind}: lost node {node} in the middle of a cell", flush=True)
    cluster.until(lambda: not cluster.say("squeue", "-h", "-j", job).strip(), f"{kind} has ended")
    restarts = [line for line in cluster.say("scontrol", "show", "job", job).split() if line.startswith("Restarts=")]
    print(f"slurm {kind}: {' '.join(sorted(restarts))}", flush=True)
    cluster.running[node] = cluster.start("/usr/sbin/slurmd", "-D", "-N", node)
    cluster.until(lambda: cluster.say("sinfo", "-h", "-o", "%T").split() == ["idle"], "both nodes are idle again")
    grid.check("slurm", kind)

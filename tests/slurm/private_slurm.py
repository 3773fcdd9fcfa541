# SPDX-License-Identifier: Apache-2.0
"""A Slurm of one's own on this machine: controller, emulated nodes and munge in a folder, gone when it is left.

    with PrivateSlurm(num_nodes=2) as slurm:
        slurm.run(["srun", "-n", "4", program, "train", ...])

No other Slurm, munge or user of the machine notices: ports, sockets, keys and state are its own. The nodes
share the machine; messages between them go through TCP on the loopback device.
"""

import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo", "scancel"]

CONFIGURATION = """\
ClusterName=orthant
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
PlugStackConfig=/dev/null
CommunicationParameters=NoInAddrAny
JobRequeue=1
KillWait=5
SlurmdTimeout=10
SchedulerParameters=bf_interval=1,sched_interval=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
NodeName=n[1-{num_nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{node_ports}] CPUs={cpus} RealMemory=8000
PartitionName=test Nodes=ALL Default=YES OverSubscribe=YES MaxTime=UNLIMITED State=UP
"""


def missing_programs():
    """What a private Slurm needs and this machine does not have."""
    return [name for name in PROGRAMS if not find(name)]


def find(name):
    # Debian keeps daemons where normal users do not look.
    return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class PrivateSlurm:
    """`num_nodes` emulated nodes of `cpus` processors each."""

    def __init__(self, num_nodes=1, cpus=8):
        self.num_nodes, self.cpus = num_nodes, cpus
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="orthant-slurm-"))
        self.daemons, self.controller = [], None
        self.environment = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"),
                                OMPI_MCA_btl="self,tcp", OMPI_MCA_btl_tcp_if_include="lo")

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # Jobs first, which their nodes then end; then every daemon, the last one first.
        subprocess.run([find("scancel"), "--user", getpass.getuser()], env=self.environment, timeout=20,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        munge = self.folder / "munge"
        munge.mkdir(mode=0o700)
        self.folder.chmod(0o755)
        key = munge / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        (self.folder / "state").mkdir()
        # Where a node's number stands in for its name, %n is replaced by Slurm and by us alike.
        ports = free_ports(1 + self.num_nodes)
        for node in self.nodes():
            for kind in ("spool", "tmp"):
                (self.folder / f"{kind}-{node}").mkdir()
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname(), user=getpass.getuser(), folder=self.folder, controller_port=ports[0],
            num_nodes=self.num_nodes, node_ports=",".join(map(str, ports[1:])), cpus=self.cpus))
        self.launch("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
                    f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self.wait_for(lambda: (munge / "socket").exists(), "munged")
        self.controller = self.launch("slurmctld", "-D")
        for node in self.nodes():
            self.launch("slurmd", "-D", "-N", node)
        self.wait_for(lambda: self.count_nodes("idle") == self.num_nodes, "slurmctld and slurmd")

    def restart_controller(self):
        """Kills slurmctld, as in a crash, and starts another one on what the first has left on the disk. That may be
        some seconds old: jobs that are younger are forgotten, and their numbers given away again; jobs that had started
        are started again, which their nodes refuse. Slurm then drains the nodes."""
        self.controller.kill()
        self.controller.wait()
        self.controller = self.launch("slurmctld", "-D")
        self.wait_for(lambda: self.run(["squeue", "-h"]).returncode == 0, "slurmctld is back")

    def resume_nodes(self):
        """As an administrator does with nodes that Slurm has drained."""
        if self.count_nodes("drained") or self.count_nodes("draining"):
            self.run(["scontrol", "update", f"NodeName=n[1-{self.num_nodes}]", "State=RESUME"])

    def nodes(self):
        return [f"n{number}" for number in range(1, self.num_nodes + 1)]

    def launch(self, name, *arguments):
        log = open(self.folder / f"{name}.out", "ab")
        self.daemons.append(subprocess.Popen([find(name), *arguments], env=self.environment, stdout=log,
                                             stderr=log, stdin=subprocess.DEVNULL))
        return self.daemons[-1]

    def count_nodes(self, state):
        listed = subprocess.run([find("sinfo"), "-h", "-N", "-o", "%T"], env=self.environment, text=True,
                                capture_output=True, check=False).stdout.split()
        return sum(word == state for word in listed)

    def wait_for(self, is_true, what, seconds=60):
        """Polls. Raises RuntimeError, with the ends of all logs, after `seconds`."""
        end = time.monotonic() + seconds
        while not is_true():
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not so after {seconds} s\n{self.log_ends()}")
            time.sleep(0.2)

    def log_ends(self):
        return "\n".join(f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-8:])
                         for path in sorted(self.folder.glob("*.*")) if path.suffix in (".log", ".out"))

    def run(self, command, timeout=240, **options):
        """Runs one of Slurm's programs to its end, and returns its subprocess.CompletedProcess."""
        return subprocess.run([find(command[0]), *map(str, command[1:])], env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False,
                              **options)

    def submit(self, *arguments):
        """sbatch; returns the job's number."""
        done = self.run(["sbatch", "--parsable", *arguments])
        if done.returncode:
            raise RuntimeError(f"sbatch: {done.stdout}")
        return done.stdout.split(";")[0].strip()

    def job(self, number):
        """What `scontrol show job` says, as a dictionary; {} when Slurm has forgotten it."""
        shown = self.run(["scontrol", "-o", "show", "job", number])
        if shown.returncode:
            return {}
        return dict(word.split("=", 1) for word in shown.stdout.split() if "=" in word)

    def wait_for_job(self, number, states=("COMPLETED",), seconds=240):
        self.wait_for(lambda: self.job(number).get("JobState") in states, f"job {number} {'/'.join(states)}",
                      seconds)

    def fail_node(self, node):
        """As in a power failure: the node's daemon and all that runs under this Slurm is killed, so jobs must be on
        that node alone; and Slurm is told that the node is down, as it finds out by itself after a while."""
        os.kill(int((self.folder / f"{node}.pid").read_text()), signal.SIGKILL)
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes()
                is_job = b"SLURM_JOB_ID=" in (process / "environ").read_bytes() or command.startswith(b"slurmstepd")
                if is_job and mark in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
            except (OSError, ValueError):
                pass  # it is gone, or somebody else's
        self.run(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=failed"])

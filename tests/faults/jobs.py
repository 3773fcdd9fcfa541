# SPDX-License-Identifier: Apache-2.0
"""Runs the program under attack with bounded time and memory, and says what must not happen to it."""

import os
import re
import resource
import subprocess

LIMIT = float(os.environ.get("ORTHANT_FAULTS_LIMIT", 20))  # seconds after which a job counts as hung
MEMORY = 12 << 30  # bytes of addresses per process: what a hostile size asks for beyond them is not there
SIGNAL = r"exited on signal|Caught signal|received signal|terminate called"


class Program:
    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.mpirun = os.environ["ORTHANT_MPIRUN"].split()
        libraries = subprocess.run(["ldd", self.path], capture_output=True, text=True).stdout
        self.is_bounded = "libasan" not in libraries  # which wants all addresses there are

    def bound_memory(self):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.is_bounded:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def run(self, ranks, *arguments, folder=None):
        """(status, text) on so many ranks, in `folder`; the status is None if the job hangs."""
        command = ([] if ranks == 1 else self.mpirun + [str(ranks)]) + [self.path] + [str(word) for word in arguments]
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", preexec_fn=self.bound_memory, cwd=folder)
        try:
            text, _ = job.communicate(timeout=LIMIT)
            return job.returncode, text
        except subprocess.TimeoutExpired:
            job.terminate()  # mpirun ends its ranks
            try:
                text, _ = job.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                job.kill()
                text, _ = job.communicate()
            return None, text

    @staticmethod
    def gist(text):
        """The lines of error, or the end of what a job printed."""
        return " | ".join(re.findall(r"^orthant: error: .*", text, re.M))[:300] or " ".join(text.split())[-300:]

    @staticmethod
    def fault(status, text):
        """What is wrong with a job that was given bad input: None for status 0, or 2 with one line of error."""
        if status is None:
            return "HUNG"
        if status < 0 or status > 128 or re.search(SIGNAL, text):
            return "SIGNAL"
        if status not in (0, 2):
            return f"STATUS {status}"
        errors = len(re.findall(r"^orthant: error: ", text, re.M))
        if errors != (status == 2):
            return f"{errors} LINES OF ERROR"
        if re.search(r"\w+\(.*\) failed", text):
            return "SOURCE TEXT IN THE MESSAGE"
        return None

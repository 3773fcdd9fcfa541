#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets one event of one rank of two fail, at many points of each command, and looks at what is left.

inject.py PROGRAM LIBRARY [--points 15] [--only JOB ..] [--jobs 3]   spreads so many points over each command's events
inject.py PROGRAM LIBRARY --repeat JOB:KIND:RANK:N:OLD               one point again, with all that it prints

LIBRARY is inject.cpp's, which describes the kinds. After an injection a job has to end within 5 s with status 1 or 2
and its cause on one line, or to go on and end with 0 and right outputs. Either way nothing incomplete may stand under
a final name, and what was there before is as it was or replaced by what is right. OLD is 1 if outputs existed before.
"""

import argparse
import collections
import concurrent.futures
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

MPIRUN = os.environ["ORTHANT_MPIRUN"].split()
LIMIT = float(os.environ.get("ORTHANT_FAULTS_LIMIT", 20))  # seconds after the injection (or six times as many in all) after which a job counts as hung
GRACE = 5  # seconds from the injection to the end of a job that fails
# Of 15 points, how many of each kind.
SHARES = {"alloc": 5, "eio": 4, "enospc": 3, "eintr": 2, "eagain": 1}
START = 100  # allocations of a program that starts
CAUSES = {"alloc": r"memory|alloc", "eio": r"Input/output error", "enospc": r"No space left|do(es)? not fit",
          "eintr": r"Interrupted", "eagain": r"temporarily unavailable"}
SIGNAL = r"exited on signal|Caught signal|received signal|terminate called"

TRAIN = "train --graph {inputs}/graph.h5 --layers 2 --hidden 16 --dropout 0 --eval-every 1 --save-weights {run}/weights.h5 "
METRICS = " --metrics {run}/metrics.jsonl"
TRAIN_LM = ("train-lm --tokens {inputs}/tokens.h5 --layers 1 --hidden 16 --heads 2 --sequence 8 --global-batch 4 --steps 4 "
            "--warmup-steps 1 --eval-every 2 --save-weights {run}/lm.h5")
# What a job is: outputs; how a run replaces older ones (None: it refuses to); processes; inputs that it writes beside, so that
# each run has its own copy; whether findings are a result of it, with status 1.
Job = collections.namedtuple("Job", "arguments outputs replaces ranks copies finds", defaults=["--force", 2, (), False])
JOBS = {
    "partition": Job("partition --input {inputs}/graph -o {run}/graph.h5" + METRICS, ["graph.h5"]),
    "generate": Job("generate --kind sbm --vertices 3000 --edges 9000 --features 16 --classes 4 -o {run}/graph", ["graph"], None),
    "generate_ogb": Job("generate --kind sbm --vertices 3000 --edges 9000 --features 16 --classes 4 --format ogb -o {run}/graph",
                        ["graph"], None),
    "export": Job("export {inputs}/graph.h5 -o {run}/graph --format ogb", ["graph"], None),
    "export_npy": Job("export {inputs}/graph.h5 -o {run}/graph --format npy", ["graph"], None),
    "train": Job(TRAIN + "--epochs 2" + METRICS, ["weights.h5", "weights-best.h5"]),
    "train_minibatch": Job(TRAIN + "--mode minibatch --batch 256 --epochs 1" + METRICS, ["weights.h5", "weights-best.h5"]),
    "evaluate": Job("evaluate --graph {inputs}/graph.h5 --weights {inputs}/weights.h5 --predictions {run}/classes.npy" + METRICS,
                    ["classes.npy"]),
    "tokenize": Job("tokenize --input {inputs}/text.txt -o {run}/tokens.h5", ["tokens.h5"]),
    "train_lm": Job(TRAIN_LM + METRICS, ["lm.h5"]),
    "evaluate_lm": Job("evaluate-lm --tokens {inputs}/tokens.h5 --weights {inputs}/lm.h5" + METRICS, []),
    "export_weights": Job("export-weights {inputs}/weights.h5 -o {run}/w.safetensors", ["w.safetensors"]),
    "import_weights": Job("import-weights {inputs}/w.safetensors -o {run}/w.h5", ["w.h5"]),
    "study_init": Job("study init -o {run}/new.toml", ["new.toml"], ranks=1),
    "study_collect": Job("study collect {run}/study.toml", ["study.study/results.jsonl"], ranks=1, copies=("study.toml", "study.study")),
    "study_report": Job("study report {inputs}/study.toml -o {run}/report", ["report/one.svg", "report/report.html"], ranks=1),
    "doctor": Job("doctor --checkpoint {run} --grid 1x2x1x1", [], finds=True),
}
# The share of the points that a command gets; those in two forms share theirs.
SHARE_OF = dict.fromkeys(["generate", "generate_ogb", "export", "export_npy"], 1 / 2) | dict.fromkeys(list(JOBS)[8:], 1 / 3)
OLD_TEXT = '{"event": "older"}\n'

Point = collections.namedtuple("Point", "job kind rank number old")
Result = collections.namedtuple("Result", "outcome problems seconds text where")


def files_below(path):
    if os.path.isfile(path):
        return [""]
    return sorted(os.path.relpath(os.path.join(folder, name), path) for folder, _, names in os.walk(path) for name in names)


def equal(ours, reference):
    if not os.path.exists(ours):
        return False
    if filecmp.cmp(ours, reference, shallow=False):
        return True
    return ours.endswith(".h5") and subprocess.run(["h5diff", ours, reference], capture_output=True).returncode == 0


def stamps(folder):
    return {name: (os.stat(os.path.join(folder, name)).st_mtime_ns, os.stat(os.path.join(folder, name)).st_size)
            for name in files_below(folder)}


def injection_in(report):
    """The second of the injection that `report` tells of, or None."""
    if not os.path.exists(report):
        return None
    with open(report, encoding="utf-8") as file:
        words = file.readline().split()
    return float(words[1]) if words[:1] == ["injected"] else None


def has_findings(job, status, text):
    """Whether a job that looks for faults has found some, and says so by its status."""
    return JOBS[job].finds and status == 1 and re.search(r"^\d+ findings?$", text, re.M) is not None


class Attack:
    def __init__(self, program, library, scratch):
        self.program, self.library, self.scratch = program, library, scratch
        self.inputs = os.path.join(scratch, "inputs")
        self.counts = collections.Counter()

    def command(self, job, run, inject, rank, report, extra=""):
        words = (JOBS[job].arguments + " " + extra).format(inputs=self.inputs, run=run).split()
        environment = dict(os.environ, LD_PRELOAD=self.library, ORTHANT_INJECT=inject, ORTHANT_INJECT_RANK=str(rank),
                           ORTHANT_INJECT_FOLDER=self.scratch, ORTHANT_INJECT_REPORT=report)
        # env keeps the library out of mpirun itself.
        variables = [f"{name}={environment[name]}" for name in environment if name.startswith(("ORTHANT_INJECT", "LD_PRELOAD"))]
        return MPIRUN + [str(JOBS[job].ranks), "env"] + variables + [self.program] + words

    def run(self, command, report=None):
        """Status (None if it hangs), text, and the second in which it ended. Time counts from the injection, if any."""
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace")
        began = time.time()
        while True:
            try:
                text, _ = job.communicate(timeout=0.5)
                return job.returncode, text, time.time()
            except subprocess.TimeoutExpired:
                injected = injection_in(report) if report else None
                if time.time() < (injected + LIMIT if injected else began + 6 * LIMIT):
                    continue
            job.terminate()  # mpirun ends its ranks
            try:
                text, _ = job.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                job.kill()
                text, _ = job.communicate()
            return None, text, time.time()

    def callers(self, where):
        """The functions of the program on the way to the injection, innermost first."""
        places = re.findall(re.escape(self.program) + r"\(\+(0x[0-9a-f]+)\)", where)
        names = subprocess.run(["addr2line", "-Cfe", self.program] + places, capture_output=True, text=True).stdout.split("\n")[::2]
        return [re.sub(r"\(.*", "", name)[:110] for name in names if name]

    def must(self, *words):
        done = subprocess.run(MPIRUN + ["2", self.program] + list(words), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")

    def prepare(self):
        os.mkdir(self.inputs)
        graph = os.path.join(self.inputs, "graph")
        cora = os.path.join(os.environ.get("ORTHANT_DATA", ""), "datasets", "cora")
        if os.path.isdir(cora):
            shutil.copytree(cora, graph)
        else:
            self.must("generate", "--kind", "sbm", "--vertices", "2700", "--edges", "5300", "--features", "300", "--classes",
                      "7", "-o", graph)
        self.must("partition", "--input", graph, "-o", self.inputs + "/graph.h5")
        train = TRAIN.format(inputs=self.inputs, run=self.inputs)
        self.must(*train.split(), "--epochs", "2")
        with open(self.inputs + "/text.txt", "w", encoding="utf-8") as file:
            file.write("In the beginning there was a tensor, and it was 3D.\n" * 40)
        for job in ("tokenize", "train_lm", "export_weights"):
            self.must(*JOBS[job].arguments.format(inputs=self.inputs, run=self.inputs).replace(METRICS.format(run=self.inputs), "").split())
        study = self.inputs + "/study.toml"
        with open(study, "w", encoding="utf-8") as file:
            file.write('name = "study"\n[jobs]\npredict = "host"\n[[strong]]\nname = "one"\ngraphs = ["karate"]\nranks = [1]\n'
                       'options = "--epochs 3 --hidden 8"\n')
        launcher = ["--launcher", " ".join(MPIRUN)]
        for words in (["submit", study, "--here", *launcher], ["collect", study]):
            done = subprocess.run([self.program, "study", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"study {words}: status {done.returncode}\n{done.stdout}{done.stderr}")

    def copy_inputs(self, job, run):
        for name in JOBS[job].copies:
            copy = shutil.copytree if os.path.isdir(os.path.join(self.inputs, name)) else shutil.copy
            copy(os.path.join(self.inputs, name), os.path.join(run, name))

    def reference(self, job):
        """Runs the job undisturbed; its outputs are the right ones, and its events are counted."""
        run = os.path.join(self.scratch, "reference_" + job)
        os.mkdir(run)
        self.copy_inputs(job, run)
        report = os.path.join(run, "events")
        extra = JOBS[job].replaces if JOBS[job].copies else ""
        status, text, _ = self.run(self.command(job, run, "alloc:0", "all", report, extra))
        if status != 0 and not has_findings(job, status, text):
            sys.exit(f"{job} undisturbed: status {status}\n{text}")
        for rank in range(JOBS[job].ranks):
            # If all ranks end with status 1, the first one's end may be that of the others, too.
            if JOBS[job].finds and not os.path.exists(report + str(rank)):
                continue
            with open(report + str(rank), encoding="utf-8") as file:
                for line in file:
                    _, kind, count = line.split()
                    self.counts[job, kind, rank] = int(count)
        # An older output of the same name, which is not what a run makes.
        for name in JOBS[job].outputs:
            with open(os.path.join(run, name + ".old"), "wb") as file:
                file.write(b"older output\n" * 100)

    def points(self, job, budget):
        chosen = []
        for kind, share in SHARES.items():
            counts = [self.counts[job, kind, rank] for rank in range(JOBS[job].ranks)]
            wanted = min(budget * share // 15 or 1, sum(counts))
            ranks = [rank for rank, count in enumerate(counts) if count > 0]
            # One in five lies where the program starts, before any command; not at the same place for every job.
            num_early = max(1, wanted // 5) if kind == "alloc" else 0
            shift = (list(JOBS).index(job) + 0.5) / len(JOBS)
            for i in range(wanted):
                rank = ranks[i % len(ranks)]
                if i < num_early:
                    number = 1 + int((i + shift) / num_early * START)
                else:
                    number = 1 + int((i - num_early + 0.5) / (wanted - num_early) * counts[rank])
                old = 0 if JOBS[job].replaces is None else i // 2 % 2
                chosen.append(Point(job, kind, rank, number, old))
        return sorted(set(chosen))

    def try_point(self, point):
        arguments, outputs, replaces, *_ = JOBS[point.job]
        run = tempfile.mkdtemp(prefix=point.job + "_", dir=self.scratch)
        reference = os.path.join(self.scratch, "reference_" + point.job)
        metrics = os.path.join(run, "metrics.jsonl")
        self.copy_inputs(point.job, run)
        if point.old:
            for name in outputs:
                os.makedirs(os.path.dirname(os.path.join(run, name)), exist_ok=True)
                shutil.copy(os.path.join(reference, name + ".old"), os.path.join(run, name))
            if METRICS in arguments:
                with open(metrics, "w", encoding="utf-8") as file:
                    file.write(OLD_TEXT)
        elif JOBS[point.job].copies: # a folder in which nothing was made
            for name in outputs:
                os.remove(os.path.join(run, name))
        before = stamps(self.inputs)
        report = os.path.join(run, "events")
        inject = f"{point.kind}:{point.number}"
        extra = replaces if point.old else ""
        status, text, end = self.run(self.command(point.job, run, inject, point.rank, report, extra), report + str(point.rank))
        injected, where = injection_in(report + str(point.rank)), ""
        if injected:
            with open(report + str(point.rank), encoding="utf-8") as file:
                where = file.read()
            os.remove(report + str(point.rank))
        outcome, problems = self.judge(point, status, text, injected)
        seconds = end - injected if injected else 0
        if injected and status != 0 and seconds > GRACE:
            problems.append(f"ended only {seconds:.1f} s after the injection")
        problems += self.look_at_outputs(point, run, reference, status)
        if point.old and "--metrics" in arguments:
            with open(metrics, encoding="utf-8") as file:
                if not file.read().startswith((OLD_TEXT, '{"event":"run"')):  # until the run writes its own first one
                    problems.append("the older lines of the metrics are lost")
        if stamps(self.inputs) != before:
            problems.append("an input has been touched")
        if not problems:
            shutil.rmtree(run)
        return Result(outcome, problems, seconds, text, where)

    def judge(self, point, status, text, injected):
        errors = re.findall(r"orthant: error: .*", text)
        if signal := re.search(f".*({SIGNAL}).*", text):
            return "signal", ["died of a signal: " + signal.group().strip()]
        if status is None:
            return "hung", [f"still running after {LIMIT} s"]
        if status == 0 or has_findings(point.job, status, text):
            return "went on" if injected else "not reached", []
        if status not in (1, 2):
            return f"status {status}", [f"status {status}"]
        problems = []
        if len(errors) != 1:
            problems.append(f"{len(errors)} lines of error")
        if not any(re.search(CAUSES[point.kind], line, re.I) for line in errors):
            problems.append("the cause is not named: " + (errors[0] if errors else "no line at all"))
        if not injected:
            problems.append("failed although nothing was injected")
        # A call of the program itself that was interrupted has to be repeated.
        if point.kind in ("eintr", "eagain"):
            problems.append("was not repeated")
        return f"status {status}", problems

    def look_at_outputs(self, point, run, reference, status):
        _, outputs, replaces, *_ = JOBS[point.job]
        problems = []
        for name in outputs:
            ours, right = os.path.join(run, name), os.path.join(reference, name)
            names = files_below(right)
            good = [part for part in names if equal(os.path.join(ours, part).rstrip("/"), os.path.join(right, part).rstrip("/"))]
            present = [part for part in names if os.path.exists(os.path.join(ours, part).rstrip("/"))]
            if len(good) == len(names):
                continue
            if status == 0:
                problems.append(f"status 0, but {name} is wrong: {len(good)} of {len(names)} files are right")
            elif point.old:
                if not filecmp.cmp(ours, right + ".old", shallow=False) if os.path.exists(ours) else True:
                    problems.append(f"the older {name} is lost")
            elif len(good) < len(present):
                bad = sorted(set(present) - set(good))
                problems.append(f"incomplete under its final name: {name}/{bad[0]}".rstrip("/"))
            elif present:
                problems.append(f"{len(present)} of {len(names)} files of {name} stand under their final names")
        # Whatever is left over must not stand in the way of the next run.
        expected = {"metrics.jsonl"} | {os.path.join(name, part).rstrip("/") for name in outputs
                                       for part in files_below(os.path.join(reference, name))}
        for name in JOBS[point.job].copies:
            expected |= {os.path.join(name, part).rstrip("/") for part in files_below(os.path.join(self.inputs, name))}
        left = sorted(set(files_below(run)) - expected)
        if status != 0 and left:
            if point.job == "partition":
                problems.append(f"left {left[0]}")
            again, text, _ = self.run(self.command(point.job, run, "alloc:0", "none", os.path.join(run, "events"),
                                                   replaces if point.old else ""))
            if again != 0:
                problems.append(f"left {left[0]}, and the next run ends with {again}: {text.strip()[:200]}")
            elif set(files_below(run)) - expected:
                problems.append(f"left {left[0]}, and the next run left {sorted(set(files_below(run)) - expected)[0]}")
        return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("library")
    parser.add_argument("--points", type=int, default=15)
    parser.add_argument("--only", nargs="+", default=list(JOBS))
    parser.add_argument("--kinds", nargs="+", default=list(SHARES))
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--repeat")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orthant_inject_") as scratch:
        attack = Attack(os.path.abspath(options.program), os.path.abspath(options.library), os.path.realpath(scratch))
        attack.prepare()
        if options.repeat:
            job, kind, rank, number, old = options.repeat.split(":")
            attack.reference(job)
            result = attack.try_point(Point(job, kind, int(rank), int(number), int(old)))
            print(result.text, result.where, *attack.callers(result.where), f"{result.outcome} after {result.seconds:.1f} s", *result.problems, sep="\n")
            return 1 if result.problems else 0
        for job in options.only:
            attack.reference(job)
        points = [point for job in options.only
                  for point in attack.points(job, int(options.points * SHARE_OF.get(job, 1)))
                  if point.kind in options.kinds]
        return report(attack, options.jobs, points)


def report(attack, num_jobs, points):
    table = collections.Counter()
    failures = []
    slowest = 0
    with concurrent.futures.ThreadPoolExecutor(num_jobs) as pool:
        for point, result in zip(points, pool.map(attack.try_point, points)):
            if len(result.problems) == 1 and result.problems[0].startswith("ended only"):
                result = attack.try_point(point)  # other work on this machine may have held it up
            table[point.job, point.kind, "FAILED" if result.problems else result.outcome] += 1
            if result.outcome.startswith("status"):
                slowest = max(slowest, result.seconds)
            if result.problems:
                failures.append((point, result))
                print("FAIL", ":".join(map(str, point)), "; ".join(result.problems), flush=True)
                for line in result.where.splitlines()[:1]:
                    print("    ", line)
    outcomes = sorted({key[2] for key in table})
    print(f"\n{'command':16} {'kind':8}" + "".join(f"{outcome:>12}" for outcome in outcomes))
    for job, kind in sorted({key[:2] for key in table}):
        print(f"{job:16} {kind:8}" + "".join(f"{table[job, kind, outcome]:12}" for outcome in outcomes))
    print(f"{'all':25}" + "".join(f"{sum(n for key, n in table.items() if key[2] == outcome):12}" for outcome in outcomes))
    print(f"{len(points)} points, {len(failures)} failed; slowest end {slowest:.1f} s after its injection")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

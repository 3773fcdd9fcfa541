# SPDX-License-Identifier: Apache-2.0
"""The steps that are right or wrong: builds, vendor's products, tests, sanitizers, losses on the device beside the host's."""
import concurrent.futures
import contextlib
import json
import math
import os
import re

import jobs
import machine
import suite
from report import Outcome

SANITIZER_SECONDS = {"memcheck": 90, "racecheck": 150}  # a test program, of little time
LONG_SANITIZER_SECONDS = 300  # of much: at most half of what is left
BUILD_SECONDS = 3600
TRAINING_SECONDS = 120


def judged(done, limit):
    if done.timed_out:
        return Outcome("cut", f"ended after {limit:.0f} s", log=done.output)
    if done.status != 0:
        return Outcome("failed", f"status {done.status}", log=done.output)
    return Outcome("passed", log=done.output)


def run_step(check, name, command, kind, seconds):
    limit = min(seconds, check.clock.left())
    return jobs.run(command, check.place.environment(kind), limit, check.logs / f"{name}.log"), limit


# --- builds, of the way with a source tree --------------------------------------------------------------------------------


def build(check, kind, *options):
    folder, source = check.place.work / kind, check.place.source
    script = 'cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release "${@:4}" && cmake --build "$2" --parallel "$3"'
    command = ["bash", "-c", script, "build", source, folder, os.environ.get("ORTHANT_JOBS", os.cpu_count()), *options]
    outcome = judged(*run_step(check, f"build_{kind}", command, kind, BUILD_SECONDS))
    if outcome.result == "passed" and kind == check.place.device_kind:
        check.place.read_tests()
    return outcome


def build_host(check):
    return build(check, "host")


def build_device(check):
    return build(check, "device", f"-DKokkos_ROOT={check.kokkos}", f"-DCMAKE_CXX_COMPILER={check.kokkos}/bin/nvcc_wrapper",
                 "-DORTHANT_ENABLE_NCCL=ON")


# --- the vendor's products without Kokkos ---------------------------------------------------------------------------------


def vendor(check):
    """Checks the products of the packed program, and of the one that this machine's nvcc makes of the plain CUDA sources."""
    said = re.compile(r"[0-9]+ devices|refused|all products|SOME PROD|FAILED|not checked")
    outcomes = []
    packed = check.place.program("vendor_check")
    if packed.is_file():
        outcomes.append(("packed", judged(*run_step(check, "vendor_packed", [packed], "device", 120))))
    if machine.has("nvcc"):
        os.environ.pop("ORTHANT_CUDA_KOKKOS", None)  # its sources are built by another step, or were packed
        capability = re.search(r"([0-9]+)\.([0-9]+)$", check.device)
        os.environ["ORTHANT_BUILD_DIR"] = str(check.place.work / "cuda-check")
        os.environ["ORTHANT_CUDA_ARCHITECTURES"] = "".join(capability.groups()) if capability else "90"
        command = ["bash", check.place.source / "scripts/check_cuda.sh"]
        outcomes.append(("by nvcc here", judged(*run_step(check, "vendor", command, "device", 240))))
    if not outcomes:
        return Outcome("skipped", "no nvcc here, and no packed program")
    for _, one in outcomes:
        nothing = re.search(r"not checked: anything.*", one.log)
        if one.result == "passed" and nothing:
            one.result, one.reason = "skipped", nothing.group()
        elif one.result == "passed" and "\n0 devices" in "\n" + one.log and not check.is_rehearsal:
            one.result, one.reason = "failed", "the CUDA runtime sees no device"
    worst = next(one for word in ("failed", "cut", "passed", "skipped") for _, one in outcomes if one.result == word)
    worst.lines = [f"{name}: {line.removeprefix('check_cuda: ')}" for name, one in outcomes
                   for line in one.log.splitlines() if said.search(line)]
    return worst


# --- the suite ------------------------------------------------------------------------------------------------------------


def tests(check, pattern):
    chosen = [test for test in check.place.tests() if re.search(pattern, test["name"])]
    if not chosen:
        return Outcome("skipped", "the list holds no such test")
    with contextlib.nullcontext() if check.is_rehearsal else machine.shared_device() as is_shared:
        cores = min(check.cores, machine.MOST_SHARING) if is_shared else check.cores
        results = suite.run_tests(chosen, check.place.command_of, check.place.environment_of, check.clock, cores, check.logs)
    by = {word: [one for one in results if one.result == word] for word in ("passed", "failed", "skipped", "cut")}
    for one in results:
        check.report.record({"test": one.name, "result": one.result, "seconds": round(one.seconds, 2),
                             "reason": one.reason})
        if one.result == "failed":
            check.report.show_failure(one.name, one.log)
    counts = ", ".join(f"{len(these)} {word}" for word, these in by.items() if these)
    lines = [f"{word}: {one.name}: {one.reason}" for word in ("failed", "skipped", "cut") for one in by[word]]
    if is_shared and by["failed"]:
        lines.append("the Multi-Process Service ran: a fault of one process may have ended others")
    verdict = "failed" if by["failed"] else "cut" if by["cut"] else "passed" if by["passed"] else "skipped"
    return Outcome(verdict, counts, lines)


def tests_on_ranks(check, ranks):
    """The first of these steps also names the tests of more ranks, which no step runs."""
    outcome = tests(check, rf"\.np{ranks}$")
    others = [test["name"] for test in check.place.tests() if re.search(r"\.np(?![1-4]$)[0-9]+$", test["name"])]
    if others and not check.has_named_others:
        outcome.lines.append("not run: " + ", ".join(others))
    check.has_named_others = True
    return outcome


def tests_np1(check):
    return tests_on_ranks(check, 1)


def tests_np2(check):
    return tests_on_ranks(check, 2)


def tests_np3(check):
    return tests_on_ranks(check, 3)


def tests_np4(check):
    return tests_on_ranks(check, 4)


def tests_drivers(check):
    outcome = tests(check, r"^(?!.*\.np[0-9]+$)")
    if check.place.left_out():
        outcome.lines.append("left out, they need the source tree or take long: " + ", ".join(check.place.left_out()))
    return outcome


def trajectories(check):
    """Those of the reference data by name, in both precisions, as the test of them tells."""
    program = check.place.program("test_models_trajectory")
    folder = check.place.data() / "reference"
    if not folder.is_dir():
        return Outcome("skipped", f"no reference data in {folder}")
    os.environ["ORTHANT_DATA"] = str(check.place.data())
    done, limit = run_step(check, "trajectories", [*check.place.mpirun(), "1", program], "device", 300)
    outcome = judged(done, limit)
    cases = json.loads((folder / "gcn_cora_trajectory.json").read_text())["cases"]
    outcome.lines = [f"{len(cases)} trajectories in the file"]
    outcome.lines += [line.strip() for line in done.output.splitlines() if re.match(r"\[ +(OK|FAILED|SKIPPED) +\]", line)]
    if outcome.result == "passed" and "[       OK ]" not in done.output:
        return Outcome("skipped", "the test skipped them all", outcome.lines)
    return outcome


# --- compute-sanitizer ----------------------------------------------------------------------------------------------------


def sanitize_one(check, tool, program):
    """passed, failed or cut, and what to say about it."""
    left = check.clock.left()
    limit = min(max(SANITIZER_SECONDS[tool], min(left / 2, LONG_SANITIZER_SECONDS)), left)
    if limit <= 2:
        return "cut", f"cut: {program}: not begun, no time left"
    # Inside mpirun: alone, the program would start a daemon, which the tool would follow.
    command = [*check.place.mpirun(), "1", "compute-sanitizer", "--tool", tool, "--error-exitcode", "86", "--print-limit", "20",
               check.place.program(program)]
    done = jobs.run(command, check.place.environment("device"), limit, check.logs / f"{tool}-{program}.log")
    errors = len(re.findall(r"^========= (?:Invalid|Error|Race reported|Program hit)", done.output, re.MULTILINE))
    summary = "; ".join(re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", done.output)) or "no summary"
    if done.timed_out and not errors:
        return "cut", f"cut: {program}: ended after {limit:.0f} s, nothing found so far"
    word = "passed" if done.status == 0 and not done.timed_out else "failed"
    if word == "failed":
        check.report.show_failure(f"{tool} {program}", done.output)
    return word, f"{word}: {program}: {summary}, status {done.status}, {done.seconds:.0f} s"


def sanitize(check, tool, pattern):
    if check.is_rehearsal:
        return Outcome("skipped", "a rehearsal without a device")
    if not machine.has("compute-sanitizer"):
        return Outcome("skipped", "no compute-sanitizer here")
    programs = sorted({test["command"][-1].rsplit("/", 1)[-1] for test in check.place.tests()
                       if re.search(pattern, test["name"]) and test["name"].endswith(".np1")})
    if not programs:
        return Outcome("skipped", "the list holds no such test")
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(min(check.cores // 2, 4), 1)) as pool:
        results = list(pool.map(lambda program: sanitize_one(check, tool, program), programs))
    words = [word for word, _ in results]
    verdict = "failed" if "failed" in words else "cut" if "cut" in words else "passed"
    count = f"{words.count('passed')} of {len(programs)} test programs are clean"
    return Outcome(verdict, count, [line for _, line in results])


def memcheck(check):
    return sanitize(check, "memcheck", r"^(pmm|sampling|models|runtime)\.")


def racecheck(check):
    return sanitize(check, "racecheck", r"^pmm\.")


# --- device and host ------------------------------------------------------------------------------------------------------

TOLERANCES = {"fp32": 1e-5, "fp64": 1e-10}
MODELS = {"plain": ["--dropout", "0"], "dropout 0.5": ["--dropout", "0.5"]}
# Together they use most kernels of graph networks. In fp32 what two orders of summation differ by grows past the limit in 20 epochs.
FP64_MODELS = {
    "attention": "--model gatv2 --heads 4 --norm layer --activation elu --edge-dropout 0.2 --attention-dropout 0.2".split(),
    "transformer": "--model transformer --heads 4 --residual project --activation gelu --norm batch".split(),
    "maximum": "--model sage --aggregator max --edge-dropout 0.2 --norm rms --activation silu --trainable-features".split(),
    "jump": "--model graphconv --aggregator mean --jump max --residual identity --activation tanh --label-smoothing 0.1".split(),
    "focal": "--model tag --loss focal --class-weights balanced --activation leaky_relu --norm batch --head --jump cat".split()}


def models_of(dtype):
    return MODELS | (FP64_MODELS if dtype == "fp64" else {})


def train(check, kind, dtype, model):
    name = f"losses-{kind}-{dtype}-{model.split()[0]}"
    metrics = check.place.work / f"{name}.jsonl"
    metrics.unlink(missing_ok=True)
    command = check.place.on(kind, 1, "train", "--dataset", "sbm:vertices=2000,classes=8,features=32", "--layers", "3",
                             "--hidden", "64", "--epochs", "20", "--seed", "1", "--compute-dtype", dtype, *models_of(dtype)[model],
                             "--metrics", metrics)
    done, _ = run_step(check, name, command, kind, TRAINING_SECONDS)
    if done.status != 0:
        return None, done
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [event["loss"] for event in events if event["event"] == "epoch"], done


def not_finite(name, values):
    """The first epoch whose loss is no number, in words. JSON has null for those."""
    return next((f"epoch {epoch} on the {name} has the loss {value}" for epoch, value in enumerate(values, 1)
                 if value is None or not math.isfinite(value)), "")


def losses(check, dtype):
    lines, worst = [], 0.0
    for model in models_of(dtype):
        device, done = train(check, "device", dtype, model)
        host, done_host = train(check, "host", dtype, model)
        if not device or not host or len(device) != len(host):
            failed = done if not device else done_host
            return Outcome("cut" if failed.timed_out else "failed", f"{model}: no losses to compare", lines, log=failed.output)
        problem = not_finite("device", device) or not_finite("host", host)
        if problem:
            return Outcome("failed", f"{model}: {problem}", lines)
        difference = max(abs(a - b) / abs(b) for a, b in zip(device, host))
        worst = max(worst, difference)
        lines.append(f"{model}: {len(host)} epochs, largest relative difference {difference:.2e}")
        lines += [f"  epoch {epoch:2d}  device {device[epoch - 1]:.12g}  host {host[epoch - 1]:.12g}"
                  for epoch in (1, 2, 5, 10, 20)]
        check.report.record({"losses": model, "dtype": dtype, "device": device, "host": host})
    is_close = worst <= TOLERANCES[dtype]
    return Outcome("passed" if is_close else "failed", f"{worst:.2e}, at most {TOLERANCES[dtype]:g} is right", lines)


def losses_fp32(check):
    return losses(check, "fp32")


def losses_fp64(check):
    return losses(check, "fp64")

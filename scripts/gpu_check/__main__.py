# SPDX-License-Identifier: Apache-2.0
"""Checks and measures Orthant on a machine with an NVIDIA device, in one call that ends with one table.

From a source tree it builds Orthant for the device and for the host first. With --tree, or when it lies in such a tree
itself, it runs what scripts/make_gpu_tree.sh packed, and compiles nothing but the plain CUDA check.
In the folder --out: table.txt, results.jsonl (a line a test, a measurement and a step) and failures.txt (first failures and ends of logs).
Exit status: 0 nothing failed, 1 something did (the table says what), 2 something that it needs is not here.
"""
import argparse
import dataclasses
import os
import pathlib
import sys
import tempfile

import benchmarks
import checks
import language_models
import machine
from jobs import Clock
from place import Builds, Missing, Place, Tree
from report import Outcome, Report

BUILDS = {"build_host": (checks.build_host, "builds Orthant for the host"),
          "build_device": (checks.build_device, "builds Orthant and its tests for the device")}
STEPS = {"vendor": (checks.vendor, "nvcc compiles the plain CUDA sources; cuBLAS and cuSPARSE through them are right"),
         "trajectories": (checks.trajectories, "the reference trajectories in fp32 and fp64, 1 rank"),
         "losses_fp32": (checks.losses_fp32, "same-seed losses on device and host within 1e-5"),
         "losses_fp64": (checks.losses_fp64, "same-seed losses on device and host within 1e-10"),
         "losses_lm": (language_models.losses_lm, "train-lm and evaluate-lm in fp64, device and host within 1e-10; a preset"),
         "tests_np1": (checks.tests_np1, "tests on 1 rank, collectives through NCCL"),
         "bench_spmm": (benchmarks.bench_spmm, "SpMM, R-MAT with 2M vertices and 64M non-zeros, widths 32 to 256"),
         "bench_epoch": (benchmarks.bench_epoch, "an epoch on an R-MAT of the size of ogbn-products"),
         "bench_batches": (benchmarks.bench_batches, "epochs of mini-batches on that graph, made by kernels and on the host"),
         "bench_gemm": (benchmarks.bench_gemm, "the dense products of that epoch"),
         "torch": (benchmarks.torch, "the same epoch in PyTorch, time and memory"),
         "tests_np2": (checks.tests_np2, "tests on 2 ranks that share the device, over MPI"),
         "tests_np3": (checks.tests_np3, "tests on 3 ranks that share the device, over MPI"),
         "tests_np4": (checks.tests_np4, "tests on 4 ranks that share the device, over MPI"),
         "tests_drivers": (checks.tests_drivers, "tests that start jobs of their own"),
         "memcheck": (checks.memcheck, "compute-sanitizer memcheck on the tests of 1 rank"),
         "racecheck": (checks.racecheck, "compute-sanitizer racecheck on the tests of pmm")}
FOR_THE_TABLE = 10  # seconds of the limit that are kept for the end


@dataclasses.dataclass
class Check:
    place: Place
    report: Report
    clock: Clock
    logs: pathlib.Path
    device: str
    kokkos: str
    is_rehearsal: bool
    cores: int
    stores: object = None
    has_named_others: bool = False  # the tests of ranks that no step has


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Missing(f"{message}; see --help")


def parse(arguments, source):
    parser = Parser(prog="gpu_check.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                    allow_abbrev=False)
    parser.add_argument("--tree", type=pathlib.Path, help="a tree of make_gpu_tree.sh (default: the one that this lies in)")
    parser.add_argument("--kokkos", default=os.environ.get("Kokkos_ROOT"), help="from a source tree: the Kokkos built for "
                        "CUDA (default: $Kokkos_ROOT, else what bootstrap.sh --kokkos cuda built)")
    parser.add_argument("--out", type=pathlib.Path, help="the results (default: build-gpu-check in the source tree, "
                        "gpu-check beside the relocated one)")
    parser.add_argument("--work", type=pathlib.Path, help="builds, logs and graphs of several GB, kept for the next call "
                        "(default: work in --out)")
    parser.add_argument("--only", default="", metavar="STEP,..", help="these steps; --list names them all")
    parser.add_argument("--skip", default="", metavar="STEP,..", help="all but these")
    parser.add_argument("--limit", type=float, default=0, metavar="SECONDS", help="end with the table in this time (0: none)")
    parser.add_argument("--dry-run", action="store_true", help="a rehearsal without a device: the host's programs in the "
                        "place of the device's, small graphs")
    parser.add_argument("--list", action="store_true", help="name the steps and end")
    options = parser.parse_args(arguments)
    own = (source / "../../..").resolve()
    if options.tree is None and (own / "share/orthant/tests.json").is_file() and source == own / "share/orthant/source":
        options.tree = own
    if options.tree is not None:
        options.tree = options.tree.resolve()
    return options


def choose_steps(options):
    known = STEPS if options.tree else BUILDS | STEPS
    only, skip = ([name for name in text.split(",") if name] for text in (options.only, options.skip))
    for name in set(skip) & set(BUILDS):
        raise Missing(f"--skip {name}: what is built is built always; it costs little where nothing changed")
    for name in only + skip:
        if name not in known:
            raise Missing(f"no step {name}; the steps are {', '.join(known)}")
    builds = [] if options.tree else list(BUILDS)
    return [name for name in known if (not only or name in only or name in builds) and name not in skip]


def make_place(options, source, work):
    if options.tree:
        return Tree(options.tree, work, options.dry_run)
    kokkos = options.kokkos or str(pathlib.Path(os.environ.get("ORTHANT_PREFIX", source / ".deps")) / "kokkos-cuda")
    os.environ.pop("Kokkos_ROOT", None)  # the host's build has a Kokkos of its own
    options.kokkos = kokkos
    if not options.dry_run and not os.access(f"{kokkos}/bin/nvcc_wrapper", os.X_OK):
        raise Missing(f"no Kokkos for CUDA in {kokkos}; scripts/bootstrap.sh --kokkos cuda builds one")
    for program in ("cmake", "ninja", "mpirun", *([] if options.dry_run else ["nvcc"])):
        if not machine.has(program):
            raise Missing(f"no {program} on PATH")
    commit = machine.output_of("git", "-C", str(source), "describe", "--always", "--dirty") or "unknown"
    return Builds(source, work, options.dry_run, commit)


def headline(device, place, facts):
    return [f"Orthant on {device}", f"commit {place.commit}, " + ", ".join(f"{key} {value}" for key, value in facts.items())]


def run_all(check, steps):
    """Every step, whatever became of those before it; returns those that no time was left for."""
    left_over, can_run = [], True
    builds = [name for name in steps if name in BUILDS]
    for name in steps:
        if check.clock.left() <= 1:
            left_over.append(name)
            continue
        print(f"gpu_check: {name} ..", flush=True)
        begin = check.clock.passed()
        step = (BUILDS | STEPS)[name][0]
        try:
            outcome = step(check) if can_run or name in BUILDS else Outcome("skipped", "the build failed")
        except Exception as error:  # noqa: BLE001: one step's fault must not cost the others
            outcome = Outcome("failed", f"the check itself: {type(error).__name__}: {error}")
        check.report.add(name, outcome, check.clock.passed() - begin)
        if name in BUILDS:
            can_run = can_run and outcome.result == "passed"
            if name == builds[-1] and can_run:
                check.stores = benchmarks.Stores(check, benchmarks.needs(steps))
    return left_over


def main(arguments):
    source = pathlib.Path(__file__).resolve().parents[2]
    options = parse(arguments, source)
    steps = choose_steps(options)
    if options.list:
        print("\n".join(f"{name:<14} {(BUILDS | STEPS)[name][1]}" for name in steps))
        return 0
    clock = Clock(max(options.limit - FOR_THE_TABLE, 1) if options.limit else 0)
    machine.add_usual_places()
    device = "no device: a rehearsal with the host's programs" if options.dry_run else machine.device()
    if not device:
        raise Missing("nvidia-smi shows no device here")
    out = (options.out or (options.tree.parent / "gpu-check" if options.tree else source / "build-gpu-check")).resolve()
    work = (options.work or out / "work").resolve()
    place = make_place(options, source, work)
    for folder in (out, work):
        folder.mkdir(parents=True, exist_ok=True)
    facts = machine.facts() | (machine.python_facts() if "torch" in steps else {})
    report = Report(out, headline(device, place, facts))
    report.record({"device": device, "commit": place.commit, **facts})
    with tempfile.TemporaryDirectory(prefix="logs-", dir=work) as logs:
        check = Check(place, report, clock, pathlib.Path(logs), device, options.kokkos, options.dry_run, facts["cores"])
        if options.tree:
            check.stores = benchmarks.Stores(check, benchmarks.needs(steps))
        elif options.dry_run:
            steps = [name for name in steps if name != "build_device"]
        left_over = run_all(check, steps)
        print("\n" + report.finish(left_over), flush=True)
        if check.stores:
            check.stores.finish()
    print(f"gpu_check: {out}/table.txt")
    return 1 if report.has_failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Missing as missing:
        sys.exit(print(f"gpu_check: error: {missing}", file=sys.stderr) or 2)

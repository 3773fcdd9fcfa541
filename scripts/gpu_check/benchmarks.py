# SPDX-License-Identifier: Apache-2.0
"""The steps that measure. They pass where they ran; whether a figure is good enough stands beside it in the table."""
import json
import threading

import jobs
import machine
from report import Outcome

LIMIT = 240  # seconds of one benchmark
TORCH_LIMIT = 420
MIB = 1 << 20

# Each edge is stored in both directions and repeats are merged: 33,554,432 edges become 63.5 million non-zeros of A, and
# 66 million become 124 million.
GRAPHS = {"spmm": {"vertices": 2097152, "edges": 33554432, "features": 0},
          "products": {"vertices": 2450000, "edges": 66000000, "features": 100, "classes": 47}}
REHEARSAL = 256  # a rehearsal's graphs are this much smaller


class Stores:
    """Writes the graphs on the host, in the background while other steps use the device. One that is there is kept."""

    def __init__(self, check, names):
        self._check = check
        self._problems = {}
        self._threads = {name: threading.Thread(target=self._write, args=(name,), daemon=True) for name in names}
        for thread in self._threads.values():
            thread.start()

    def path(self, name):
        shrunk = f"-over-{REHEARSAL}" if self._check.is_rehearsal else ""
        return self._check.place.work / f"{name}{shrunk}.h5"

    def wait(self, name):
        """The store, or what went wrong, one of them None."""
        thread = self._threads.get(name)
        if thread is not None:
            thread.join(max(min(self._check.clock.left(), 1e6), 0))
            if thread.is_alive():
                return None, "its graph is still being written"
        problem = self._problems.get(name)
        return (None, problem) if problem else (self.path(name), None)

    def finish(self):
        """Nothing is left running when the check ends."""
        for thread in self._threads.values():
            thread.join()

    def _write(self, name):
        store = self.path(name)
        if store.exists():
            return
        graph = dict(GRAPHS[name])
        if self._check.is_rehearsal:
            graph |= {key: graph[key] // REHEARSAL for key in ("vertices", "edges")}
        folder = store.with_suffix("")
        sizes = [word for key, value in graph.items() for word in (f"--{key}", value)]
        steps = [["generate", "--kind", "rmat", "--seed", "1", "-o", folder, *sizes],
                 ["partition", "--input", folder, "-o", store]]
        for arguments in steps:
            place = self._check.place
            done = jobs.run([place.orthant("host"), *arguments], place.environment("host"), self._check.clock.left(),
                            self._check.logs / f"store_{name}-{arguments[0]}.log")
            if done.status != 0:
                said = (done.output.strip().splitlines() or ["nothing"])[-1]
                self._problems[name] = f"orthant {arguments[0]} ended with status {done.status}: {said}"
                return
        for path in sorted(folder.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        folder.rmdir()


def needs(steps):
    """The graphs that the chosen steps read."""
    readers = {"spmm": {"bench_spmm"}, "products": {"bench_epoch", "bench_batches", "torch"}}
    return [name for name, of in readers.items() if of & set(steps)]


def measure(check, name, *arguments):
    """Runs `orthant bench`; what lines it printed count, even when it was ended. No line at all is a failure."""
    limit = min(LIMIT, check.clock.left())
    command = check.place.on("device", 1, "bench", *arguments)
    done = jobs.run(command, check.place.environment("device"), limit, check.logs / f"{name}.log")
    lines = [json.loads(line) for line in done.output.splitlines() if line.startswith("{") and line.endswith("}")]
    for line in lines:
        check.report.record({"measured": name, **line})
    if done.timed_out:
        return Outcome("cut", f"ended after {limit:.0f} s", log=done.output), lines
    if done.status != 0:
        return Outcome("failed", f"status {done.status}", log=done.output), lines
    if not lines:
        return Outcome("failed", "printed no figures", log=done.output), lines
    return Outcome("done"), lines


def other_figures(line, known):
    """Comparisons that the line holds beside the usual figures: the vendor's library, kernels that were tried."""
    return [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in line.items()
            if key not in known and any(word in key for word in ("library", "own", "chosen", "bare", "share"))
            and isinstance(value, (int, float, str))]


def bench_spmm(check):
    store, problem = check.stores.wait("spmm")
    if problem:
        return Outcome("skipped", problem)
    outcome, lines = measure(check, "bench_spmm", "spmm", "--graph", store, "--widths", "32,64,128,256", "--stream-mib",
                             "8" if check.is_rehearsal else "1024")
    if lines:
        outcome.lines.append(f"{lines[0]['vertices']} vertices, {lines[0]['nonzeros']} non-zeros, fp32; memory moves "
                             f"{lines[0]['stream_gb_per_s']:.0f} GB/s")
        heads = ("gathered GB/s", "of copy", "compulsory GB/s", "of copy")
        outcome.lines.append(" ".join([f"{'width':>5} {'ms':>9}", *[f"{head:>15}" for head in heads]]))
    for line in lines:
        figures = [f"{line[f'{kind}_gb_per_s']:>15.0f} {line[f'{kind}_share']:>15.2f}" for kind in ("gathered", "compulsory")]
        outcome.lines.append(" ".join([f"{line['width']:>5} {line['seconds'] * 1e3:>9.3f}", *figures]))
        more = other_figures(line, ("gathered_share", "compulsory_share"))
        more += [f"{way['way']} {way['seconds'] * 1e3:.3f} ms" for way in line.get("ways", [])]
        outcome.lines += ["      " + ", ".join(more)] if more else []
    alone = [str(line["width"]) for line in lines if len(line.get("ways", [])) < 2]
    if alone and not check.is_rehearsal and outcome.result != "failed":
        outcome.result, outcome.reason = "failed", f"the library's product was not measured at width {', '.join(alone)}"
    return outcome


def bench_gemm(check):
    small = ["--gemm-size", "256", "--stream-mib", "8"] if check.is_rehearsal else []
    outcome, lines = measure(check, "bench_gemm", "gemm", "--rows", "9570" if check.is_rehearsal else "2450000", "--widths",
                             "100-128-128-47", "--dropout", "0", *small)
    for line in lines:
        shape = "x".join(str(line[key]) for key in ("m", "n", "k") if key in line)
        parts = [str(line.get("product", "all of an epoch")), shape]
        parts += [f"{line['seconds'] * 1e3:.3f} ms"] if "seconds" in line else []
        parts += [f"{line['gflop_per_s']:.0f} GFLOP/s"] if "gflop_per_s" in line else []
        parts += [f"{line['gb_per_s']:.0f} GB/s"] if "gb_per_s" in line else []
        outcome.lines.append(", ".join([part for part in parts if part] + other_figures(line, ())))
    return outcome


def bench_epoch(check):
    store, problem = check.stores.wait("products")
    if problem:
        return Outcome("skipped", problem)
    outcome, lines = measure(check, "bench_epoch", "epoch", "--graph", store, "--layers", "3", "--hidden", "128", "--dropout",
                             "0", "--epochs", "10", "--stream-mib", "8" if check.is_rehearsal else "1024")
    for line in lines:
        ms = {key: value * 1e3 for key, value in line.items() if key.endswith("seconds")}
        outcome.lines.append(f"{line['vertices']} vertices, {line['nonzeros']} non-zeros with self loops, {line['dtype']}, "
                             f"100-128-128-47: {ms['seconds']:.2f} ms an epoch (least {ms['min_seconds']:.2f})")
        outcome.lines.append(f"its products by themselves {ms['bare_seconds']:.2f} ms (SpMM {ms['bare_spmm_seconds']:.2f}, "
                             f"GEMM {ms['bare_gemm_seconds']:.2f}): x {line['ratio']:.3f}; dense products reach "
                             f"{line['gemm_arithmetic_share']:.2f} of the limit of arithmetic")
        outcome.lines += [f"{key}: {value / MIB:.0f} MiB" for key, value in line.items()
                          if "memory" in key and key.endswith("bytes")]
        outcome.lines += [describe_product(product) for product in line.get("products", [])]
    return outcome


def bench_batches(check):
    """Epochs of 25 mini-batches, made by kernels and on the host, in fp32; by kernels also in bf16."""
    store, problem = check.stores.wait("products")
    if problem:
        return Outcome("skipped", problem)
    vertices = 400 if check.is_rehearsal else 98000
    outcome = Outcome("done")
    for source, operands, epochs in (("device", "fp32", 6), ("device", "bf16", 6), ("host", "fp32", 2)):
        if operands == "bf16" and check.is_rehearsal:
            continue  # the products of some hosts have no bf16
        name = f"batches-{source}-{operands}"
        metrics = check.place.work / f"{name}.jsonl"
        metrics.unlink(missing_ok=True)
        command = check.place.on("device", 1, "train", "--graph", store, "--mode", "minibatch", "--batch", vertices, "--batch-source",
                                 source, "--batch-edges", "rescale", "--operand-dtype", operands, "--layers", 3, "--hidden", 128, "--dropout", 0, "--epochs",
                                 epochs, "--eval-every", 0, "--metrics", metrics)
        done = jobs.run([str(word) for word in command], check.place.environment("device"), min(LIMIT, check.clock.left()),
                        check.logs / f"{name}.log")
        if done.timed_out or done.status != 0:
            outcome.result, outcome.reason = ("cut", "no time left") if done.timed_out else ("failed", f"status {done.status}")
            outcome.log = done.output
            return outcome
        epochs_of = [line for line in map(json.loads, metrics.read_text().splitlines()) if line["event"] == "epoch"][1:]
        if not epochs_of:
            return Outcome("failed", "the metrics have no second epoch", outcome.lines, log=done.output)
        fastest = min(epochs_of, key=lambda line: line["seconds"])
        check.report.record({"measured": name, **fastest})
        phases = ", ".join(f"{phase} {seconds * 1e3:.1f}" for phase, seconds in fastest["phases"].items())
        outcome.lines.append(f"made by {source}, {operands}: {fastest['seconds'] * 1e3:.1f} ms an epoch of batches of {vertices} ({phases})")
    return outcome


def describe_product(product):
    if "gathered_gb_per_s" in product:
        rate = f"gathered {product['gathered_gb_per_s']:.0f} GB/s"
    else:
        rate = f"{product['gflop_per_s']:.0f} GFLOP/s"
    return (f"  layer {product['layer']} {product['product']}: {product['seconds'] * 1e3:.3f} ms, "
            f"{product['gb_per_s']:.0f} GB/s, {rate}")


def torch(check):
    """The same epochs in PyTorch on the same device: compare_torch.py's own table, and its JSON."""
    script = check.place.source / "tests/bench/compare_torch.py"
    found = machine.can_import("torch")
    if found.timed_out:
        return Outcome("failed", f"python3 was still importing torch after {machine.IMPORT_SECONDS} s")
    if not found.version:
        return Outcome("skipped", "python3 cannot import torch here")
    if not check.is_rehearsal and "--device" not in machine.output_of("python3", str(script), "--help"):
        return Outcome("skipped", "compare_torch.py knows the host only")
    store, problem = check.stores.wait("products")
    if problem:
        return Outcome("skipped", problem)
    result = check.place.work / "torch.json"
    result.unlink(missing_ok=True)
    command = ["python3", script, "--graph", store, "--ranks", "1", "--epochs", "8", "--repeats",
               "1" if check.is_rehearsal else "2", "--orthant", check.place.wrapper(), "--python", "python3", "--mpirun",
               " ".join(check.place.mpirun()), "--work", check.place.work / "torch", "--json", result]
    if not check.is_rehearsal:
        command += ["--device", "cuda"]
    limit = min(TORCH_LIMIT, check.clock.left())
    threads = {"OMP_NUM_THREADS": str(check.cores)}  # to prepare the graph; what is timed sets its own
    done = jobs.run(command, check.place.environment("host") | threads, limit, check.logs / "torch.log")
    if done.timed_out:
        return Outcome("cut", f"ended after {limit:.0f} s", done.output.splitlines()[-12:], log=done.output)
    if done.status != 0:
        return Outcome("failed", f"status {done.status}", log=done.output)
    check.report.record({"measured": "torch", **json.loads(result.read_text())})
    return Outcome("done", "", [line for line in done.output.splitlines() if line.strip()])

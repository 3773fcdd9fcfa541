# SPDX-License-Identifier: Apache-2.0
"""What commands write: never in place of an input, never a half file under its own name.

outputs.py ORTHANT PART, where PART is
  distinct    an output that is an input, or another output, is refused; both are untouched
  metrics     of an earlier run are kept, unless --force is given or the run goes on with that one; a new start gives them another name
  full_disk   a small file system: one line within seconds, nothing left behind, older files as they were
  killed      SIGKILL while generate, export and train write: nothing looks complete, and the retry works
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

ORTHANT = sys.argv[1]
MPIRUN = os.environ.get("ORTHANT_MPIRUN", "mpirun --oversubscribe --bind-to none -n").split()
SKIPPED = 77
LIMIT = 60  # seconds after which a run counts as hung
FINAL_NAMES = {"edge_index.npy", "x.npy", "labels.npy", "meta.json", "raw", "split"}


def command(ranks, *arguments):
    return [*([] if ranks == 1 else [*MPIRUN, str(ranks)]), ORTHANT, *map(str, arguments)]


def run(ranks, *arguments, expect=0):
    done = subprocess.run(command(ranks, *arguments), capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != expect:
        sys.exit(f"{arguments} on {ranks} ranks: status {done.returncode}, not {expect}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def error_of(ranks, *arguments):
    """The one line that a mistake is answered with."""
    text = run(ranks, *arguments, expect=2)
    lines = [line for line in text.splitlines() if line.startswith("orthant: error:")]
    if len(lines) != 1:
        sys.exit(f"{arguments}: {len(lines)} error lines\n{text}")
    return lines[0]


def require(condition, what):
    if not condition:
        sys.exit(what)


def content_of(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


def partial_files(folder):
    return [name for _, folders, files in os.walk(folder) for name in folders + files if ".partial" in name or ".part-" in name]


def make_store(scratch, name="g.h5"):
    graph, store = os.path.join(scratch, "graph"), os.path.join(scratch, name)
    if not os.path.exists(graph):
        run(1, "generate", "--kind", "sbm", "--vertices", 200, "--features", 8, "--classes", 3, "-o", graph)
    run(1, "partition", "--input", graph, "-o", store, "--force")
    return graph, store


def make_weights(store, path):
    run(1, "train", "--graph", store, "--epochs", 1, "--hidden", 8, "--layers", 2, "--save-weights", path)
    return path


def distinct(scratch):
    graph, store = make_store(scratch)
    weights = make_weights(store, os.path.join(scratch, "w.h5"))
    config = os.path.join(scratch, "run.toml")
    write(config, b"epochs = 1\n")
    soft, hard, new = (os.path.join(scratch, name) for name in ("soft.h5", "hard.h5", "new.h5"))
    os.symlink("g.h5", soft)
    os.link(store, hard)
    train = ["train", "--graph", store, "--epochs", 1, "--hidden", 8, "--layers", 2]
    evaluate = ["evaluate", "--graph", store, "--weights", weights]
    edges = os.path.join(scratch, "edges.metis2.txt")
    write(edges, b"0 1\n1 2\n")
    refused = [
        [*evaluate, "--predictions", store], [*evaluate, "--predictions", soft], [*evaluate, "--predictions", hard],
        [*evaluate, "--predictions", weights], [*evaluate, "--metrics", store], [*evaluate, "--trace", weights],
        [*evaluate, "--predictions", new, "--trace", new], [*evaluate, "--metrics", new, "--trace", "./" + os.path.relpath(new)],
        [*train, "--save-weights", store], [*train, "--metrics", hard], [*train, "--trace", soft],
        [*train, "--config", config, "--trace", config], [*train, "--config", config, "--save-weights", config],
        [*train, "--save-weights", new, "--metrics", new], [*train, "--init-from", weights, "--metrics", weights],
        ["info", store, "--trace", store], ["export", store, "-o", store], ["export", store, "-o", new, "--trace", store],
        ["partition", "--input", graph, "-o", new, "--trace", os.path.join(graph, "x.npy")],
        ["partition", "--input", graph, "-o", os.path.join(graph, "edge_index.npy"), "--force"],
        ["partition", "--input", graph, "-o", os.path.join(graph, "meta.json"), "--force"],
        ["partition", "--input", edges, "-o", os.path.join(scratch, "edges.h5"), "--metis", 2, "--force"],
        ["partition", "--input", edges, "-o", edges, "--force"],
        ["bench", "spmm", "--graph", store, "--metrics", store], ["bench", "machine", "--graph", store, "-o", store],
        ["bench", "epoch", "--graph", store, "--trace", store], [*train, "--machine", edges, "--metrics", edges],
    ]
    before = {path: content_of(path) for path in (store, weights, config, edges, os.path.join(graph, "x.npy"),
                                                  os.path.join(graph, "edge_index.npy"), os.path.join(graph, "meta.json"))}
    for place, arguments in enumerate(refused):
        line = error_of(1 + place % 2, *arguments)
        require("name " in line, f"{arguments}: does not say what would be right: {line}")
        for path, content in before.items():
            require(content_of(path) == content, f"{arguments} changed {path}")
        require(not os.path.exists(new), f"{arguments} made {new}")
    # Weights may be trained further in place only through another name; replacing an older result is fine.
    line = error_of(1, *train, "--init-from", weights, "--save-weights", weights)
    require("--init-from" in line, line)
    line = error_of(1, *train, "--save-weights", weights)
    require("--force replaces it" in line and content_of(weights) == before[weights], line)
    run(1, *train, "--save-weights", weights, "--force")
    run(2, *evaluate, "--predictions", new, "--metrics", "/dev/null", "--config", "/dev/null")
    line = error_of(2, *evaluate, "--predictions", new)
    require("--force replaces it" in line, line)
    line = error_of(1, "export", store, "-o", graph)
    require("--force replaces it" in line and content_of(os.path.join(graph, "x.npy")) == before[os.path.join(graph, "x.npy")], line)


def metrics(scratch):
    _, store = make_store(scratch)
    lines = os.path.join(scratch, "run.jsonl")
    train = ["train", "--epochs", 2, "--hidden", 8, "--layers", 2]
    error_of(1, *train, "--graph", os.path.join(scratch, "none.h5"), "--metrics", lines)
    require(not os.path.exists(lines), "a run that was refused made a file of metrics")
    run(1, *train, "--graph", store, "--metrics", lines)
    first = content_of(lines)
    require(first.count(b"\n") == 4 and first.startswith(b'{"event":"run"'), f"odd metrics {first}")
    for arguments in (["--graph", store], ["--graph", store, "--trace", os.path.join(scratch, "t.json")]):
        line = error_of(2, *train, *arguments, "--metrics", lines)
        require("--metrics" in line and "--force replaces it" in line, line)
    error_of(2, *train, "--graph", os.path.join(scratch, "none.h5"), "--metrics", lines, "--force")
    error_of(1, *train, "--graph", store, "--init-from", store, "--metrics", lines, "--force")
    require(content_of(lines) == first, "a run that was refused changed the metrics")
    run(2, *train, "--graph", store, "--metrics", lines, "--force")
    second = content_of(lines)
    require(second.count(b'"event":"run"') == 1 and second.count(b"\n") == 4, f"the second run did not replace the first: {second}")
    # A job that goes on with an earlier one, or would if that had come to a checkpoint.
    resumable = [*train, "--graph", store, "--metrics", lines, "--checkpoint", os.path.join(scratch, "c"), "--resume", "auto"]
    run(1, *resumable)
    require(content_of(lines + ".1") == second and content_of(lines).count(b'"event":"done"') == 1, "lines of two trainings in one file")
    run(1, *resumable)
    require(content_of(lines).count(b'"event":"done"') == 2 and not os.path.exists(lines + ".2"), "the training that goes on has lost its metrics")
    run(1, "evaluate", "--graph", store, "--weights", os.path.join(scratch, "c", "latest"), "--metrics", lines)
    run(1, *resumable)
    require(not os.path.exists(lines + ".2") and b'"event":"evaluate"' in content_of(lines), "lines of an evaluation are in the way")
    before = content_of(store)
    line = error_of(2, *train, "--dataset", "karate", "--metrics", store, "--force")
    require("holds no metrics" in line, line)
    require(content_of(store) == before, "the store was changed")


def small_disk(scratch, size):
    disk = os.path.join(scratch, "disk")
    os.mkdir(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True).returncode != 0:
        print("may not mount a small file system here")
        sys.exit(SKIPPED)
    return disk


def outputs_that_do_not_fit(scratch, folder):
    """Commands whose outputs in `folder` take more than 300 KB each."""
    big = os.path.join(scratch, "big")
    run(1, "generate", "--kind", "ring", "--vertices", 30_000, "--features", 8, "--classes", 3, "-o", big)
    big_store = os.path.join(scratch, "big.h5")
    run(1, "partition", "--input", big, "-o", big_store)
    weights = make_weights(big_store, os.path.join(scratch, "weights.h5"))
    few = ["--epochs", 1, "--layers", 3, "--eval-every", 0]
    return [
        (["train", "--dataset", "karate", "--hidden", 600, *few, "--save-weights", os.path.join(folder, "w.h5")], "w.h5"),
        (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", 20, "--hidden", 600, *few,
          "--save-weights", os.path.join(folder, "w.h5")], "w.h5"),
        *[(["evaluate", "--graph", big_store, "--weights", weights, "--predictions", os.path.join(folder, name)], name)
          for name in ("p.h5", "p.npy", "p.csv")],
        (["partition", "--input", big, "-o", os.path.join(folder, "s.h5"), "--force"], "s.h5"),
        (["generate", "--vertices", 30_000, "-o", os.path.join(folder, "made")], None),
        (["generate", "--vertices", 30_000, "--format", "ogb", "-o", os.path.join(folder, "made")], None),
        (["export", big_store, "-o", os.path.join(folder, "made"), "--format", "npy"], None),
        (["export", big_store, "-o", os.path.join(folder, "made"), "--format", "edgelist"], None),
    ]


def require_clean_failures(scratch, folder):
    for place, (arguments, output) in enumerate(outputs_that_do_not_fit(scratch, folder)):
        for ranks in (1, 2):
            has_old = output is not None and (place + ranks) % 2 == 0
            if has_old:
                write(os.path.join(folder, output), b"an older result")
            begin = time.monotonic()
            line = error_of(ranks, *arguments, *(["--force"] if has_old and "--force" not in arguments else []))
            require(time.monotonic() - begin < LIMIT / 2, f"{arguments} took {time.monotonic() - begin} s to fail")
            require("No space" in line or "disk" in line, f"{arguments}: unclear: {line}")
            left = [name for name in os.listdir(folder) if name != "made" or os.listdir(os.path.join(folder, name))]
            require(left == ([output] if has_old else []), f"{arguments} on {ranks} ranks left {left}")
            if has_old:
                require(content_of(os.path.join(folder, output)) == b"an older result", f"{arguments} destroyed {output}")
                os.remove(os.path.join(folder, output))


def full_disk(scratch):
    disk = small_disk(scratch, "100k")
    try:
        require_clean_failures(scratch, disk)
    finally:
        subprocess.run(["umount", disk], check=True)


def children_of(pid):
    """Of this process and theirs, children first."""
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            for child in map(int, file.read().split()):
                found += children_of(child) + [child]
    except OSError:
        pass
    return found


def kill_while_writing(arguments, folder, delay):
    """Kills the job soon after something new is in the folder. True unless the job was faster."""
    before = set(os.listdir(folder))
    job = subprocess.Popen(command(2, *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           start_new_session=True)
    deadline = time.monotonic() + LIMIT
    while job.poll() is None and set(os.listdir(folder)) == before and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay)
    for pid in [*children_of(job.pid), job.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    time.sleep(0.1)  # a rank finishes the system call that it is in
    return job.wait() != 0


def killed(scratch):
    draw = random.Random(1)
    generate = ["generate", "--vertices", 40_000, "--features", 32, "--seed", 3, "-o"]
    source, store = os.path.join(scratch, "source"), os.path.join(scratch, "g.h5")
    run(2, *generate, source)
    run(2, "partition", "--input", source, "-o", store)
    cases = [([*generate, None], ["partition", "--input", None, "-o", os.path.join(scratch, "again.h5"), "--force"]),
             (["export", store, "-o", None, "--format", "npy"],
              ["partition", "--input", None, "-o", os.path.join(scratch, "again.h5"), "--force"])]
    num_killed = 0
    for attempt in range(4):
        folder = os.path.join(scratch, f"out{attempt}")
        os.mkdir(folder)
        write_it, read_it = ([folder if word is None else word for word in words] for words in cases[attempt % 2])
        if not kill_while_writing(write_it, folder, draw.uniform(0, 0.3)):
            continue
        num_killed += 1
        names = set(os.listdir(folder))
        if "graph.moving" in names:  # killed while the complete files were moved to their places
            require("interrupted" in error_of(1, *read_it), "a part of a graph was refused for another reason")
        elif not FINAL_NAMES & names:
            error_of(1, *read_it)  # nothing there that could be taken for a graph
        else:
            run(1, *read_it)  # all of it is
        run(2, *write_it, "--force")
        require(not partial_files(folder), f"the retry left {partial_files(folder)}")
        run(1, *read_it)
    require(num_killed >= 2, f"only {num_killed} of 4 jobs were still running when they were killed: this shows nothing")

    weights = os.path.join(scratch, "weights", "w.h5")
    os.mkdir(os.path.dirname(weights))
    write(weights, b"an older result")
    train = ["train", "--dataset", "karate", "--epochs", 0, "--layers", 3, "--hidden", 2500, "--save-weights", weights, "--force"]
    # The check before the training makes an unfinished file, too: both moments are worth a test.
    for delay in (0, draw.uniform(0, 0.5)):
        if kill_while_writing(train, os.path.dirname(weights), delay):
            if content_of(weights) != b"an older result":  # the job was killed after it had renamed the new ones
                run(1, "train", "--dataset", "karate", "--epochs", 0, "--layers", 3, "--hidden", 2500, "--init-from", weights)
                write(weights, b"an older result")
    run(2, *train)
    require(os.listdir(os.path.dirname(weights)) == ["w.h5"], f"left {os.listdir(os.path.dirname(weights))}")
    run(1, "train", "--dataset", "karate", "--epochs", 0, "--layers", 3, "--hidden", 2500, "--init-from", weights)


if __name__ == "__main__":
    parts = {"distinct": distinct, "metrics": metrics, "full_disk": full_disk, "killed": killed}
    with tempfile.TemporaryDirectory() as scratch_folder:
        parts[sys.argv[2]](scratch_folder)

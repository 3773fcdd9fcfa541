#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batches of every sampler, what is said of them, and what a checkpoint records of them: samplers.py PROGRAM"""

import json
import os
import re
import shutil
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faults"))
import hdf5  # noqa: E402
import store_mutations  # noqa: E402
from program import PROGRAM, attempt_all, expect_mistake, expect_success, require  # noqa: E402

WAYS = [(sampler, edges) for sampler in ("uniform", "degree", "clusters") for edges in ("rescale", "renormalize")]
MODEL = ["--layers", "2", "--hidden", "8", "--eval-every", "2", "--compute-dtype", "fp64"]


def store_in(scratch, clusters):
    """1,200 vertices of degree 20, and METIS's clusters."""
    graph, store = os.path.join(scratch, "graph"), os.path.join(scratch, f"{clusters}.h5")
    expect_success(1, ["generate", "--kind", "sbm", "--vertices", "1200", "--edges", "12000", "--features", "4", "--classes", "8",
                       "--seed", "2", "-o", graph, "--force"])
    words = ["partition", "--input", graph, "-o", store]
    done = expect_success(1, words + (["--clusters", str(clusters)] if clusters else []))
    if clusters:
        require(re.search(rf"^clusters     {clusters}: \d+ of 11445 edges are between two clusters, largest / mean 1\.\d+$",
                          done.stdout, re.M), "does not describe the clusters", done)
    return store


def kept_of(done):
    line = re.search(r"^edges     a vertex keeps (\S+) of its 19\.1 neighbors on average$", done.stdout, re.M)
    require(line, "does not say what a vertex keeps", done)
    return float(line[1])


def losses_of(metrics):
    with open(metrics, encoding="utf-8") as file:
        return [record["loss"] for record in map(json.loads, file) if record["event"] == "epoch"]


def same_everywhere(ranks, grid):
    """Losses of every sampler on this grid are those of one rank; what a vertex keeps as well."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch, 64)
        info = expect_success(1, ["info", store])
        require("clusters    64\n" in info.stdout, "info does not tell the clusters", info)
        expect_success(ranks, ["info", store, "--verify"])
        for sampler, edges in WAYS:
            found = []
            for number, place in ((1, []), (ranks, ["--grid", grid])):
                metrics = os.path.join(scratch, f"{number}-{sampler}-{edges}.jsonl")
                done = expect_success(number, ["train", "--graph", store, "--mode", "minibatch", "--batch", "150", "--sampler", sampler,
                                               "--batch-edges", edges, "--epochs", "4", "--metrics", metrics, *MODEL, *place])
                found.append((losses_of(metrics), kept_of(done)))
            (losses, kept), (there, kept_there) = found
            require(max(abs(a - b) for a, b in zip(losses, there)) < 1e-10, f"{sampler}, {edges}: {losses}, {there}", done)
            require(kept == kept_there, f"{sampler}: keeps {kept}, {kept_there}", done)
            few = {"uniform": (2.3, 2.6), "degree": (2.3, 4.0), "clusters": (3.0, 20.0)}[sampler]
            require(few[0] <= kept <= few[1], f"{sampler} keeps {kept}", done)
            warned = "too few to learn from: give a larger --batch" in done.stderr
            require(warned == (kept < 5), f"{sampler} keeps {kept}; warned: {warned}", done)


def default_batch(ranks):
    """Half of the vertices; at least a batch for each data group."""
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch, 0)
        words = ["train", "--graph", store, "--mode", "minibatch", "--epochs", "1", *MODEL]
        for batch in ([], ["--batch", "auto"]):
            done = expect_success(ranks, [*words, *batch])
            require("batches   2 of at most 600 vertices an epoch" in done.stdout, "is no half", done)
        done = expect_success(8, [*words, "--grid", "8x1x1x1"])
        require("batches   8 of at most 150 vertices an epoch, 1 step of 8 groups x 1" in done.stdout, "has idle groups", done)
        config = os.path.join(scratch, "run.toml")
        for text, found in (("[train]\nbatch = 400\n", 400), ('[train]\nbatch = "auto"\n', 600)):
            with open(config, "w", encoding="utf-8") as file:
                file.write(text)
            done = expect_success(ranks, [*words, "--config", config])
            require(f"of at most {found} vertices" in done.stdout, f"does not take {text!r}", done)


def resumed(ranks):
    """A checkpoint records the sampler, the edges and the clusters."""
    with tempfile.TemporaryDirectory() as scratch:
        stores = {clusters: store_in(scratch, clusters) for clusters in (64, 48)}
        folder = os.path.join(scratch, "checkpoints")

        def words(clusters, sampler, edges, *more):
            return ["train", "--graph", stores[clusters], "--mode", "minibatch", "--batch", "150", "--sampler", sampler, "--batch-edges",
                    edges, "--checkpoint", folder, *MODEL, *more]

        expect_success(ranks, words(64, "clusters", "renormalize", "--epochs", "2"))
        go_on = ["--epochs", "3", "--resume", "auto"]
        expect_mistake(ranks, words(64, "uniform", "renormalize", *go_on), r"its --sampler is clusters, here it is uniform")
        expect_mistake(ranks, words(64, "clusters", "rescale", *go_on), r"its --batch-edges is renormalize, here it is rescale")
        expect_mistake(ranks, words(48, "clusters", "renormalize", *go_on), r"its clusters of the store is \S+, here it is \S+")
        expect_success(ranks, words(64, "clusters", "renormalize", *go_on))


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as scratch:
        store = store_in(scratch, 16)
        words = ["train", "--graph", store, "--mode", "minibatch", "--epochs", "1"]
        clusters = [*words, "--sampler", "clusters"]
        expect_mistake(ranks, [*clusters, "--batch", "40"], r"make 30 an epoch, but the store has 16 clusters; .*--clusters 60 or more")
        expect_mistake(ranks, [*clusters, "--batch", "75", "--batch-edges", "rescale"], r"some batches are one cluster, whose edges")
        expect_mistake(ranks, [*clusters, "--batch-train-fraction", "0.5"], r"works with --sampler uniform only")
        plain = os.path.join(scratch, "plain.h5")
        expect_success(1, ["partition", "--input", os.path.join(scratch, "graph"), "--normalize", "none", "-o", plain])
        expect_mistake(ranks, ["train", "--graph", plain, "--mode", "minibatch", "--batch-edges", "renormalize"],
                       r"renormalize needs a normalized graph: .*--normalize sym or row")
        expect_mistake(ranks, ["partition", "--input", os.path.join(scratch, "graph"), "--clusters", "1201", "-o", plain + "2"],
                       r"--clusters 1201: the graph has only 1200 vertices")


def damaged(ranks):
    """A store whose clusters are damaged is refused with a line that names them, with wrong checksums and with right ones."""
    path = hdf5.library_of(PROGRAM)
    if path is None:
        return  # HDF5 is not a library of the program's own
    library = hdf5.Library(path)
    with tempfile.TemporaryDirectory() as scratch:
        sound = store_in(scratch, 16)
        store = os.path.join(scratch, "damaged.h5")
        train = ["train", "--graph", store, "--mode", "minibatch", "--batch", "300", "--sampler", "clusters", "--epochs", "1", *MODEL]
        name = "/vertices/p1/clusters"

        def values_with(file, place, value):
            values = list(file.read(name).values)
            values[place] = value
            file.write(name, values)

        def only_one_order(file):
            """Each order by itself is sound: two vertices of different clusters change places in one of them."""
            values = list(file.read(name).values)
            other = next(i for i, cluster in enumerate(values) if cluster != values[0])
            values[0], values[other] = values[other], values[0]
            file.write(name, values)

        cases = [
            (lambda file: values_with(file, 5, 16), True, r"damaged\.h5.*clusters.*16"),
            (lambda file: values_with(file, 1199, -1), True, r"damaged\.h5.*clusters.*-1"),
            (lambda file: values_with(file, 7, 3 if file.read(name).values[7] != 3 else 4), False, r"damaged\.h5.*checksum.*clusters"),
            (lambda file: file.remove(name), True, r"damaged\.h5.*clusters"),
            (lambda file: file.replace(name, "i", (1199,), [0] * 1199), True, r"damaged\.h5.*clusters"),
            (only_one_order, True, r"damaged\.h5.*clusters")]
        for damage, has_right_sums, pattern in cases:
            shutil.copy(sound, store)
            with hdf5.File(library, store, hdf5.WRITE) as file:
                damage(file)
                if has_right_sums:
                    store_mutations.make_checksums_right(file)
            expect_mistake(ranks, ["info", store, "--verify"], pattern)
            # A rank that reads a part of a chunk cannot check its sum, and no rank compares the orders: --verify does.
            if damage is not only_one_order and (has_right_sums or ranks == 1):
                expect_mistake(ranks, train, pattern)


def recorded(ranks):
    """The line `run` of the metrics has the batches that `auto` made."""
    with tempfile.TemporaryDirectory() as scratch:
        metrics = os.path.join(scratch, "m.jsonl")
        done = expect_success(ranks, ["train", "--graph", store_in(scratch, 64), "--mode", "minibatch", "--sampler", "clusters", "--epochs",
                                      "1", "--metrics", metrics, *MODEL])
        with open(metrics, encoding="utf-8") as file:
            found = json.loads(file.readline())["batches"]
        kept = found.pop("kept_neighbors")
        require(found == {"sampler": "clusters", "edges": "renormalize", "vertices": 75, "number": 16}, f"records {found}", done)
        require(abs(kept - kept_of(done)) <= 0.05 + 1e-9, f"records {kept}", done)


def collapsed(ranks):
    """All first-layer activations die at a rate far too high: one line names the layer, once."""
    done = expect_success(ranks, ["train", "--dataset", "sbm:vertices=600,edges=3000,classes=6,features=4", "--lr", "30", "--layers", "2",
                                  "--hidden", "4", "--dropout", "0.9", "--epochs", "40", "--eval-every", "10", "--seed", "1"])
    lines = re.findall(r"epoch \d+: all vertices are predicted to be of one class, as layer 0 lets nothing pass", done.stderr)
    require(len(lines) == 1, f"{len(lines)} lines", done)
    sound = expect_success(ranks, ["train", "--dataset", "karate", "--epochs", "20", "--eval-every", "5"])
    require("all vertices are predicted" not in sound.stderr, "is warned of", sound)


if __name__ == "__main__":
    sys.exit(attempt_all([(2, (same_everywhere, "1x1x2x1")), (4, (same_everywhere, "1x2x1x2")), (2, (default_batch,)), (2, (resumed,)),
                          (1, (mistakes,)), (2, (mistakes,)), (1, (damaged,)), (3, (damaged,)), (2, (recorded,)), (1, (collapsed,)), (2, (collapsed,))]))

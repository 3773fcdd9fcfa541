# SPDX-License-Identifier: Apache-2.0
"""The graphs of compare_torch.py: each is made or found, partitioned, and written for PyTorch with the same weights."""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
from dataclasses import dataclass

from bench_programs import Mistake, alone, output_of

TRAINER = pathlib.Path(__file__).resolve().parent / "torch_trainer.py"
# A power-law graph of 48,980 vertices with 2,470,326 non-zeros in A, the size of ogbn-products / 50.
RMAT = ["--kind", "rmat", "--vertices", "48980", "--edges", "1514000", "--features", "100", "--classes", "47", "--seed", "1"]
# The size of ogbn-products: about 124 million non-zeros in A, for a device.
PRODUCTS = ["--kind", "rmat", "--vertices", "2450000", "--edges", "66000000", "--features", "100", "--classes", "47",
            "--seed", "1"]
TINY = ["--kind", "sbm", "--vertices", "300", "--edges", "1500", "--features", "12", "--classes", "5", "--seed", "1"]
GENERATED = {"rmat": RMAT, "products": PRODUCTS, "tiny": TINY}
TABLE = ["coauthor_physics", "arxiv_2023", "road_moscow", "slashdot0902"]
MADE_UP = {"features": "100", "labels": "47", "split": "0.6,0.2,0.2"}  # where a data set has none


@dataclass
class Case:
    """A graph, ready for both."""

    name: str
    store: pathlib.Path
    arrays: pathlib.Path  # for torch_trainer.py
    weights_file: pathlib.Path  # for --init-from
    weights: pathlib.Path  # the same as raw numbers
    sizes: dict
    widths: list[int]


def made_up(folder: pathlib.Path) -> list[str]:
    """The options of `orthant partition` that replace what the data set lacks."""
    has = lambda *names: any((folder / name).exists() for name in names)  # noqa: E731
    options = []
    if not has("npy/x.npy", "npy/x_indptr.npy", "raw/node-feat.csv.gz"):
        options += ["--random-features", MADE_UP["features"]]
    if not has("npy/labels.npy", "raw/node-label.csv.gz"):
        options += ["--random-labels", MADE_UP["labels"]]
    if not has("npy/train_idx.npy", "split"):
        options += ["--random-split", MADE_UP["split"]]
    return options


def make_store(options: argparse.Namespace, name: str, work: pathlib.Path) -> pathlib.Path:
    store = work / f"{name}-{options.permute}.h5"
    if store.exists():
        return store
    if name in GENERATED:
        folder, extra = work / name, []
        output_of(alone(options, "generate", *GENERATED[name], "-o", folder))
    else:
        folder = options.data / name if options.data else None
        if folder is None or not folder.is_dir():
            known = ", ".join([*GENERATED, *TABLE])
            raise Mistake(f"no case {name} ({known}, or a folder of --data, which is {options.data or 'not given'})")
        extra = made_up(folder)
    output_of(alone(options, "partition", "--input", folder, "-o", store, "--permute", options.permute, *extra))
    return store


def dump_weights(weights_file: pathlib.Path, folder: pathlib.Path, num_layers: int) -> None:
    if not shutil.which("h5dump"):
        raise Mistake("h5dump is not on PATH: install hdf5-tools (scripts/bootstrap.sh does)")
    folder.mkdir(exist_ok=True)
    for layer in range(num_layers):
        for part in ("weight", "bias"):
            name = f"layer{layer}.{part}"
            output_of(["h5dump", "-d", f"/parameters/{name}", "-b", "LE", "-o", folder / f"{name}.bin", weights_file])


def model_of(options: argparse.Namespace) -> list:
    return ["--layers", options.layers, "--hidden", options.hidden, "--dropout", options.dropout]


def make_case(options: argparse.Namespace, name: str, work: pathlib.Path) -> Case:
    store = options.graph or make_store(options, name, work)
    own = work / f"{name}-for-torch"
    exported, arrays = own / "exported", own / "arrays"
    arrays.mkdir(parents=True, exist_ok=True)
    facts = output_of(alone(options, "info", store))
    if "normalised  sym" not in facts:
        raise Mistake(f"{store}: the comparison is for stores with --normalize sym; orthant info {store} shows this one's")
    output_of(alone(options, "export", store, "-o", exported, "--format", "npy"))
    sizes = json.loads(output_of([options.python, TRAINER, "prepare", exported, arrays]))
    shutil.rmtree(exported)
    widths = [sizes["num_features"], *[options.hidden] * (options.layers - 1), sizes["num_classes"]]
    case = Case(name, store, arrays, own / "weights.h5", own / "weights", sizes, widths)
    output_of(alone(options, "train", "--graph", store, "--epochs", 0, *model_of(options), "--save-weights",
                    case.weights_file))
    dump_weights(case.weights_file, case.weights, options.layers)
    if options.mode == "minibatch" and not (sizes["is_symmetric"] and not sizes["has_sparse_features"]):
        raise Mistake(f"{name}: --mode minibatch compares undirected graphs with dense features")
    if sizes["has_sparse_features"] and options.dropout > 0:
        raise Mistake(f"{name}: --dropout is compared on graphs with dense features")
    return case

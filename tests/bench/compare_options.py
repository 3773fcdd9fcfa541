# SPDX-License-Identifier: Apache-2.0
"""The options of compare_torch.py, and whether the programs that they name can do what is asked."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shlex
import shutil
import sys

from bench_programs import Failure, Mistake, output_of
from compare_cases import TABLE, TRAINER

IMPLEMENTATIONS = ("csr", "csr64", "pyg")
WHERE_TORCH_IS = "Debian's python3-torch is for /usr/bin/python3"


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise Mistake(message)


def parse(arguments: list[str], description: str) -> argparse.Namespace:
    text = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="compare_torch.py", description=description, formatter_class=text, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--graph", type=pathlib.Path, help="a store that orthant partition wrote")
    what.add_argument("--case", help="rmat, products, tiny, or the name of a folder in --data")
    what.add_argument("--table", action="store_true", help=f"a line each for {', '.join(TABLE)}")
    parser.add_argument("--data", type=pathlib.Path, help="folder of data sets (default: $ORTHANT_DATA/datasets)")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of Orthant, and threads of PyTorch (2)")
    parser.add_argument("--grid", help="as orthant train takes it (1x1x1xRANKS)")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.0, help="probability; above 0 losses are not compared (0)")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10, help="of each run; the first is not timed (10)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument("--check-epochs", type=int, default=5, help="epochs whose losses must agree (5)")
    parser.add_argument("--mode", choices=("full", "minibatch"), default="full")
    parser.add_argument("--batch", type=int, default=9796, help="vertices of a batch, with --mode minibatch (9796)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where both compute (cpu)")
    parser.add_argument("--against", default="auto", help="csr, csr64, pyg, or several with commas (torch_trainer.py tells "
                        "what they are); auto: csr, and pyg with torch_sparse")
    parser.add_argument("--no-cache", dest="caches", action="store_false", help="PyTorch computes the first layer's A^ F in "
                        "every epoch, as PyG's GCNConv does")
    parser.add_argument("--permute", default="double", help="as orthant partition takes it, for --case and --table (double)")
    parser.add_argument("--orthant", default="orthant", help="the program (orthant on PATH)")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch (the one that runs this)")
    parser.add_argument("--mpirun", default=os.environ.get("ORTHANT_MPIRUN", "mpirun -n"), help="what stands before the "
                        "number of ranks ($ORTHANT_MPIRUN, else mpirun -n)")
    parser.add_argument("--work", type=pathlib.Path, help="keep stores and arrays in this folder, and use those in it")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    parser.add_argument("--extra", default="", help="more options of orthant train, in one word: --extra='--overlap off'")
    options = parser.parse_args(arguments)
    options.mpirun, options.extra = shlex.split(options.mpirun), shlex.split(options.extra)
    if options.data is None and os.environ.get("ORTHANT_DATA"):
        options.data = pathlib.Path(os.environ["ORTHANT_DATA"]) / "datasets"
    check_options(options)
    options.check_epochs = min(options.check_epochs, options.epochs)
    options.grid = options.grid or f"1x1x1x{options.ranks}"  # the first layer's rows are split: its sum needs no message
    return options


def check_options(options: argparse.Namespace) -> None:
    for name, least in (("ranks", 1), ("layers", 1), ("hidden", 1), ("epochs", 2), ("repeats", 1), ("check_epochs", 1),
                        ("batch", 2)):
        if getattr(options, name) < least:
            raise Mistake(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least {least}")
    if not 0 <= options.dropout < 1:
        raise Mistake(f"--dropout {options.dropout}: must be from 0 to below 1")
    if options.device == "cuda" and options.mode == "minibatch":
        raise Mistake("--device cuda compares epochs of the full graph: leave out --mode minibatch")
    if options.graph and not options.graph.is_file():
        raise Mistake(f"--graph {options.graph}: there is no such file")
    if options.json and not options.json.parent.is_dir():
        raise Mistake(f"--json {options.json}: there is no such folder")
    if not shutil.which(options.orthant):
        raise Mistake(f"--orthant {options.orthant}: there is no such program")
    if not shutil.which(options.mpirun[0] if options.mpirun else ""):
        raise Mistake(f"--mpirun {shlex.join(options.mpirun)}: there is no such program")


def choose_implementations(options: argparse.Namespace, installed: dict) -> list[str]:
    names = options.against.split(",")
    if names == ["auto"]:
        names = ["csr", "pyg"] if installed["torch_sparse"] and installed["pyg"] and not options.table else ["csr"]
    for name in names:
        if name not in IMPLEMENTATIONS:
            raise Mistake(f"--against {options.against}: auto, or of {', '.join(IMPLEMENTATIONS)}")
        if name == "pyg" and not installed["pyg"]:
            raise Mistake(f"--against pyg: {options.python} cannot import torch_geometric: {installed['no_pyg']}")
    return names


def installed_in(options: argparse.Namespace) -> dict:
    try:
        found = json.loads(output_of([options.python, TRAINER, "probe"]))
    except Failure as failure:
        reason = str(failure).rsplit(": ", 1)[-1]
        raise Mistake(f"--python {options.python} needs torch and numpy: {reason}; {WHERE_TORCH_IS}") from None
    if found["torch"] is None:
        raise Mistake(f"--python {options.python} cannot import torch: {found['no_torch']}; {WHERE_TORCH_IS}")
    if options.device == "cuda" and found["cuda"] is None:
        raise Mistake(f"--device cuda: torch {found['torch']} in {options.python} has no CUDA device: {found['no_cuda']}")
    return found


def check_program(options: argparse.Namespace) -> None:
    """Orthant must be built for the device that is asked for."""
    text = output_of([options.orthant, "--version"])
    is_for_cuda = "(default Cuda)" in text
    if is_for_cuda != (options.device == "cuda"):
        built_for = "CUDA devices: take --device cuda" if is_for_cuda else "the host: take a build for CUDA devices"
        raise Mistake(f"--device {options.device}: {options.orthant} is built for {built_for}")

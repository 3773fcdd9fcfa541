# SPDX-License-Identifier: Apache-2.0
"""The program's subcommands as functions. Keyword arguments are the options' names with _ for -."""
import json
import os
import sys
import tempfile
from typing import Any, Dict, List, Optional, Tuple

from ._call import call, command_line
from ._errors import Error, warn
from ._metrics import PathLike, read_records
from ._process import STOPPED, Launcher, execute
from ._progress import Progress
from ._run import Run, TemporaryFolder


class Store(str):
    """Path of a store. `summary` is what `orthant partition` printed of the graph."""

    summary: str = ""


def run_command(subcommand: str, *positionals: PathLike, ranks: Optional[int] = None, launcher: Launcher = None,
                **options: Any) -> str:
    """Runs any subcommand, such as run_command("export", "graph.h5", output="graph/", format="npy").

    Returns what it printed on stdout. Raises UsageError if the program refuses the command, and Error if it fails.
    """
    return call(subcommand, *positionals, ranks=ranks, launcher=launcher, **options).output


def generate(output: PathLike, **options: Any) -> str:
    """Writes a random graph: `orthant generate`. Returns the path."""
    run_command("generate", output=output, **options)
    return os.fspath(output)


def partition(input: PathLike, output: PathLike, *, ranks: int = 1, launcher: Launcher = None,
              **options: Any) -> Store:
    """Turns a graph into a store that every grid can load: `orthant partition`.

    input: folder that `write` made, or any other input of the program. output: store to write (.h5).
    Returns the path of the store; its attribute `summary` says what was read.
    """
    done = call("partition", ranks=ranks, launcher=launcher, input=input, output=output, **options)
    store = Store(os.fspath(output))
    store.summary = done.output
    return store


def train(store: Optional[PathLike] = None, *, ranks: int = 1, launcher: Launcher = None,
          folder: Optional[PathLike] = None, progress: Optional[bool] = None, **options: Any) -> Run:
    """Trains a graph neural network: `orthant train`.

    store: path of a store, or None with dataset="karate" and the like. ranks: number of MPI processes.
    launcher: words before the program in place of `mpirun -n RANKS`, such as "srun -n {ranks} --cpu-bind=cores".
    folder: where metrics.jsonl, weights.h5 and weights-best.h5 are written; by default a temporary folder that
    is removed together with the `Run`. progress: show a line or a bar; by default in terminals and notebooks.
    Other keyword arguments are options of the program: model="sage", lr_schedule="cosine", residual=True, bias=False.

    Ctrl-C stops the training in good order, and the `Run` that is returned has `stopped`; if there is a
    checkpoint (checkpoint="DIR"), the same call with resume="auto" goes on. If the training has not started yet,
    KeyboardInterrupt is raised.
    """
    graph = {} if store is None else {"graph": store}
    return _train("train", {**graph, **options}, ranks, launcher, folder, progress)


def train_lm(tokens: PathLike, *, ranks: int = 1, launcher: Launcher = None, folder: Optional[PathLike] = None,
             progress: Optional[bool] = None, **options: Any) -> Run:
    """Trains a language model on a token file: `orthant train-lm`. Arguments are as of `train`."""
    return _train("train-lm", {"tokens": tokens, **options}, ranks, launcher, folder, progress)


def _train(subcommand: str, options: Dict[str, Any], ranks: int, launcher: Launcher, folder: Optional[PathLike],
           progress: Optional[bool]) -> Run:
    temporary = None
    if folder is None:
        temporary = TemporaryFolder()
        folder = temporary.name
    options.setdefault("metrics", os.path.join(folder, "metrics.jsonl"))
    if options.get("seeds", 1) == 1:
        options.setdefault("save_weights", os.path.join(folder, "weights.h5"))
    command = command_line(subcommand, ranks=ranks, launcher=launcher, **options)
    os.makedirs(folder, exist_ok=True)
    before = _state_of(options["metrics"])
    bar = Progress(os.fspath(options["metrics"]), progress)
    try:
        done = execute(command, bar.update, warn)
    finally:
        bar.close()
    is_stopped = done.status in STOPPED and _state_of(options["metrics"]) not in (None, before)
    if not is_stopped:
        done.check()
    elif progress is not False and done.interrupted:
        print("training stopped; see Run.log", file=sys.stderr)
    return Run(folder, store=options.get("graph") or options.get("tokens"), metrics_file=options["metrics"],
               save_weights=options.get("save_weights"), checkpoint=options.get("checkpoint"),
               completed=done, temporary=temporary)


def _state_of(path: PathLike) -> Optional[Tuple[int, int, int]]:
    """Another value after each change of a file; None if there is no file, or nothing in it."""
    try:
        state = os.stat(path)
    except FileNotFoundError:
        return None
    return (state.st_ino, state.st_size, state.st_mtime_ns) if state.st_size else None


def evaluate(store: Optional[PathLike] = None, weights: Optional[PathLike] = None, *, ranks: int = 1,
             launcher: Launcher = None, **options: Any) -> Dict[str, float]:
    """Scores of trained weights on a graph, such as {"test_acc": 0.81, ..}: `orthant evaluate`."""
    graph = {} if store is None else {"graph": store}
    return _scores("evaluate", {**graph, "weights": weights, **options}, ranks, launcher)


def evaluate_lm(tokens: PathLike, weights: PathLike, *, ranks: int = 1, launcher: Launcher = None,
                **options: Any) -> Dict[str, float]:
    """Loss, perplexity and bits per byte of a language model: `orthant evaluate-lm`."""
    return _scores("evaluate-lm", {"tokens": tokens, "weights": weights, **options}, ranks, launcher)


def _scores(subcommand: str, options: Dict[str, Any], ranks: int, launcher: Launcher) -> Dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="orthant-") as folder:
        metrics = options.pop("metrics", None) or os.path.join(folder, "metrics.jsonl")
        call(subcommand, ranks=ranks, launcher=launcher, metrics=metrics, **options)
        records = [record for record in read_records(metrics) if record.get("event") == subcommand]
    if not records:
        raise Error(f"orthant {subcommand} wrote no scores")
    return {name: value for name, value in records[-1].items() if isinstance(value, (int, float))}


def plan(store: Optional[PathLike] = None, *, ranks: Optional[int] = None, **options: Any) -> List[Dict[str, Any]]:
    """The best grids for a training, one dictionary per grid: `orthant plan --json`. It starts no training."""
    graph = {} if store is None else {"graph": store}
    return _plan("plan", {**graph, **options}, ranks)


def plan_lm(*, ranks: Optional[int] = None, **options: Any) -> List[Dict[str, Any]]:
    """The fastest grids for a step of a language model: `orthant plan-lm --json`."""
    return _plan("plan-lm", options, ranks)


def _plan(subcommand: str, options: Dict[str, Any], ranks: Optional[int]) -> List[Dict[str, Any]]:
    command = command_line(subcommand, **{**options, "json": True})
    if ranks is not None:
        command.append(f"--ranks={ranks}")
    lines = execute(command, warn=warn).check().output.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def tokenize(input: PathLike, output: PathLike, *, ranks: int = 1, launcher: Launcher = None, **options: Any) -> str:
    """Writes a text as a token file for `train_lm`: `orthant tokenize`. Returns its path."""
    run_command("tokenize", ranks=ranks, launcher=launcher, input=input, output=output, **options)
    return os.fspath(output)


def info(file: Optional[PathLike] = None, *, verify: bool = False) -> str:
    """What is in a store, weights, a token file or a checkpoint; without a file: the build and its devices."""
    files = () if file is None else (file,)
    return run_command("info", *files, verify=verify)

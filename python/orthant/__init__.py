# SPDX-License-Identifier: Apache-2.0
"""Python interface of Orthant, which trains graph neural networks and language models on supercomputers.

The package writes graphs of other libraries as files that the program `orthant` reads, starts the program, and
reads its results as NumPy arrays. The program is found by the environment variable ORTHANT, or on the PATH.

    graph = orthant.write(data, "graph")
    store = orthant.partition(graph, "graph.h5")
    run = orthant.train(store, ranks=4, model="sage", layers=2)
    probabilities = run.predictions()
"""
from ._commands import (evaluate, evaluate_lm, generate, info, partition, plan, plan_lm, run_command, tokenize, train,
                        train_lm)
from ._errors import Error, UsageError
from ._metrics import read_metrics, to_csv
from ._options import Option, options
from ._run import Run
from ._safetensors import load_safetensors
from ._tensorboard import to_tensorboard
from ._write import GraphFolder, read_names, write

__version__ = "0.1.0"
__all__ = [
    "Error", "GraphFolder", "Option", "Run", "UsageError", "evaluate", "evaluate_lm", "generate", "info",
    "load_safetensors", "options", "partition", "plan", "plan_lm", "read_metrics", "read_names", "run_command",
    "to_csv", "to_tensorboard", "tokenize", "train", "train_lm", "write",
]

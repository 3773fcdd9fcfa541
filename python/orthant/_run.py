# SPDX-License-Identifier: Apache-2.0
"""A finished or stopped training: its metrics, weights, predictions and embeddings."""
import importlib.util
import os
import shutil
import tempfile
import weakref
from typing import Any, Dict, List, Optional

import numpy as np

from ._call import call
from ._metrics import Metrics, PathLike, columns, read_records
from ._process import Completed
from ._safetensors import load_safetensors


class TemporaryFolder:
    """A folder that goes, without a warning of Python, when the last reference to this object goes."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="orthant-")
        weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)


class Svg:
    """A picture that a notebook shows. `path` is its file, `text` the SVG itself."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, encoding="utf-8") as file:
            self.text = file.read()

    def _repr_svg_(self) -> str:
        return self.text


class Run:
    """What `train` and `train_lm` return. Run(folder) opens the folder of an earlier training.

    folder: the folder that holds the files. store: the store or token file. stopped: True if the training was
    stopped before its last epoch. status: exit status of the program. output, log: what it printed on stdout and stderr.
    """

    def __init__(self, folder: PathLike, *, store: Optional[PathLike] = None,
                 metrics_file: Optional[PathLike] = None, save_weights: Optional[PathLike] = None,
                 checkpoint: Optional[PathLike] = None, completed: Optional[Completed] = None,
                 temporary: Optional[TemporaryFolder] = None) -> None:
        self.folder = os.path.abspath(folder)
        self.metrics_file = os.path.abspath(metrics_file or os.path.join(folder, "metrics.jsonl"))
        self._save_weights = os.path.abspath(save_weights or os.path.join(folder, "weights.h5"))
        self._temporary = temporary  # the folder goes when the last reference to it goes
        self.records: List[Dict[str, Any]] = read_records(self.metrics_file)
        runs = [record for record in self.records if record.get("event") == "run"]
        self.configuration: Dict[str, Any] = runs[-1].get("configuration", {}) if runs else {}
        store = store or self.configuration.get("graph") or self.configuration.get("tokens")
        self.store: Optional[str] = os.path.abspath(store) if store else None
        checkpoint = checkpoint or self.configuration.get("checkpoint")
        self._checkpoint = os.path.abspath(checkpoint) if checkpoint else None
        self.stopped = bool(self.records) and self.records[-1].get("event") == "stopped"
        self.status = completed.status if completed else 0
        self.command = completed.command if completed else []
        self.output = completed.output if completed else ""
        self.log = completed.log if completed else ""

    @property
    def metrics(self) -> Metrics:
        """The numbers of each epoch or step as arrays of equal length (see `read_metrics`)."""
        return columns(self.records)

    @property
    def result(self) -> Dict[str, Any]:
        """The last line of the metrics: loss, scores of the last and the best epoch, memory (docs/metrics.md)."""
        return dict(self.records[-1]) if self.records else {}

    def frame(self) -> Any:
        """The metrics as a pandas.DataFrame, one row per epoch or step."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Run.frame() needs pandas; Run.metrics has the same numbers as NumPy arrays") from error
        return pandas.DataFrame(self.metrics)

    def weights_file(self, best: bool = True) -> str:
        """Path of the weights of the best epoch, or else of the last epoch, or else of the newest checkpoint."""
        stem, ending = os.path.splitext(self._save_weights)
        candidates = [f"{stem}-best{ending}"] if best else []
        if best and self.configuration.get("save-best"):
            candidates.insert(0, os.path.abspath(self.configuration["save-best"]))
        candidates.append(self._save_weights)
        if self._checkpoint:
            candidates.append(os.path.join(self._checkpoint, "latest"))
        for path in candidates:
            if os.path.exists(path):
                return path
        raise FileNotFoundError(f"the run has no weights; looked for {', '.join(candidates)}")

    def predictions(self, probabilities: bool = True, best: bool = True, **options: Any) -> "np.ndarray[Any, Any]":
        """Probabilities [vertices x classes], row i for vertex i of the input; or classes [vertices].

        options: ranks, launcher, and options of `orthant evaluate`.
        """
        return self._evaluate(best, {**options, "probabilities": True} if probabilities else options)

    def embeddings(self, layer: Optional[int] = None, best: bool = True, **options: Any) -> "np.ndarray[Any, Any]":
        """Output of a layer [vertices x width], row i for vertex i of the input.

        Layers count from 0. By default it is the layer before the one that gives the logits; of --task links, the last.
        """
        if layer is None:
            known = self.configuration
            last = int(known.get("layers", 1)) - 1
            has_head = known.get("head") or known.get("model") in ("gin", "gcnii")
            layer = last if has_head or known.get("task") == "links" else last - 1
            if layer < 0:
                raise ValueError("the network has one layer, which gives the logits; name it with layer=0")
        return self._evaluate(best, {**options, "embeddings": layer})

    def state_dict(self, best: bool = True, torch: Optional[bool] = None) -> Dict[str, Any]:
        """Weights under the names of PyTorch Geometric's layers, as NumPy arrays or, if torch is there, as tensors."""
        with tempfile.TemporaryDirectory(prefix="orthant-") as folder:
            path = os.path.join(folder, "weights.safetensors")
            call("export-weights", self.weights_file(best), output=path)
            arrays = load_safetensors(path)
        if torch is None:
            torch = importlib.util.find_spec("torch") is not None
        if not torch:
            return dict(arrays)
        from torch import from_numpy
        return {name: from_numpy(array) for name, array in arrays.items()}

    def plot(self, path: Optional[PathLike] = None) -> Any:
        """Loss and accuracy over epochs: a figure of matplotlib, or without matplotlib an SVG of `orthant plot`.

        path: file to write as well.
        """
        if importlib.util.find_spec("matplotlib") is not None:
            return self._plot_with_matplotlib(path)
        place = os.path.abspath(path or os.path.join(self.folder, "run.svg"))
        call("plot", self.metrics_file, output=place, force=True)
        return Svg(place)

    def _plot_with_matplotlib(self, path: Optional[PathLike]) -> Any:
        import matplotlib.pyplot as pyplot
        metrics = self.metrics
        unit = "epoch" if "epoch" in metrics else "step"
        panels = [panel for panel in (("loss", ("loss", "val_loss", "test_loss")),
                                      ("accuracy", ("train_acc", "val_acc", "test_acc")), ("R2", ("train_r2", "val_r2", "test_r2")))
                  if any(name in metrics for name in panel[1])]
        figure, axes = pyplot.subplots(1, max(len(panels), 1), figsize=(5 * max(len(panels), 1), 3.5), squeeze=False)
        for axis, (title, names) in zip(axes[0], panels):
            for name in names:
                if name in metrics:
                    known = ~np.isnan(metrics[name])
                    axis.plot(metrics[unit][known], metrics[name][known], label=name)
            axis.set_xlabel(unit)
            axis.set_ylabel(title)
            axis.legend()
        figure.tight_layout()
        if path is not None:
            figure.savefig(path)
        pyplot.close(figure)  # a notebook shows the figure that is returned, not a second one
        return figure

    def _evaluate(self, best: bool, options: Dict[str, Any]) -> "np.ndarray[Any, Any]":
        if self.store:
            source: Dict[str, Any] = {"graph": self.store}
        else:
            source = {"dataset": self.configuration.get("dataset"), "seed": self.configuration.get("seed")}
        with tempfile.TemporaryDirectory(prefix="orthant-") as folder:
            path = os.path.join(folder, "predictions.npy")
            call("evaluate", **{**source, "weights": self.weights_file(best), "predictions": path, **options})
            array: "np.ndarray[Any, Any]" = np.load(path)
            return array

    def __repr__(self) -> str:
        metrics, result = self.metrics, self.result
        if not metrics:
            return f"<Run of {self.folder}: no epochs>"
        unit = "epoch" if "epoch" in metrics else "step"
        words = [f"{unit} {int(metrics[unit][-1])}"]
        for name in ("loss", "val_acc", "test_acc", "val_r2", "test_r2", "val_loss"):
            known = metrics[name][~np.isnan(metrics[name])] if name in metrics else np.empty(0)
            words += [f"{name} {known[-1]:.4g}"] if known.size else []
        words += [f"best {unit} {result['best_' + unit]}"] if result.get("best_" + unit) else []
        return f"<Run: {', '.join(words)}{', stopped' if self.stopped else ''}>"

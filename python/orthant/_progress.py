# SPDX-License-Identifier: Apache-2.0
"""Shows the progress of a training from its metrics file, in a terminal or a notebook."""
import json
import os
import sys
from typing import Any, Dict, Optional

_SCORES = ("val_acc", "val_roc_auc", "val_r2", "val_loss")


class Progress:
    """Reads what has been added to a metrics file at each `update`, and draws one line or a bar of tqdm.

    show: True or False, or None for "if stderr is a terminal or a notebook's cell".
    """

    def __init__(self, path: str, show: Optional[bool] = None) -> None:
        self._path = path
        self._show = can_show() if show is None else show
        self._position = os.path.getsize(path) if os.path.exists(path) else 0
        self._inode = os.stat(path).st_ino if os.path.exists(path) else 0
        self._total = 0
        self._unit = "epoch"
        self._shown: Dict[str, str] = {}
        self._bar: Any = None
        self._width = 0

    def update(self) -> None:
        """Draws the newest epoch or step."""
        if not self._show:
            return
        for line in self._new_lines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            self._take(record)

    def close(self) -> None:
        """Ends the line or the bar."""
        if self._bar is not None:
            self._bar.close()
        elif self._width:
            print(file=sys.stderr)

    def _new_lines(self) -> "list[bytes]":
        try:
            with open(self._path, "rb") as file:
                state = os.fstat(file.fileno())
                if state.st_ino != self._inode or state.st_size < self._position:  # it was replaced
                    self._inode, self._position = state.st_ino, 0
                file.seek(self._position)
                text = file.read()
        except OSError:
            return []
        end = text.rfind(b"\n") + 1
        self._position += end
        return text[:end].splitlines()

    def _take(self, record: Dict[str, Any]) -> None:
        event = record.get("event")
        if event == "run":
            configuration = record.get("configuration", {})
            self._unit = "step" if record.get("command") == "train-lm" else "epoch"
            self._total = int(configuration.get(self._unit + "s") or 0)
        elif event in ("epoch", "step", "eval"):
            for name in ("loss", *_SCORES):
                if isinstance(record.get(name), (int, float)):
                    self._shown[name] = f"{record[name]:.4f}"
            if event != "eval":
                self._draw(int(record[event]))

    def _draw(self, count: int) -> None:
        bar = self._open_bar()
        if bar is not None:
            bar.n = count
            bar.set_postfix(self._shown, refresh=False)
            bar.refresh()
            return
        scores = "  ".join(f"{name} {value}" for name, value in self._shown.items())
        text = f"{self._unit} {count}/{self._total}  {scores}"
        print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def _open_bar(self) -> Any:
        if self._bar is None and not self._width:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return None
            self._bar = tqdm(total=self._total, unit=self._unit)
        return self._bar


def can_show() -> bool:
    """True in a terminal and in a notebook's cell."""
    kernel = sys.modules.get("IPython")
    shell = kernel.get_ipython() if kernel is not None else None
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"

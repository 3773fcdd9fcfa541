# SPDX-License-Identifier: Apache-2.0
"""Reads the metrics of trainings (JSON lines) as arrays, and writes them as CSV."""
import csv
import json
import os
from typing import Any, Dict, Iterable, Iterator, List, Tuple, Union

import numpy as np

PathLike = Union[str, "os.PathLike[str]"]
Metrics = Dict[str, "np.ndarray[Any, Any]"]


def read_records(path: PathLike) -> List[Dict[str, Any]]:
    """All complete lines of a metrics file, in order. A last line that is still being written is left out."""
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line.strip()]


def read_metrics(path: PathLike) -> Metrics:
    """The numbers of each epoch (`train`) or step (`train-lm`) of a metrics file, as arrays of equal length.

    The keys are the names in the file, such as "epoch", "loss" and "val_acc". A name within an object is joined by a
    slash ("phases/forward"), and so is the index in a list ("grad_norms/0"). Numbers that an epoch lacks, such as
    scores of epochs that were not evaluated, are NaN. "run" counts the trainings in the file from 0; a training that
    resumes is one training.
    """
    return columns(read_records(path))


def columns(records: Iterable[Dict[str, Any]]) -> Metrics:
    """The same from records that are already read."""
    rows = list(_rows(records))
    names: Dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    result: Metrics = {}
    for name in names:
        values = np.array([np.nan if row.get(name) is None else row[name] for row in rows], dtype=np.float64)
        whole = name in ("run", "epoch", "step", "comm_bytes", "sent_bytes")
        result[name] = values.astype(np.int64) if whole and not np.isnan(values).any() else values
    return result


def _rows(records: Iterable[Dict[str, Any]]) -> Iterator[Dict[str, float]]:
    """One flat row per epoch or step; an evaluation that follows a step belongs to the row of that step."""
    run, training = -1, ""
    row: Dict[str, Any] = {}
    for record in records:
        event = record.get("event")
        if event == "run":
            name = record.get("training") or ""
            if run < 0 or "resumed" not in record or name != training:
                run += 1
            training = name
        elif event == "eval" and row.get("step") == record.get("step"):
            row.update(_numbers(record))
        elif event in ("epoch", "step"):
            if row:
                yield row
            row = {"run": max(run, 0), **dict(_numbers(record))}
    if row:
        yield row


def _numbers(value: Any, prefix: str = "") -> Iterator[Tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key != "event":
                yield from _numbers(item, f"{prefix}/{key}" if prefix else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _numbers(item, f"{prefix}/{index}")
    elif value is None or isinstance(value, (int, float)):
        yield prefix, value


def to_csv(metrics_file: PathLike, csv_file: PathLike) -> int:
    """Writes one line per epoch or step of a metrics file to a CSV file. Returns the number of lines.

    The first line has the names that `read_metrics` gives. A number that an epoch lacks is an empty field.
    """
    metrics = require_rows(read_metrics(metrics_file), metrics_file)
    lists = [_texts(values) for values in metrics.values()]
    with open(csv_file, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(metrics)
        writer.writerows(zip(*lists))
    return len(lists[0])


def require_rows(metrics: Metrics, path: PathLike) -> Metrics:
    """Raises ValueError if the file has no epochs and no steps."""
    if not metrics:
        raise ValueError(f"{os.fspath(path)} holds no epochs of train and no steps of train-lm")
    return metrics


def _texts(values: "np.ndarray[Any, Any]") -> List[str]:
    return ["" if value != value else repr(value) for value in values.tolist()]

# SPDX-License-Identifier: Apache-2.0
"""Writes the metrics of trainings as event files of TensorBoard, without TensorBoard.

An event file is a sequence of TFRecords. Each holds one `Event` message of TensorFlow's event.proto:

    record   length (uint64), masked CRC-32C of the length, data, masked CRC-32C of the data
    Event    1: wall_time (double)   2: step (varint)   3: file_version (string)   5: summary
    Summary  1: repeated Value       Value  1: tag (string)   2: simple_value (float)
"""
import os
import socket
import struct
from typing import List, Tuple

from ._metrics import Metrics, PathLike, read_metrics, require_rows

_SKIPPED = ("run", "epoch", "step")


def to_tensorboard(metrics_file: PathLike, folder: PathLike) -> List[str]:
    """Writes an event file for each training in a metrics file. Returns the paths of the event files.

    A file with several trainings (`--seeds`) gives the sub-folders run0, run1 and so on. The time of an event is
    the time of the file's last change less the seconds of training that follow the event.
    """
    metrics = require_rows(read_metrics(metrics_file), metrics_file)
    end = os.stat(metrics_file).st_mtime
    runs = sorted(set(metrics["run"].tolist()))
    paths = []
    for run in runs:
        chosen = metrics["run"] == run
        place = os.path.join(folder, f"run{run}") if len(runs) > 1 else os.fspath(folder)
        os.makedirs(place, exist_ok=True)
        path = os.path.join(place, f"events.out.tfevents.{int(end)}.{socket.gethostname()}.{run}")
        _write_run({name: values[chosen] for name, values in metrics.items()}, end, path)
        paths.append(path)
    return paths


def _write_run(metrics: Metrics, end: float, path: str) -> None:
    steps = metrics["epoch" if "epoch" in metrics else "step"].tolist()
    seconds = metrics["seconds"].tolist() if "seconds" in metrics else [0.0] * len(steps)
    series = [(tag_of(name).encode(), values.tolist()) for name, values in metrics.items() if name not in _SKIPPED]
    time = end - sum(seconds)
    with open(path, "wb") as file:
        file.write(_record(_double(1, time) + _bytes(3, b"brain.Event:2")))
        for row, step in enumerate(steps):
            time += seconds[row]
            values = b"".join(_bytes(1, _bytes(1, tag) + _float(2, column[row]))
                              for tag, column in series if column[row] == column[row])
            file.write(_record(_double(1, time) + _key(2, 0) + _varint(int(step)) + _bytes(5, values)))


def tag_of(name: str) -> str:
    """TensorBoard's tag of a number: equal scores of train, val and test share a group, such as acc/val."""
    part, _, score = name.partition("_")
    if part in ("train", "val", "test") and score:
        return f"{score}/{part}"
    if name == "loss":
        return "loss/train"
    return name if "/" in name else f"training/{name}"


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint(value: int) -> bytes:
    text = bytearray()
    while value > 127:
        text.append(value & 127 | 128)
        value >>= 7
    text.append(value)
    return bytes(text)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, 2) + _varint(len(value)) + value


def _double(field: int, value: float) -> bytes:
    return _key(field, 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return _key(field, 5) + struct.pack("<f", max(-3.4e38, min(3.4e38, value)))


def _crc_table() -> Tuple[int, ...]:
    """CRC-32C (Castagnoli), reflected polynomial."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

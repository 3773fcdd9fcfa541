# SPDX-License-Identifier: Apache-2.0
"""Metrics as arrays, CSV and event files."""
import csv
import glob
import json
import os

import numpy as np
import pytest

import orthant
from orthant.__main__ import main

LINES = """{"event":"run","command":"train","configuration":{"epochs":3}}
{"event":"epoch","epoch":1,"loss":0.75,"grad_norms":[1.5,2.5],"phases":{"forward":0.25},"seconds":0.5}
{"event":"epoch","epoch":2,"loss":null,"grad_norms":[1,2],"phases":{"forward":0.5},"seconds":0.25,"val_acc":0.5}
{"event":"done","loss":0.5}
{"event":"epoch","epo"""
LM_LINES = """{"event":"run","command":"train-lm","configuration":{"steps":2}}
{"event":"step","step":1,"loss":4.0,"lr":0.1}
{"event":"step","step":2,"loss":3.0,"lr":0.2}
{"event":"eval","step":2,"val_loss":3.5}
"""


@pytest.fixture
def metrics_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(LINES)
    return path


def test_epochs_become_arrays(metrics_file):
    metrics = orthant.read_metrics(metrics_file)

    assert metrics["epoch"].tolist() == [1, 2]
    np.testing.assert_array_equal(metrics["loss"], [0.75, np.nan])
    np.testing.assert_array_equal(metrics["val_acc"], [np.nan, 0.5])
    assert metrics["grad_norms/1"].tolist() == [2.5, 2]
    assert metrics["phases/forward"].tolist() == [0.25, 0.5]


def test_evaluations_of_steps_join_their_step(tmp_path):
    (tmp_path / "lm.jsonl").write_text(LM_LINES)

    metrics = orthant.read_metrics("lm.jsonl")

    assert metrics["step"].tolist() == [1, 2]
    np.testing.assert_array_equal(metrics["val_loss"], [np.nan, 3.5])


def test_several_trainings_in_a_file_are_counted(tmp_path):
    (tmp_path / "seeds.jsonl").write_text((LINES.rsplit("\n", 1)[0] + "\n") * 2)

    assert orthant.read_metrics("seeds.jsonl")["run"].tolist() == [0, 0, 1, 1]
    assert len(orthant.to_tensorboard("seeds.jsonl", "events")) == 2
    assert sorted(os.listdir("events")) == ["run0", "run1"]


def test_a_training_that_resumes_is_one_training(tmp_path):
    def line(**fields):
        return json.dumps(fields) + "\n"

    first = line(event="run", training="a") + line(event="epoch", epoch=1, seconds=1) + line(event="stopped")
    second = line(event="run", training="a", resumed={"epoch": 2}) + line(event="epoch", epoch=2, seconds=1)
    other = line(event="run", training="b", resumed={"epoch": 2}) + line(event="epoch", epoch=2, seconds=1)
    again = line(event="run") + line(event="epoch", epoch=1, seconds=1)
    (tmp_path / "resumed.jsonl").write_text(first + second)
    (tmp_path / "all.jsonl").write_text(first + second + other + again + again)

    assert orthant.read_metrics("resumed.jsonl")["run"].tolist() == [0, 0]
    assert orthant.read_metrics("all.jsonl")["run"].tolist() == [0, 0, 1, 2, 3]
    assert len(orthant.to_tensorboard("resumed.jsonl", "one")) == 1
    assert not os.path.exists("one/run0")
    assert len(orthant.to_tensorboard("all.jsonl", "four")) == 4
    orthant.to_csv("resumed.jsonl", "resumed.csv")
    with open("resumed.csv", newline="", encoding="utf-8") as file:
        assert [row["run"] for row in csv.DictReader(file)] == ["0", "0"]


def test_csv(metrics_file):
    assert orthant.to_csv(metrics_file, "metrics.csv") == 2

    with open("metrics.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["loss"] for row in rows] == ["0.75", ""]
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert [row["val_acc"] for row in rows] == ["", "0.5"]


def test_command_line(metrics_file, capsys, tmp_path):
    assert main(["to-csv", str(metrics_file), "metrics.csv"]) == 0
    assert capsys.readouterr().out == "metrics.csv: 2 lines\n"
    assert main(["to-tensorboard", str(metrics_file), "events"]) == 0
    (tmp_path / "empty.jsonl").write_text("")
    assert main(["to-csv", "empty.jsonl", "metrics.csv"]) == 2
    assert "holds no epochs" in capsys.readouterr().err


def test_crc32c():
    """The check value of CRC-32C, 0xE3069283 for "123456789", masked as in TFRecord."""
    from orthant._tensorboard import _masked_crc
    crc = 0xE3069283
    wanted = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    assert int.from_bytes(_masked_crc(b"123456789"), "little") == wanted


def test_tensorboard_reads_the_event_file(metrics_file):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    orthant.to_tensorboard(metrics_file, "events")
    events = accumulator.EventAccumulator("events")
    events.Reload()

    assert set(events.Tags()["scalars"]) == {"loss/train", "acc/val", "grad_norms/0", "grad_norms/1", "phases/forward",
                                            "training/seconds"}
    assert [(event.step, event.value) for event in events.Scalars("loss/train")] == [(1, 0.75)]
    assert [(event.step, event.value) for event in events.Scalars("acc/val")] == [(2, 0.5)]
    first, second = events.Scalars("training/seconds")
    assert second.wall_time - first.wall_time == pytest.approx(0.25)


def test_tensorboard_checks_the_sums(metrics_file):
    """TensorBoard's own reader, which refuses a record whose checksum is wrong."""
    loader = pytest.importorskip("tensorboard.compat.tensorflow_stub.pywrap_tensorflow")
    orthant.to_tensorboard(metrics_file, "events")
    path = glob.glob("events/*")[0]

    def records():
        reader = loader.PyRecordReader_New(path)
        count = 0
        try:
            while True:
                reader.GetNext()
                count += 1
        except loader.errors.OutOfRangeError:
            return count

    assert records() == 3
    with open(path, "r+b") as file:
        file.seek(20)
        file.write(b"\xff")
    with pytest.raises(loader.errors.DataLossError):
        records()

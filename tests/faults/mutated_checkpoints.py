#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings that go on from a checkpoint with wrong bytes: mutated_checkpoints.py PROGRAM [--count N] [--seed S]

The newest of two checkpoints is mutated anywhere: in its numbers, in HDF5's structure, at its end. Whether the program takes it or
the one before, it has to end well with the loss of a training that was not interrupted.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile

from jobs import Program

TRAIN = ["train", "--dataset", "karate", "--layers", "2", "--hidden", "8", "--compute-dtype", "fp64", "--eval-every", "1"]
EPOCHS = 5


def mutate(content, draw):
    """Bytes with something wrong, and what it is."""
    content = bytearray(content)
    kind = draw.choice(["flip", "flips", "zeros", "ones", "cut", "grow", "move"])
    at = draw.randrange(len(content))
    size = draw.choice([1, 8, 64, 512])
    if kind == "flip":
        content[at] ^= 1 << draw.randrange(8)
    elif kind == "flips":
        for _ in range(20):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif kind in ("zeros", "ones"):
        end = min(at + size, len(content))
        content[at:end] = (b"\0" if kind == "zeros" else b"\xff") * (end - at)
    elif kind == "cut":
        del content[at:]
    elif kind == "grow":
        content[at:at] = draw.randbytes(size)
    else:
        content[at:at + size] = content[draw.randrange(len(content)):][:size]
    return bytes(content), f"{kind} at {at}, size {size}"


def last_loss(path):
    with open(path, encoding="utf-8") as file:
        return [line["loss"] for line in map(json.loads, file) if line["event"] == "epoch"][-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program = Program(options.program)
    draw = random.Random(options.seed)
    failures = []
    num_older = 0
    with tempfile.TemporaryDirectory() as scratch:
        sound, place, metrics = (os.path.join(scratch, name) for name in ("sound", "place", "m.jsonl"))
        status, text = program.run(1, *TRAIN, "--epochs", EPOCHS, "--metrics", metrics)
        expected = last_loss(metrics)
        status, text = program.run(1, *TRAIN, "--epochs", EPOCHS - 2, "--checkpoint", sound, "--checkpoint-every", 1)
        if status != 0:
            sys.exit(f"no checkpoints: {text}")
        newest = max(name for name in os.listdir(sound) if name.startswith("checkpoint-"))
        with open(os.path.join(sound, newest), "rb") as file:
            content = file.read()
        for number in range(options.count):
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(sound, place, symlinks=True)
            mutated, what = mutate(content, draw)
            with open(os.path.join(place, newest), "wb") as file:
                file.write(mutated)
            os.remove(metrics)
            status, text = program.run(1 + number % 2, *TRAIN, "--epochs", EPOCHS, "--checkpoint", place, "--resume", "auto",
                                       "--metrics", metrics)
            fault = program.fault(status, text)
            num_older += newest not in text.split("goes on from")[-1].splitlines()[0]
            if fault or status != 0:
                failures.append(f"{what}: {fault or status}: {program.gist(text)}")
            elif abs(last_loss(metrics) - expected) > 1e-10:
                failures.append(f"{what}: loss {last_loss(metrics)}, not {expected}: {program.gist(text)}")
    print("\n".join(failures))
    print(f"{options.count} mutated checkpoints: {num_older} times the one before was used, {len(failures)} failures")
    sys.exit(bool(failures) or num_older == 0)


if __name__ == "__main__":
    main()

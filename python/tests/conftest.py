# SPDX-License-Identifier: Apache-2.0
import os
import shutil

import numpy as np
import pytest

import orthant


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Every test runs in a folder of its own, and containers may run MPI as root."""
    monkeypatch.chdir(tmp_path)
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_mpi_yield_when_idle"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture
def program():
    """Skips the test unless the program is built."""
    try:
        return orthant._options.find_program()
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def mpirun():
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")


@pytest.fixture
def blocks():
    """Arrays of 120 vertices in 3 groups, which a network learns at once."""
    random = np.random.default_rng(0)
    y = np.arange(120) % 3
    source = random.integers(0, 120, 700)
    target = (source + 3 * random.integers(1, 40, 700)) % 120
    part = random.random(120)
    return {"edge_index": np.stack([source, target]), "y": y,
            "x": (random.normal(size=(120, 8)) + 2 * np.eye(3, 8)[y]).astype("float32"),
            "train_mask": part < 0.4, "val_mask": (part >= 0.4) & (part < 0.7), "test_mask": part >= 0.7}


@pytest.fixture
def store(program, blocks):
    return orthant.partition(orthant.write(blocks, "graph"), "graph.h5")


@pytest.fixture
def exported(program):
    """The arrays of a folder after `partition` and `export`: what the program has understood."""
    def export(folder, **options):
        store = orthant.partition(folder, "exported.h5", force=True, **options)
        shutil.rmtree("exported", ignore_errors=True)
        orthant.run_command("export", store, output="exported", format="npy")
        return {os.path.splitext(name)[0]: np.load(os.path.join("exported", name))
                for name in os.listdir("exported") if name.endswith(".npy")}
    return export

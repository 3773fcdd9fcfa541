# SPDX-License-Identifier: Apache-2.0
"""Trainings from the call to predictions, errors and Ctrl-C."""
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import orthant

SMALL = {"layers": 2, "hidden": 16, "epochs": 30, "seed": 1}


@pytest.mark.slow
def test_from_arrays_to_predictions(store, blocks):
    run = orthant.train(store, **SMALL)
    probabilities = run.predictions()
    classes = run.predictions(probabilities=False)

    assert "120 vertices" in store.summary
    assert run.metrics["epoch"].tolist() == list(range(1, 31))
    assert run.metrics["loss"][-1] < run.metrics["loss"][0]
    assert run.result["event"] == "done" and run.status == 0 and not run.stopped
    assert probabilities.shape == (120, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert np.array_equal(probabilities.argmax(axis=1), classes)
    assert (classes == blocks["y"])[blocks["test_mask"]].mean() > 0.9
    assert run.embeddings().shape == (120, 16)
    assert run.embeddings(layer=1).shape == (120, 3)
    assert orthant.evaluate(store, run.weights_file())["test_acc"] > 0.9
    assert "epoch 30" in repr(run)


@pytest.mark.slow
def test_several_ranks_and_a_folder(store, mpirun):
    one = orthant.train(store, **SMALL)
    two = orthant.train(store, ranks=2, folder="two", **SMALL)

    assert sorted(os.listdir("two")) == ["metrics.jsonl", "weights-best.h5", "weights.h5"]
    np.testing.assert_allclose(one.metrics["loss"], two.metrics["loss"], rtol=1e-2)
    reopened = orthant.Run("two")
    assert reopened.store == os.path.abspath(store)
    np.testing.assert_allclose(reopened.predictions(ranks=2), two.predictions(), atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_a_temporary_folder_goes_with_the_run(store):
    run = orthant.train(store, **{**SMALL, "epochs": 1})
    folder = run.folder
    assert os.path.exists(folder)

    del run

    assert not os.path.exists(folder)


def test_a_built_in_data_set(program):
    run = orthant.train(dataset="karate", model="sage", epochs=3)

    assert run.predictions().shape == (34, 2)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_weights_are_named_arrays(store, model):
    weights = orthant.train(store, model=model, **{**SMALL, "epochs": 2}).state_dict(torch=False)

    assert all(isinstance(array, np.ndarray) for array in weights.values())
    assert any(8 in array.shape for array in weights.values())


@pytest.mark.slow
@pytest.mark.parametrize("model, message", [
    ("gat", "has layers of attention, which are not exported"),
    ("gcnii", "export-weights takes those of gcn, sage and gin"),
    ("appnp", "export-weights takes those of gcn, sage and gin"),
])
def test_weights_without_names_are_refused(program, model, message):
    run = orthant.train(dataset="karate", model=model, epochs=1)

    with pytest.raises(orthant.UsageError, match=message):
        run.state_dict()


@pytest.mark.slow
def test_weights_give_the_same_predictions_in_pyg(store, blocks):
    torch = pytest.importorskip("torch")
    nn = pytest.importorskip("torch_geometric.nn")
    utils = pytest.importorskip("torch_geometric.utils")
    run = orthant.train(store, **SMALL)
    model = nn.GCN(8, 16, num_layers=2, out_channels=3)

    model.load_state_dict(run.state_dict())

    edges = utils.to_undirected(torch.from_numpy(blocks["edge_index"]))
    edges = utils.coalesce(edges)
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(blocks["x"]), edges)
    np.testing.assert_allclose(logits.softmax(dim=1).numpy(), run.predictions(), atol=1e-4)


@pytest.mark.slow
def test_frame_and_plot(store):
    pandas = pytest.importorskip("pandas")
    run = orthant.train(store, **SMALL)

    assert isinstance(run.frame(), pandas.DataFrame)
    assert len(run.frame()) == 30
    picture = run.plot("run.svg")
    assert os.path.getsize("run.svg") > 1000
    assert picture is not None


@pytest.mark.slow
def test_plot_without_matplotlib(store, monkeypatch):
    run = orthant.train(store, **SMALL)
    monkeypatch.setattr(orthant._run.importlib.util, "find_spec", lambda name: None)

    assert run.plot()._repr_svg_().startswith("<svg")


@pytest.mark.slow
def test_errors_are_the_line_of_the_program(store, mpirun):
    with pytest.raises(orthant.UsageError) as failure:
        orthant.train("missing.h5")
    assert str(failure.value) == "cannot open missing.h5: No such file or directory"
    assert failure.value.status == 2
    with pytest.raises(orthant.UsageError, match="^[^\n]*model[^\n]*$") as failure:
        orthant.train(store, ranks=2, model="gnc")
    assert "mpirun" not in str(failure.value)
    with pytest.raises(orthant.UsageError):
        orthant.partition("nowhere", "x.h5")


def test_warnings_of_the_program_are_warnings(store):
    with pytest.warns(RuntimeWarning, match="neighbors") as found:
        orthant.train(store, mode="minibatch", batch=8, epochs=1)
    assert {warning.filename for warning in found} == {__file__}


@pytest.mark.filterwarnings("error")
def test_warnings_that_are_errors_do_not_block_the_program():
    printed = 300000  # more than a pipe holds
    script = f"import signal, sys; signal.alarm(20); sys.stderr.write('orthant: warning: odd\\n' + 'x' * {printed})"

    with pytest.raises(RuntimeWarning, match="odd"):
        orthant._process.execute([sys.executable, "-c", script], warn=orthant._errors.warn)

    done = orthant._process.execute([sys.executable, "-c", script])
    assert (done.status, len(done.log)) == (0, printed + len("orthant: warning: odd\n"))


def test_plans(store):
    grids = orthant.plan(store, ranks=4)

    assert {grid["ranks"] for grid in grids} == {4}
    assert all("sent_bytes" in grid for grid in grids)


@pytest.mark.slow
def test_other_subcommands(store):
    assert "120" in orthant.info(store, verify=True)
    orthant.generate("ring", kind="ring", vertices=50)
    assert os.path.exists("ring")


@pytest.mark.slow
def test_a_language_model(program, tmp_path):
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)

    tokens = orthant.tokenize("text.txt", "tokens.h5")
    run = orthant.train_lm(tokens, layers=1, hidden=16, heads=2, sequence=16, steps=5, eval_every=5)

    assert run.metrics["step"].tolist() == [1, 2, 3, 4, 5]
    assert not np.isnan(run.metrics["val_loss"][-1])
    assert orthant.evaluate_lm(tokens, run.weights_file())["perplexity"] > 1


def test_progress_in_one_line(store, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)

    orthant.train(store, progress=True, **SMALL)

    assert "\repoch 30/30  loss " in capsys.readouterr().err


def test_progress_with_tqdm(store, capsys):
    pytest.importorskip("tqdm")

    orthant.train(store, progress=True, **SMALL)

    assert "30/30" in capsys.readouterr().err


@pytest.mark.parametrize("status", [130, 75])
def test_ctrl_c_before_the_first_metrics(program, monkeypatch, status):
    ended = orthant._process.Completed([], status, "", "", True)
    monkeypatch.setattr(orthant._commands, "execute", lambda *_: ended)

    with pytest.raises(KeyboardInterrupt):
        orthant.train("graph.h5", folder="run")

    with open("run/metrics.jsonl", "w", encoding="utf-8") as file:  # of an earlier training
        file.write('{"event":"run"}\n{"event":"done"}\n')
    with pytest.raises(KeyboardInterrupt):
        orthant.train("graph.h5", folder="run")


@pytest.mark.slow
@pytest.mark.parametrize("ranks, checkpoint", [(1, True), (1, False), (2, True), (2, False)])
def test_ctrl_c_stops_in_good_order(store, mpirun, ranks, checkpoint):
    options = {"epochs": 1000000, "ranks": ranks, "folder": "run", **({"checkpoint": "steps"} if checkpoint else {})}
    script = textwrap.dedent(f"""
        import orthant
        run = orthant.train({str(store)!r}, **{options!r})
        print(run.stopped, run.predictions().shape, run.status, len(run.metrics["epoch"]))
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(orthant.__file__))})
    metrics = pathlib.Path("run/metrics.jsonl")

    def has_epochs():  # at its start the program makes the file and removes it, to see whether that works
        try:
            return b'"epoch":20,' in metrics.read_bytes()
        except FileNotFoundError:
            return False

    while not has_epochs():
        assert process.poll() is None
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)

    stopped, shape, status, count = output.replace("(120, 3)", "shape").split()
    assert (stopped, shape) == ("True", "shape")
    assert int(status) == 75 if checkpoint else int(status) > 128
    assert 20 <= int(count) < 1000000
    if checkpoint:
        run = orthant.train(store, **{**options, "resume": "auto", "epochs": int(count) + 5})
        assert run.metrics["epoch"].tolist() == list(range(1, int(count) + 6))


def test_launchers(monkeypatch, store):
    prefix = orthant._process.launch_prefix
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    assert prefix(1, None) == []
    assert prefix(3, "srun -n {ranks} --exact") == ["srun", "-n", "3", "--exact"]
    assert prefix(3, ["flux", "run", "-n3"]) == ["flux", "run", "-n3"]
    with pytest.raises(ValueError, match="ranks is 0"):
        prefix(0, None)
    monkeypatch.setattr(orthant._process.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(orthant._process, "_is_open_mpi", lambda path: True)
    monkeypatch.setattr(orthant._process, "num_cores", lambda: 4)
    assert prefix(4, None) == ["/bin/mpirun", "-n", "4"]
    assert "--oversubscribe" in prefix(5, None)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert prefix(5, None) == ["srun", "-n", "5"]

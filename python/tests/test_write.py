# SPDX-License-Identifier: Apache-2.0
"""`write` from arrays that need NumPy only."""
import json
import os
import warnings

import numpy as np
import pytest

import orthant


def load(name):
    return np.load(f"graph/{name}.npy")


def test_arrays_keep_type_and_values(blocks):
    folder = orthant.write(blocks, "graph")

    assert (folder.num_vertices, folder.num_edges) == (120, 700)
    assert os.fspath(folder) == "graph"
    for name, array in blocks.items():
        assert load(name).dtype == array.dtype
        assert np.array_equal(load(name), array)
    with open("graph/meta.json", encoding="utf-8") as file:
        assert json.load(file) == {"name": "graph", "num_nodes": 120, "num_classes": int(blocks["y"].max()) + 1}


def test_fortran_order_and_big_endian_become_what_the_program_reads(blocks):
    blocks["x"] = np.asfortranarray(blocks["x"]).astype(">f4")
    blocks["edge_index"] = np.ascontiguousarray(blocks["edge_index"].T).T

    orthant.write(blocks, "graph")

    with open("graph/x.npy", "rb") as file:
        head = file.read(100)
    assert b"'<f4'" in head and b"'fortran_order': False" in head
    assert np.array_equal(load("x"), blocks["x"])
    assert np.array_equal(load("edge_index"), blocks["edge_index"])


def test_names_of_other_libraries_are_understood(blocks):
    given = {"edge_index": blocks["edge_index"], "feat": blocks["x"], "label": blocks["y"]}

    orthant.write(given, "graph", valid_mask=blocks["val_mask"])

    assert np.array_equal(load("x"), blocks["x"])
    assert np.array_equal(load("y"), blocks["y"])
    assert np.array_equal(load("val_mask"), blocks["val_mask"])
    assert not load("train_mask").any()


def test_one_column_of_several_splits(blocks):
    masks = np.stack([blocks["train_mask"], ~blocks["train_mask"]], axis=1)

    orthant.write({**blocks, "train_mask": masks}, "graph", split=1)

    assert np.array_equal(load("train_mask"), masks[:, 1])
    orthant.write({**blocks, "train_mask": masks}, "graph", force=True)
    assert np.array_equal(load("train_mask"), masks)
    assert load("val_mask").shape == (120,)


def test_lists_replace_masks(blocks):
    orthant.write(blocks, "graph", train_idx=np.array([1, 2]), test_idx=[3])

    assert load("train_idx").tolist() == [1, 2]
    assert load("val_idx").tolist() == []
    assert not os.path.exists("graph/train_mask.npy")


def test_labels_as_texts_become_numbers(blocks):
    words = np.array(["red", "blue", None])[blocks["y"]]

    folder = orthant.write(blocks, "graph", y=words)

    assert folder.classes == ["blue", "red"]
    assert load("y")[:3].tolist() == [1, 0, -1]
    with open("graph/classes.csv", encoding="utf-8") as file:
        assert file.read().split() == ["id,class", "0,blue", "1,red"]


@pytest.mark.parametrize("labels, expected", [
    ([0, 30, -1] * 40, 31),  # numbers with gaps remain numbers
    ([0, 3000, 7] * 40, None), (np.zeros((120, 3), dtype=np.int64), None), ([0.5, 1.0, 2.0] * 40, None)])
def test_whole_numbers_are_classes(blocks, labels, expected):
    orthant.write(blocks, "graph", y=np.array(labels))

    with open("graph/meta.json", encoding="utf-8") as file:
        assert json.load(file).get("num_classes") == expected


def test_edge_features_need_a_row_per_edge(blocks):
    del blocks["x"]
    with pytest.raises(ValueError, match="edge_attr has 3 rows for 700 edges"):
        orthant.write(dict(blocks, edge_attr=np.zeros((3, 2))), "graph")

    orthant.write(dict(blocks, edge_attr=np.ones((700, 2))), "graph")
    assert load("edge_attr").shape == (700, 2)
    with pytest.warns(RuntimeWarning, match="weight=False takes it in place of the weights"):
        orthant.write(dict(blocks, edge_attr=np.ones((700, 2)), edge_weight=np.arange(700.0)), "graph", force=True)
    assert load("edge_weight").shape == (700,) and not os.path.exists("graph/edge_attr.npy")
    orthant.write(dict(blocks, edge_attr=np.ones((700, 2)), edge_weight=np.arange(700.0)), "graph", weight=False, force=True)
    assert load("edge_attr").shape == (700, 2) and not os.path.exists("graph/edge_weight.npy")


def test_an_earlier_graph_is_replaced_only_if_asked(blocks):
    orthant.write(blocks, "graph")
    with pytest.raises(FileExistsError, match="force=True"):
        orthant.write(blocks, "graph")

    orthant.write({"edge_index": blocks["edge_index"]}, "graph", force=True)

    assert not os.path.exists("graph/y.npy")


def test_no_list_keeps_the_masks(blocks):
    orthant.write(blocks, "graph", train_idx=None)

    assert np.array_equal(load("train_mask"), blocks["train_mask"])


@pytest.mark.parametrize("change, message", [
    ({"x": np.zeros((119, 8))}, "x has shape .119, 8., but the graph has 120 vertices"),
    ({"edge_weight": np.ones(3)}, "3 weights for 700 edges"),
    ({"edge_weight": ["a"] * 700}, "could not convert"),
    ({"edge_index": np.zeros((700, 2), int)}, "it must be .2, edges."),
    ({"edge_index": np.zeros((2, 700))}, "type float64; they must be whole numbers"),
    ({"edge_index": np.full((2, 700), 120)}, "edge_index has numbers from 120 to 120, but the vertices are 0 to 119"),
    ({"y": np.zeros(119)}, "y has shape .119."),
    ({"x": [["a"]] * 120}, "could not convert"),
    ({"train_mask": np.zeros(119, bool)}, "train_mask has shape .119., but the graph has 120 vertices"),
    ({"train_mask": None, "val_mask": None, "test_mask": None, "train_idx": [120]}, "train_idx has numbers from 120"),
    ({"train_mask": None, "val_mask": None, "test_mask": None, "train_idx": [0.5]}, "train_idx has the type float64"),
])
def test_shapes_that_do_not_fit_are_refused(blocks, change, message):
    orthant.write(blocks, "earlier")
    given = {**blocks, "num_nodes": 120, **change}

    with pytest.raises(ValueError, match=message):
        orthant.write(given, "graph")
    assert not os.path.exists("graph")
    with pytest.raises(ValueError, match=message):
        orthant.write(given, "earlier", force=True)
    assert np.array_equal(np.load("earlier/x.npy"), blocks["x"])


def test_columns_of_edges_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 sources and 1 targets"):
        orthant.write({"from": [0, 1], "to": [1]}, "graph")
    with pytest.raises(ValueError, match="whole numbers"):
        orthant.write({"from": ["a"], "to": ["b"]}, "graph", names=False)
    assert not os.path.exists("graph")


def test_unknown_arrays_and_objects_are_refused(blocks):
    with pytest.raises(TypeError, match="no argument 'labelz'"):
        orthant.write(blocks, "graph", labelz=blocks["y"])
    with pytest.raises(TypeError, match="cannot write a builtins.int"):
        orthant.write(3, "graph")
    assert not os.path.exists("graph")


def test_named_edges_in_a_dict_of_columns():
    edges = {"from": ["ann", "bob", "ann"], "to": ["bob", "eve", "dan"]}

    folder = orthant.write(edges, "graph")

    assert folder.names == ["ann", "bob", "eve", "dan"]
    assert orthant.read_names("graph") == folder.names
    ends = [[folder.names[end] for end in side] for side in load("edge_index")]
    assert ends == [edges["from"], edges["to"]]


def test_columns_of_a_table_that_are_not_written_warn():
    edges = {"from": ["ann", "bob"], "to": ["bob", "eve"], "since": [2020.0, 2022.0], "note": ["a", "b"], "weight": [2, 3]}

    with pytest.warns(RuntimeWarning, match="not written: 'since', 'note'; weight='since' takes one"):
        orthant.write(edges, "graph")
    assert load("edge_weight").tolist() == [2, 3]

    with pytest.warns(RuntimeWarning, match="not written: 'note', 'weight'"):
        orthant.write(edges, "graph", weight="since", force=True)
    assert load("edge_weight").tolist() == [2020, 2022]


@pytest.mark.parametrize("given", [
    {"edges": {"from": [0], "to": [1], "since": [2020.0]}, "weight": False},
    {"edges": {"from": [0], "to": [1], "since": [2020.0]}, "weight": "since"},
    {"edges": {"b": [0], "w": [1.0], "a": [1]}, "source": "a", "target": "b"},
    {"edges": {"edge_index": np.array([[0], [1]]), "since": [2020.0]}},
])
def test_columns_that_are_used_or_refused_do_not_warn(given):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        orthant.write(given.pop("edges"), "graph", **given)


def test_a_table_of_vertices_gives_order_and_attributes():
    edges = {"source": [10, 30], "target": [20, 10]}
    people = {"id": [30, 20, 10, 40], "age": [1.0, 2.0, 3.0, 4.0], "team": ["a", "b", "", "a"]}

    folder = orthant.write(edges, "graph", vertices=people, x=["age"], y="team")

    assert folder.names == [30, 20, 10, 40]
    assert load("edge_index").tolist() == [[2, 0], [1, 2]]
    assert load("x").tolist() == [[1], [2], [3], [4]]
    assert load("y").tolist() == [0, 1, -1, 0]
    with pytest.raises(ValueError, match="edge 1 names 50"):
        orthant.write({"source": [10, 50], "target": [20, 10]}, "other", vertices=people)


def test_the_program_reads_the_folder(blocks, exported):
    found = exported(orthant.write(blocks, "graph"), directed=True, duplicates="keep")

    pairs = sorted(map(tuple, found["edge_index"].T.tolist()))
    assert pairs == sorted(map(tuple, blocks["edge_index"].T.tolist()))
    assert np.array_equal(found["x"], blocks["x"])


def test_symmetric_weights_are_not_doubled(exported):
    ends = np.array([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    weights = np.array([0.5, 0.5, 2.0, 2.0, 3.0])

    folder = orthant.write({"edge_index": ends, "edge_weight": weights}, "graph")
    found = exported(folder)

    assert folder.num_edges == 3
    edges = {tuple(sorted(pair)): weight for pair, weight in zip(found["edge_index"].T.tolist(), found["edge_weight"])}
    assert edges == {(0, 1): 0.5, (1, 2): 2.0, (2, 2): 3.0}


def test_weights_of_one_direction_warn():
    with pytest.warns(RuntimeWarning, match="directed=True") as found:
        orthant.write({"edge_index": np.array([[0, 1], [1, 2]]), "edge_weight": np.array([0.5, 2.0])}, "graph")
    assert found[0].filename == __file__


def test_a_split_with_one_part_is_enough(blocks, exported):
    del blocks["val_mask"], blocks["test_mask"]

    exported(orthant.write(blocks, "graph"))

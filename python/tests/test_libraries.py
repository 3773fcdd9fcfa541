# SPDX-License-Identifier: Apache-2.0
"""`write` from the graphs of other libraries. A test skips if its library is not installed."""
import json
import os

import numpy as np
import pytest

import orthant


def load(name):
    return np.load(f"graph/{name}.npy")


def test_pyg_data(blocks):
    torch = pytest.importorskip("torch")
    geometric = pytest.importorskip("torch_geometric")
    data = geometric.data.Data(**{name: torch.from_numpy(array) for name, array in blocks.items()})

    folder = orthant.write(data, "graph")

    assert (folder.num_vertices, folder.num_edges) == (120, 700)
    for name, array in blocks.items():
        assert np.array_equal(load(name), array)


def test_pyg_data_shares_memory_with_numpy(blocks):
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(blocks["x"])

    assert np.shares_memory(orthant._arrays.to_numpy(tensor), blocks["x"])


def test_pyg_adjacency_and_bfloat16(blocks):
    torch = pytest.importorskip("torch")
    geometric = pytest.importorskip("torch_geometric")
    data = geometric.data.Data(edge_index=torch.from_numpy(np.unique(blocks["edge_index"], axis=1)),
                               x=torch.from_numpy(blocks["x"]).bfloat16())
    wanted = sorted(map(tuple, data.edge_index.T.tolist()))
    data = geometric.transforms.ToSparseTensor()(data)

    orthant.write(data, "graph")

    assert sorted(map(tuple, load("edge_index").T.tolist())) == wanted
    assert load("x").dtype == np.float32


def test_pyg_edge_features_are_for_vertices_that_have_none(blocks):
    torch = pytest.importorskip("torch")
    geometric = pytest.importorskip("torch_geometric")
    data = geometric.data.Data(edge_index=torch.from_numpy(blocks["edge_index"]), num_nodes=120, edge_attr=torch.rand(700, 3))

    orthant.write(data, "graph")
    assert np.array_equal(load("edge_attr"), data.edge_attr.numpy())

    data.x = torch.zeros(120, 2)
    with pytest.warns(RuntimeWarning, match="3 columns"):
        orthant.write(data, "graph", force=True)
    assert not os.path.exists("graph/edge_attr.npy")


def expect_typed_folder(path):
    found = {name: np.load(os.path.join(path, name + ".npy")).tolist()
             for name in ("author__writes__paper/edge_index", "paper__cites__paper/edge_index", "paper/y", "paper/train_mask")}
    assert found == {"author__writes__paper/edge_index": [[0, 1, 2], [3, 0, 1]], "paper__cites__paper/edge_index": [[0, 1], [1, 2]],
                     "paper/y": [0, 1, 0, 1], "paper/train_mask": [True, True, False, False]}
    assert np.load(os.path.join(path, "paper", "x.npy")).shape == (4, 2)
    assert not os.path.exists(os.path.join(path, "author", "x.npy"))
    with open(os.path.join(path, "meta.json"), encoding="utf-8") as file:
        assert json.load(file) == {"num_nodes": {"author": 5, "paper": 4}}


def test_pyg_graph_of_several_types():
    torch = pytest.importorskip("torch")
    geometric = pytest.importorskip("torch_geometric")
    data = geometric.data.HeteroData()
    data["author"].num_nodes = 5
    data["paper"].x = torch.zeros(4, 2)
    data["paper"].y = torch.tensor([0, 1, 0, 1])
    data["paper"].train_mask = torch.tensor([True, True, False, False])
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2], [3, 0, 1]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])

    folder = orthant.write(data, "graph")

    assert (folder.num_vertices, folder.num_edges) == (9, 5)
    expect_typed_folder("graph")
    with pytest.raises(FileExistsError):
        orthant.write(data, "graph")
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 5], [3, 0]])
    with pytest.raises(ValueError, match="author__writes__paper has numbers from 0 to 5, but the vertices are 0 to 4"):
        orthant.write(data, "graph", force=True)
    expect_typed_folder("graph")
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2], [3, 0, 1]])
    del data["paper", "cites", "paper"]
    orthant.write(data, "graph", force=True)
    assert not os.path.exists("graph/paper__cites__paper/edge_index.npy")
    with pytest.raises(TypeError, match="by type"):
        orthant.write(data, "other", y=[0] * 9)
    with pytest.raises(ValueError, match="cannot be part of the name"):
        data["paper", "is__like", "paper"].edge_index = torch.tensor([[0], [1]])
        orthant.write(data, "other")


def test_dgl_graph_of_several_types():
    torch = pytest.importorskip("torch")
    dgl = pytest.importorskip("dgl", exc_type=Exception)
    graph = dgl.heterograph({("author", "writes", "paper"): ([0, 1, 2], [3, 0, 1]), ("paper", "cites", "paper"): ([0, 1], [1, 2])},
                            num_nodes_dict={"author": 5, "paper": 4})
    graph.nodes["paper"].data.update(feat=torch.zeros(4, 2), label=torch.tensor([0, 1, 0, 1]),
                                     train_mask=torch.tensor([True, True, False, False]))

    orthant.write(graph, "graph")

    expect_typed_folder("graph")


def test_dgl_graph(blocks):
    torch = pytest.importorskip("torch")
    dgl = pytest.importorskip("dgl", exc_type=Exception)
    source, target = torch.from_numpy(blocks["edge_index"])
    graph = dgl.graph((source, target), num_nodes=120)
    for name, other in (("feat", "x"), ("label", "y"), ("train_mask", "train_mask")):
        graph.ndata[name] = torch.from_numpy(blocks[other])

    orthant.write(graph, "graph")

    for name in ("edge_index", "x", "y", "train_mask"):
        assert np.array_equal(load(name), blocks[name])


def test_networkx_graph_with_names():
    networkx = pytest.importorskip("networkx")
    graph = networkx.karate_club_graph()
    graph = networkx.relabel_nodes(graph, {number: f"member {number}" for number in graph})

    folder = orthant.write(graph, "graph", y="club")

    assert folder.names[:2] == ["member 0", "member 1"]
    assert folder.classes == ["Mr. Hi", "Officer"]
    assert (folder.num_vertices, folder.num_edges) == (34, 78)
    assert load("edge_weight").sum() == sum(weight for *_, weight in graph.edges(data="weight"))


def test_networkx_attributes_become_features():
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph()
    graph.add_node("a", age=3, rank=1.5)
    graph.add_node("b", age=4, rank=2.5)
    graph.add_edge("a", "b")

    orthant.write(graph, "graph", x=["age", "rank"])

    assert load("x").tolist() == [[3, 1.5], [4, 2.5]]
    graph.add_edge("b", "a", weight=2.0)
    with pytest.raises(ValueError, match="1 of 2 edges have no attribute 'weight'"):
        orthant.write(graph, "graph", force=True)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil"])
def test_scipy_matrix(kind):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(50, 50, 0.1, "coo", random_state=0)
    matrix = (matrix + matrix.T).asformat(kind)

    folder = orthant.write(matrix, "graph", x=sparse.random(50, 9, 0.2, "csr", random_state=1))

    rows, columns = load("edge_index")
    rebuilt = sparse.coo_matrix((load("edge_weight"), (rows, columns)), shape=(50, 50))
    assert abs(rebuilt - sparse.triu(matrix)).max() == 0
    assert load("x_shape").tolist() == [50, 9]
    assert folder.num_vertices == 50


def test_scipy_ones_are_no_weights():
    sparse = pytest.importorskip("scipy.sparse")

    folder = orthant.write(sparse.eye(5, format="csr", k=1), "graph")

    assert folder.num_edges == 4
    with pytest.raises(FileNotFoundError):
        load("edge_weight")
    with pytest.raises(ValueError, match="5 rows and 4 columns"):
        orthant.write(sparse.csr_matrix((5, 4)), "other")


def test_scipy_features_reach_the_program(blocks, exported):
    sparse = pytest.importorskip("scipy.sparse")
    x = sparse.random(120, 9, 0.2, "csr", random_state=1)

    found = exported(orthant.write({"edge_index": blocks["edge_index"]}, "graph", x=x))

    rebuilt = sparse.csr_matrix((found["x_data"], found["x_indices"], found["x_indptr"]), shape=x.shape)
    assert abs(rebuilt - x).max() < 1e-6


@pytest.fixture(params=["pandas", "pyarrow", "dict"])
def table(request):
    if request.param == "dict":
        return dict
    library = pytest.importorskip(request.param)
    return library.DataFrame if request.param == "pandas" else library.table


def test_table_of_named_edges(table):
    folder = orthant.write(table({"who": ["ann", "bob"], "whom": ["bob", "eve"], "weight": [1.0, 2.0]}), "graph")

    assert folder.names == ["ann", "bob", "eve"]
    assert load("edge_index").tolist() == [[0, 1], [1, 2]]
    assert load("edge_weight").tolist() == [1, 2]


def test_table_of_numbers(table):
    given = table({"source": [5, 7], "target": [7, 9]})

    assert orthant.write(given, "graph").num_vertices == 10
    assert orthant.write(given, "graph", names=True, force=True).names == [5, 7, 9]


@pytest.mark.parametrize("kind", ["Int64", "UInt8", "int64[pyarrow]"])
def test_nullable_numbers_of_pandas(kind):
    pandas = pytest.importorskip("pandas")
    if "pyarrow" in kind:
        pytest.importorskip("pyarrow")
    given = pandas.DataFrame({"source": [5, 7], "target": [7, 9], "weight": [1, 2]}).astype(kind)

    assert orthant.write(given, "graph").num_vertices == 10
    assert load("edge_index").tolist() == [[5, 7], [7, 9]]
    assert load("edge_weight").tolist() == [1, 2]
    given.loc[1, "target"] = pandas.NA
    with pytest.raises(ValueError, match="edge 1 names"):
        orthant.write(given, "graph", force=True)
    assert load("edge_index").tolist() == [[5, 7], [7, 9]]


def test_tables_of_edges_and_vertices(table):
    edges = table({"source": ["x", "z"], "target": ["y", "x"]})
    vertices = table({"id": ["z", "y", "x"], "age": [1, 2, 3], "label": ["red", "blue", "red"],
                      "train_mask": [True, False, True]})

    folder = orthant.write(edges, "graph", vertices=vertices, x=["age"])

    assert folder.names == ["z", "y", "x"]
    assert load("edge_index").tolist() == [[2, 0], [1, 2]]
    assert load("y").tolist() == [1, 0, 1]
    assert load("train_mask").tolist() == [True, False, True]
    with pytest.raises(ValueError, match="edge 0 names"):
        orthant.write(table({"source": ["nobody"], "target": ["y"]}), "other", vertices=vertices)

# SPDX-License-Identifier: Apache-2.0
"""Takes the graphs of other libraries apart. No library is imported that the caller has not imported."""
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np

from ._arrays import Array, encode, module_of, to_numpy

# The names of the program, each with the names under which libraries have the same array.
ALIASES: Dict[str, Tuple[str, ...]] = {
    "x": ("x", "feat", "features", "feature"),
    "y": ("y", "label", "labels"),
    "train_mask": ("train_mask",),
    "val_mask": ("val_mask", "valid_mask"),
    "test_mask": ("test_mask",),
    "train_idx": ("train_idx",),
    "val_idx": ("val_idx", "valid_idx"),
    "test_idx": ("test_idx",),
}
WEIGHTS = ("edge_weight", "weight", "w", "edge_attr")
Weight = Union[bool, str]


@dataclass
class Parts:
    """A graph as arrays. `both_directions`: undirected edges are listed in both directions."""

    sources: Array
    targets: Array
    num_vertices: Optional[int] = None
    weights: Optional[Any] = None
    arrays: Dict[str, Any] = field(default_factory=dict)
    names: Optional[List[Any]] = None
    both_directions: bool = True
    column: Optional[Callable[[str], Any]] = None  # an attribute of the vertices by its name
    edge_features: Optional[Any] = None  # edge_attr


def take_apart(graph: Any, weight: Weight, source: Optional[str], target: Optional[str],
               vertices: Optional[Any], names: Optional[bool]) -> Parts:
    """Recognizes the library of `graph` by the module of its type."""
    if module_of(graph, "torch_geometric"):
        return _from_pyg(graph, weight)
    if module_of(graph, "dgl"):
        return _from_dgl(graph, weight)
    if module_of(graph, "networkx"):
        return _from_networkx(graph, weight)
    if module_of(graph, "scipy"):
        return _from_scipy(graph, weight)
    if module_of(graph, "pandas", "pyarrow") or (isinstance(graph, dict) and "edge_index" not in graph):
        return _from_table(graph, weight, source, target, vertices, names)
    if isinstance(graph, dict):
        return _from_arrays(graph.get, weight, graph.get("num_nodes"))
    raise TypeError(f"cannot write a {type(graph).__module__}.{type(graph).__qualname__}: give a graph of PyTorch "
                    "Geometric, DGL or NetworkX, a SciPy matrix, a table of edges, or a dict of arrays")


def _pick(get: Callable[[str], Any], weight: Weight) -> Optional[Any]:
    """The weights of the edges by the parameter `weight`: a name, True for the usual names, or False."""
    if isinstance(weight, str):
        found = get(weight)
        if found is None:
            raise KeyError(f"the edges have no attribute '{weight}'")
        return found
    for name in WEIGHTS if weight else ():
        found = get(name)
        if found is not None:
            return found
    return None


def _from_arrays(get: Callable[[str], Any], weight: Weight, num_vertices: Optional[int]) -> Parts:
    edges = to_numpy(get("edge_index"))
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"edge_index has shape {list(edges.shape)}; it must be [2, edges], sources above targets")
    arrays = {name: found for name, aliases in ALIASES.items() for alias in reversed(aliases)
              if (found := get(alias)) is not None}
    return Parts(edges[0], edges[1], num_vertices, _pick(get, weight), arrays, column=get, edge_features=get("edge_attr"))


def _from_pyg(data: Any, weight: Weight) -> Parts:
    if hasattr(data, "indices") and hasattr(data, "get"):
        if len(data) > 1:
            raise TypeError(f"this is a data set of {len(data)} graphs: pass one of them, such as dataset[0]")
        data = data[0]

    def get(name: str) -> Any:
        return getattr(data, name, None)

    if get("edge_index") is not None:
        return _from_arrays(get, weight, data.num_nodes)
    adjacency = get("adj_t")
    if adjacency is None:
        raise ValueError("the graph has no edge_index")
    if module_of(adjacency, "torch"):
        adjacency = adjacency.to_sparse_coo().coalesce()
        (targets, sources), values = adjacency.indices(), adjacency.values()
    else:
        targets, sources, values = adjacency.coo()
    if values is not None and (weight is False or bool((values == 1).all())):
        values = None
    parts = _from_arrays({**{name: get(name) for aliases in ALIASES.values() for name in aliases},
                          "edge_index": np.empty((2, 0), np.int64)}.get, False, data.num_nodes)
    parts.sources, parts.targets, parts.weights, parts.column = to_numpy(sources), to_numpy(targets), values, get
    return parts


def _from_dgl(graph: Any, weight: Weight) -> Parts:
    sources, targets = graph.edges()
    arrays = {name: graph.ndata[alias] for name, aliases in ALIASES.items() for alias in reversed(aliases)
              if alias in graph.ndata}
    return Parts(to_numpy(sources), to_numpy(targets), graph.num_nodes(),
                 _pick(lambda name: graph.edata[name] if name in graph.edata else None, weight), arrays,
                 column=lambda name: graph.ndata[name] if name in graph.ndata else None)


def _from_networkx(graph: Any, weight: Weight) -> Parts:
    names = list(graph)
    numbers = {name: number for number, name in enumerate(names)}
    count = graph.number_of_edges()
    ends = np.fromiter((numbers[end] for edge in graph.edges() for end in edge), np.int64, 2 * count)

    def edge_column(name: str) -> Optional[Array]:
        values = [value for *_, value in graph.edges(data=name)]
        known = sum(value is not None for value in values)
        if known and known < count:
            raise ValueError(f"{count - known} of {count} edges have no attribute '{name}': give them one, or pass "
                             "weight=False")
        return np.array(values, dtype=np.float64) if known else None

    def column(name: str) -> Optional[Array]:
        values = [value for _, value in graph.nodes(data=name)]
        if all(value is None for value in values):
            return None
        return np.array(values)

    arrays = {}
    for name, aliases in ALIASES.items():
        for alias in aliases:
            if name not in arrays and (found := column(alias)) is not None:
                arrays[name] = found
    is_counted = names == list(range(len(names)))
    return Parts(ends[0::2], ends[1::2], len(names), _pick(edge_column, weight), arrays,
                 None if is_counted else names, graph.is_directed(), column)


def _from_scipy(matrix: Any, weight: Weight) -> Parts:
    rows, columns = matrix.shape
    if rows != columns:
        raise ValueError(f"the matrix has {rows} rows and {columns} columns; the matrix of a graph is square")
    if matrix.format in ("csr", "csc"):
        major = np.repeat(np.arange(rows, dtype=matrix.indices.dtype), np.diff(matrix.indptr))
        sources, targets = (major, matrix.indices) if matrix.format == "csr" else (matrix.indices, major)
        values = matrix.data
    else:
        matrix = matrix.tocoo()
        sources, targets, values = matrix.row, matrix.col, matrix.data
    is_weighted = weight is not False and values.dtype.kind != "b" and not bool((values == 1).all())
    return Parts(sources, targets, rows, values if is_weighted else None)


def _from_table(table: Any, weight: Weight, source: Optional[str], target: Optional[str],
                vertices: Optional[Any], names: Optional[bool]) -> Parts:
    columns = list(table.column_names if module_of(table, "pyarrow") else table)
    pairs = (("source", "target"), ("src", "dst"), ("from", "to"))
    usual = next((pair for pair in pairs if set(pair) <= set(columns)), tuple(columns[:2]))
    source, target = source or usual[0], target or usual[1]
    ends = [table[source], table[target]]
    weights = _pick(lambda name: table[name] if name in columns else None, weight)
    if vertices is not None:
        return _with_vertices(ends, weights, vertices)
    numbers = [to_numpy(end) for end in ends]
    is_whole = all(np.issubdtype(array.dtype, np.integer) for array in numbers)
    if not (is_whole if names is None else not names):
        codes, found = encode(ends)
        return Parts(codes[0], codes[1], len(found), weights, {}, found, False)
    return Parts(numbers[0], numbers[1], None, weights, both_directions=False)


def _with_vertices(ends: List[Any], weights: Optional[Any], vertices: Any) -> Parts:
    """Vertices are the rows of a table: its first column, or its index if that has a name, holds their names."""
    if module_of(vertices, "pandas") and vertices.index.name is not None:
        keys, attributes = vertices.index, list(vertices)
    else:
        attributes = list(vertices.column_names if module_of(vertices, "pyarrow") else vertices)
        keys = vertices[attributes[0]]
    codes, found = encode(ends, keys)
    if len(set(found)) != len(keys):
        raise ValueError("the table of vertices names a vertex twice")

    def column(name: str) -> Optional[Any]:
        return vertices[name] if name in attributes else None

    arrays = {name: column(alias) for name, aliases in ALIASES.items() for alias in reversed(aliases)
              if alias in attributes}
    return Parts(codes[0], codes[1], len(found), weights, arrays, found, False, column)

# SPDX-License-Identifier: Apache-2.0
"""Writes a graph as a folder of arrays that `orthant partition --input FOLDER` reads."""
import csv
import json
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Union

import numpy as np

from ._arrays import Array, halve_if_symmetric, module_of, numbers_of_labels, remove_files, save, save_parts, to_numpy
from ._errors import warn
from ._graphs import ALIASES, Parts, Weight, take_apart
from ._typed import TypedParts, folders_of, take_typed_apart

PathLike = Union[str, "os.PathLike[str]"]
_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
_FILES = [f"{name}.npy" for aliases in ALIASES.values() for name in aliases] + [f"{name}.npy" for name in _SPARSE] + [
    "edge_index.npy", "edge_weight.npy", "edge_attr.npy", "edge_feat.npy", "meta.json", "vertices.csv", "classes.csv"]


@dataclass(frozen=True)
class GraphFolder:
    """A folder that `write` made. It is a path, so `partition` takes it.

    names: the name of each vertex, or None if vertices have numbers only; vertices.csv has the same. classes: the
    name of each class, or None; classes.csv has the same.
    """

    path: str
    num_vertices: int
    num_edges: int
    names: Optional[List[Any]] = None
    classes: Optional[List[str]] = None

    def __fspath__(self) -> str:
        return self.path


def write(graph: Any, folder: PathLike, *, weight: Weight = True, split: Optional[int] = None, source: Optional[str] = None,
          target: Optional[str] = None, vertices: Optional[Any] = None, names: Optional[bool] = None,
          force: bool = False, **arrays: Any) -> GraphFolder:
    """Writes a graph as a folder of .npy arrays, which `partition` reads.

    graph: Data or HeteroData of PyTorch Geometric; a graph of DGL, with or without types, or of NetworkX; a square matrix of SciPy (entry [i, j] is the edge from
    i to j); a table of edges of pandas or Arrow, or a dict of columns; or a dict of arrays with "edge_index".
    weight: True takes edge_weight, weight, w or a one-column edge_attr if the graph has it; a name takes that
    attribute; False takes none. Several columns are features of edges: they are written if the vertices have no x, for
    partition(.., features_from_edges="mean"). split: the one column that is written of masks that have one column per split; by default all.
    source, target: columns of a table of edges; by default source and target, src and dst, from and to, or the first
    two. Columns that are neither these nor the weight are not written, with a warning. vertices: table of the vertices,
    whose first column, or named index, holds their names. names: True treats whole numbers in a table as names; by
    default they are vertices 0, 1, .. and anything else is a name.
    force: replace the arrays of an earlier graph in the folder. Nothing is written or removed if an array does not fit.
    arrays: x, y, train_mask, val_mask, test_mask, or train_idx and so on, as arrays or as the name of an attribute
    of the vertices, or for x as a list of names: x=["age", "income"], y="team". x may be a sparse matrix.

    The program adds the reverse of each edge unless partition has directed=True.
    """
    typed = take_typed_apart(graph)
    if typed is not None:
        if any(value is not None for value in arrays.values()):
            raise TypeError(f"a graph of several types has its arrays by type: put '{next(iter(arrays))}' into the graph")
        return _write_typed(typed, os.fspath(folder), split, force)
    graph = _with_recorded_reads(graph)
    parts = take_apart(graph, weight, source, target, vertices, names)
    if isinstance(graph, _ReadColumns) and weight is not False:
        _warn_of_columns(graph.not_read)
    for name, value in arrays.items():
        known = next((known for known, aliases in ALIASES.items() if name in aliases), None)
        if known is None:
            raise TypeError(f"write has no argument '{name}'; arrays are {', '.join(ALIASES)}")
        if value is not None:
            parts.arrays[known] = _attribute(parts, value)
    # A split that is given replaces that of the graph.
    if any(name.endswith("_idx") and value is not None for name, value in arrays.items()):
        parts.arrays = {name: value for name, value in parts.arrays.items() if not name.endswith("_mask")}
    _check_types_of_ends(parts)
    edge_features = _edge_features(parts)
    weights = _checked_weights(parts)
    count = _number_of_vertices(parts)
    sources, targets = (_checked_ids(array, count, "edge_index") for array in (parts.sources, parts.targets))
    if weights is not None and parts.both_directions:
        half = halve_if_symmetric(sources, targets, weights, count)
        if half is None:
            warn("the weights are not symmetric: pass directed=True to partition to keep each as it is listed; "
                 "otherwise both directions get the sum")
        else:
            sources, targets, weights = half
    checked: Dict[str, Array] = {} if weights is None else {"edge_weight": weights}
    if edge_features is not None:
        checked["edge_attr"] = edge_features
    classes = None
    if "x" in parts.arrays:
        checked.update(_features(parts.arrays["x"], count))
    if "y" in parts.arrays:
        checked["y"], classes = numbers_of_labels(_with_dimensions(to_numpy(parts.arrays["y"]), count, "y"))
    checked.update(_split(parts.arrays, count, split))

    path = os.fspath(folder)
    _make_room(path, force)
    save_parts(os.path.join(path, "edge_index.npy"), [sources, targets], (2, len(sources)))
    for name, array in checked.items():
        save(os.path.join(path, f"{name}.npy"), array)
    meta = {"name": os.path.basename(os.path.abspath(path)), "num_nodes": count}
    if classes is None and "y" in checked and checked["y"].size == count and checked["y"].dtype.kind in "iu":
        largest = int(checked["y"].max(initial=0))
        if largest < count:  # larger numbers may be names
            meta["num_classes"] = largest + 1
    with open(os.path.join(path, "meta.json"), "w", encoding="utf-8") as file:
        json.dump(meta, file)
    _save_names(path, "vertices.csv", "name", parts.names)
    _save_names(path, "classes.csv", "class", classes)
    return GraphFolder(path, count, len(sources), parts.names, classes)


def _make_room(path: str, force: bool) -> None:
    """Makes the folder, without the files of an earlier graph."""
    folders = ["", *(name for name in (os.listdir(path) if os.path.isdir(path) else ()) if os.path.isdir(os.path.join(path, name)))]
    if not any(name.count("__") == 2 for name in folders):
        folders = [""]  # a graph without types: other folders are not of the graph
    present = [os.path.join(folder, name) for folder in folders for name in _FILES
               if os.path.exists(os.path.join(path, folder, name))]
    if present and not force:
        raise FileExistsError(f"{path} holds a graph already ({present[0]}); force=True replaces it")
    os.makedirs(path, exist_ok=True)
    remove_files(path, present)


def _write_typed(parts: TypedParts, path: str, split: Optional[int], force: bool) -> GraphFolder:
    """A folder for each type and for each relation."""
    files: Dict[str, Array] = {}
    for relation, ends in parts.edges.items():
        name = "__".join(relation)
        both = [_checked_ids(end, parts.counts[kind], name) for end, kind in zip(ends, (relation[0], relation[2]))]
        files[f"{name}/edge_index.npy"] = np.stack(both)
    for kind, arrays in parts.arrays.items():
        count = parts.counts[kind]
        checked: Dict[str, Array] = _features(arrays["x"], count) if "x" in arrays else {}
        if "x_indptr" in checked:
            raise ValueError(f"the features of '{kind}' are sparse, which a graph of several types cannot have")
        if "y" in arrays:
            checked["y"] = _with_dimensions(to_numpy(arrays["y"]), count, "y")
        checked.update(_split(arrays, count, split))
        files.update((f"{kind}/{name}.npy", array) for name, array in checked.items())
    folders = folders_of(parts)
    _make_room(path, force)
    for folder in folders:
        os.makedirs(os.path.join(path, folder), exist_ok=True)
    for name, array in files.items():
        save(os.path.join(path, name), array)
    with open(os.path.join(path, "meta.json"), "w", encoding="utf-8") as file:
        json.dump({"num_nodes": parts.counts}, file)
    return GraphFolder(path, sum(parts.counts.values()), sum(len(ends[0]) for ends in parts.edges.values()))


def read_names(folder: PathLike) -> List[str]:
    """The names of the vertices that `write` kept in vertices.csv, as texts: row i is vertex i."""
    with open(os.path.join(folder, "vertices.csv"), newline="", encoding="utf-8") as file:
        return [row[1] for row in csv.reader(file)][1:]


class _ReadColumns(Dict[str, Any]):
    """The columns of a table of edges; not_read has the names of those that nobody has asked for."""

    def __init__(self, names: List[str], table: Any) -> None:
        super().__init__((name, table[name]) for name in names)
        self.not_read = names

    def __getitem__(self, name: str) -> Any:
        if name in self.not_read:
            self.not_read.remove(name)
        return super().__getitem__(name)


def _with_recorded_reads(graph: Any) -> Any:
    """A table of edges as _ReadColumns, and any other graph as it is: with "edge_index" a dict is one of arrays."""
    if not module_of(graph, "pandas", "pyarrow") and not isinstance(graph, dict):
        return graph
    names = list(graph.column_names if module_of(graph, "pyarrow") else graph)
    return graph if "edge_index" in names else _ReadColumns(names, graph)


def _warn_of_columns(names: List[str]) -> None:
    if names:
        listed = ", ".join(f"'{name}'" for name in names)
        warn(f"the table of edges has columns that are not written: {listed}; weight='{names[0]}' takes one as the "
             "weight of the edges, and weight=False takes none, without this warning")


def _attribute(parts: Parts, value: Any) -> Any:
    """An array as it is given, or the attribute of the vertices with that name, or several as columns."""
    if not isinstance(value, str) and not (isinstance(value, (list, tuple)) and value
                                           and all(isinstance(name, str) for name in value)):
        return value
    found = []
    for name in [value] if isinstance(value, str) else value:
        column = parts.column(name) if parts.column is not None else None
        if column is None:
            raise KeyError(f"the vertices have no attribute '{name}'")
        found.append(to_numpy(column))
    return found[0] if isinstance(value, str) else np.column_stack(found)


def _check_types_of_ends(parts: Parts) -> None:
    if len(parts.sources) != len(parts.targets):
        raise ValueError(f"the edges have {len(parts.sources)} sources and {len(parts.targets)} targets")
    kind = np.result_type(parts.sources, parts.targets)
    if len(parts.sources) and kind.kind not in "iu":
        raise ValueError(f"the ends of the edges have the type {kind}; they must be whole numbers")


def _has_columns(array: Any) -> bool:
    shape = getattr(array, "shape", ())
    return len(shape) == 2 and shape[1] > 1


def _edge_features(parts: Parts) -> Optional[Array]:
    """Several numbers per edge, of which partition makes features of vertices that have none."""
    found = next((array for array in (parts.weights, parts.edge_features) if _has_columns(array)), None)
    if found is None:
        return None
    features = to_numpy(found)
    reason = "the vertices have x" if "x" in parts.arrays else "weight=False takes it in place of the weights"
    if "x" in parts.arrays or (parts.weights is not None and not _has_columns(parts.weights)):
        warn(f"edge_attr has {features.shape[1]} columns and is not written: {reason}")
        return None
    if len(features) != len(parts.sources):
        raise ValueError(f"edge_attr has {len(features)} rows for {len(parts.sources)} edges")
    return features if features.dtype.kind in "fiub" else features.astype(np.float32)


def _checked_weights(parts: Parts) -> Optional[Array]:
    if parts.weights is None or _has_columns(parts.weights):
        return None
    weights = to_numpy(parts.weights)
    if weights.size != len(parts.sources):
        raise ValueError(f"there are {weights.size} weights for {len(parts.sources)} edges")
    if weights.dtype.kind not in "fiub":
        weights = weights.astype(np.float64)
    return weights.reshape(-1)


def _number_of_vertices(parts: Parts) -> int:
    if parts.num_vertices is not None:
        return int(parts.num_vertices)
    for name in ("x", "y", "train_mask"):
        if name in parts.arrays:
            return int(parts.arrays[name].shape[0] if hasattr(parts.arrays[name], "shape") else len(parts.arrays[name]))
    if len(parts.sources) == 0:
        raise ValueError("the graph has no edges and no vertices")
    return int(max(parts.sources.max(), parts.targets.max())) + 1


def _with_dimensions(array: Array, count: int, name: str) -> Array:
    if array.ndim == 0 or array.shape[0] != count:
        raise ValueError(f"{name} has shape {list(array.shape)}, but the graph has {count} vertices")
    return array


def _features(x: Any, count: int) -> Dict[str, Array]:
    if module_of(x, "scipy"):
        x = _with_dimensions(x, count, "x").tocsr()
        return dict(zip(_SPARSE, (x.indptr, x.indices, x.data, np.array(x.shape))))
    array = _with_dimensions(to_numpy(x), count, "x")
    if array.dtype.kind not in "fiub":
        array = array.astype(np.float32)
    return {"x": array.reshape(count, -1)}


def _split(arrays: Dict[str, Any], count: int, column: Optional[int]) -> Dict[str, Array]:
    """All three masks or lists, because the program wants all of them; those that are missing are empty."""
    kind = "mask" if any(f"{part}_mask" in arrays for part in ("train", "val", "test")) else "idx"
    present = [part for part in ("train", "val", "test") if f"{part}_{kind}" in arrays]
    found = {}
    for part in ("train", "val", "test") if present else ():
        if part not in present:
            array = np.zeros(count if kind == "mask" else 0, dtype=bool if kind == "mask" else np.int64)
        else:
            array = to_numpy(arrays[f"{part}_{kind}"])
        if kind == "mask":
            array = _with_dimensions(array, count, f"{part}_mask")
            if array.ndim == 2 and array.shape[1] == 1:
                array = array[:, 0]
            elif array.ndim == 2 and column is not None:
                array = array[:, column]
            array = array.astype(bool)
        elif part in present:
            array = _checked_ids(array, count, f"{part}_idx")
        found[f"{part}_{kind}"] = array
    return found


def _checked_ids(array: Array, count: int, name: str) -> Array:
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} has the type {array.dtype}; it must be the numbers of vertices")
    if array.min() < 0 or array.max() >= count:
        found = f"numbers from {array.min()} to {array.max()}"
        raise ValueError(f"{name} has {found}, but the vertices are 0 to {count - 1}")
    return array


def _save_names(path: str, file_name: str, title: str, names: Optional[List[Any]]) -> None:
    if names is None:
        return
    with open(os.path.join(path, file_name), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", title])
        writer.writerows(enumerate(names))

# SPDX-License-Identifier: Apache-2.0
"""Writes a graph as a folder of arrays that `orthant partition --input FOLDER` reads."""
import csv
import json
import os
import warnings
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Union

import numpy as np

from ._arrays import Array, halve_if_symmetric, module_of, numbers_of_labels, remove_files, save, save_parts, to_numpy
from ._graphs import ALIASES, Parts, Weight, take_apart

PathLike = Union[str, "os.PathLike[str]"]
_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
_FILES = [f"{name}.npy" for aliases in ALIASES.values() for name in aliases] + [f"{name}.npy" for name in _SPARSE] + [
    "edge_index.npy", "edge_weight.npy", "edge_attr.npy", "meta.json", "vertices.csv", "classes.csv"]


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


def write(graph: Any, folder: PathLike, *, weight: Weight = True, split: int = 0, source: Optional[str] = None,
          target: Optional[str] = None, vertices: Optional[Any] = None, names: Optional[bool] = None,
          force: bool = False, **arrays: Any) -> GraphFolder:
    """Writes a graph as a folder of .npy arrays, which `partition` reads.

    graph: Data of PyTorch Geometric; a graph of DGL or NetworkX; a square matrix of SciPy (entry [i, j] is the edge from
    i to j); a table of edges of pandas or Arrow, or a dict of columns; or a dict of arrays with "edge_index".
    weight: True takes edge_weight, weight, w or a one-column edge_attr if the graph has it; a name takes that
    attribute; False takes none. split: column of masks that have one column per split.
    source, target: columns of a table of edges; by default source and target, src and dst, from and to, or the first
    two. vertices: table of the vertices, whose first column, or named index, holds their names. names: True treats
    whole numbers in a table as names; by default they are vertices 0, 1, .. and anything else is a name.
    force: replace the arrays of an earlier graph in the folder.
    arrays: x, y, train_mask, val_mask, test_mask, or train_idx and so on, as arrays or as the name of an attribute
    of the vertices, or for x as a list of names: x=["age", "income"], y="team". x may be a sparse matrix.

    The program adds the reverse of each edge unless partition has directed=True.
    """
    parts = take_apart(graph, weight, source, target, vertices, names)
    for name, value in arrays.items():
        known = next((known for known, aliases in ALIASES.items() if name in aliases), None)
        if known is None:
            raise TypeError(f"write has no argument '{name}'; arrays are {', '.join(ALIASES)}")
        if value is not None:
            parts.arrays[known] = _attribute(parts, value)
    if any(name.endswith("_idx") for name in arrays):  # a split that is given replaces that of the graph
        parts.arrays = {name: value for name, value in parts.arrays.items() if not name.endswith("_mask")}
    weights = _checked_weights(parts)
    count = _number_of_vertices(parts)
    y, classes = None, None
    if "y" in parts.arrays:
        y, classes = numbers_of_labels(_with_dimensions(to_numpy(parts.arrays["y"]), count, "y"))

    path = os.fspath(folder)
    os.makedirs(path, exist_ok=True)
    present = [name for name in _FILES if os.path.exists(os.path.join(path, name))]
    if present and not force:
        raise FileExistsError(f"{path} holds a graph already ({present[0]}); force=True replaces it")
    remove_files(path, present)
    sources, targets = parts.sources, parts.targets
    if weights is not None and parts.both_directions:
        half = halve_if_symmetric(sources, targets, weights, count)
        if half is None:
            warnings.warn("the weights are not symmetric: pass directed=True to partition to keep each as it is listed; "
                          "otherwise both directions get the sum", RuntimeWarning, stacklevel=2)
        else:
            sources, targets, weights = half
    save_parts(os.path.join(path, "edge_index.npy"), [sources, targets], (2, len(sources)))
    if weights is not None:
        save(os.path.join(path, "edge_weight.npy"), weights)
    if "x" in parts.arrays:
        _save_features(path, parts.arrays["x"], count)
    if y is not None:
        save(os.path.join(path, "y.npy"), y)
    _save_split(path, parts.arrays, count, split)
    with open(os.path.join(path, "meta.json"), "w", encoding="utf-8") as file:
        json.dump({"name": os.path.basename(os.path.abspath(path)), "num_nodes": count}, file)
    _save_names(path, "vertices.csv", "name", parts.names)
    _save_names(path, "classes.csv", "class", classes)
    return GraphFolder(path, count, len(sources), parts.names, classes)


def read_names(folder: PathLike) -> List[str]:
    """The names of the vertices that `write` kept in vertices.csv, as texts: row i is vertex i."""
    with open(os.path.join(folder, "vertices.csv"), newline="", encoding="utf-8") as file:
        return [row[1] for row in csv.reader(file)][1:]


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


def _checked_weights(parts: Parts) -> Optional[Array]:
    if parts.weights is None:
        return None
    weights = to_numpy(parts.weights)
    if weights.ndim == 2 and weights.shape[1] > 1:
        warnings.warn(f"edge_attr has {weights.shape[1]} columns and is not written: an edge takes one weight",
                      RuntimeWarning, stacklevel=3)
        return None
    if weights.size != len(parts.sources):
        raise ValueError(f"there are {weights.size} weights for {len(parts.sources)} edges")
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


def _save_features(path: str, x: Any, count: int) -> None:
    if module_of(x, "scipy"):
        x = x.tocsr()
        for name, array in zip(_SPARSE, (x.indptr, x.indices, x.data, np.array(x.shape))):
            save(os.path.join(path, f"{name}.npy"), array)
        return
    array = _with_dimensions(to_numpy(x), count, "x")
    if array.dtype.kind not in "fiub":
        array = array.astype(np.float32)
    save(os.path.join(path, "x.npy"), array.reshape(count, -1))


def _save_split(path: str, arrays: Dict[str, Any], count: int, column: int) -> None:
    """All three masks or lists, because the program wants all of them; those that are missing are empty."""
    kind = "mask" if any(f"{part}_mask" in arrays for part in ("train", "val", "test")) else "idx"
    present = [part for part in ("train", "val", "test") if f"{part}_{kind}" in arrays]
    for part in ("train", "val", "test") if present else ():
        if part not in present:
            array = np.zeros(count if kind == "mask" else 0, dtype=bool if kind == "mask" else np.int64)
        else:
            array = to_numpy(arrays[f"{part}_{kind}"])
        if kind == "mask":
            array = _with_dimensions(array, count, f"{part}_mask")
            if array.ndim == 2:
                array = array[:, 0 if array.shape[1] == 1 else column]
            array = array.astype(bool)
        save(os.path.join(path, f"{part}_{kind}.npy"), array)


def _save_names(path: str, file_name: str, title: str, names: Optional[List[Any]]) -> None:
    if names is None:
        return
    with open(os.path.join(path, file_name), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", title])
        writer.writerows(enumerate(names))

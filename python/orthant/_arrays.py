# SPDX-License-Identifier: Apache-2.0
"""Arrays of any library as NumPy arrays without copies, and .npy files without copies."""
import os
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

Array = Any  # a numpy.ndarray; numpy.typing is newer than the oldest NumPy that works


def module_of(value: Any, *names: str) -> bool:
    """True if the type of `value`, or one of its bases, comes from one of these top-level modules."""
    return any(base.__module__.partition(".")[0] in names for base in type(value).__mro__)


def to_numpy(value: Any) -> Array:
    """A view of an array of NumPy, PyTorch, pandas or Arrow if there can be one, otherwise a copy."""
    if isinstance(value, np.ndarray):
        return value
    if module_of(value, "torch"):
        value = value.detach().cpu()
        return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if module_of(value, "pyarrow"):
        return value.to_numpy() if type(value).__name__ == "ChunkedArray" else value.to_numpy(zero_copy_only=False)
    if module_of(value, "scipy") and hasattr(value, "toarray"):
        return value.toarray()
    kind = getattr(getattr(value, "dtype", None), "numpy_dtype", None)
    if kind is not None and module_of(value, "pandas") and not value.isna().any():  # a nullable type, such as Int64
        return value.to_numpy(dtype=kind)
    return np.asarray(value)


def save(path: str, array: Array) -> None:
    """numpy.save in C order and little-endian, which is what the program reads."""
    save_parts(path, [array], array.shape)


def save_parts(path: str, parts: Sequence[Array], shape: Tuple[int, ...]) -> None:
    """Writes arrays one after the other as one array of `shape`, without joining them in memory."""
    kind = np.result_type(*parts).newbyteorder("<")
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        for part in parts:
            np.ascontiguousarray(part, dtype=kind).tofile(file)


def numbers_of_labels(values: Array) -> Tuple[Array, Optional[List[str]]]:
    """Labels that the program reads: numbers stay; other values get numbers in sorted order, and missing ones -1."""
    if values.dtype.kind == "b":
        return values.astype(np.uint8), None
    if values.dtype.kind in "iuf":
        return values, None
    missing = np.array([value is None or value != value or value == "" for value in values.tolist()], dtype=bool)
    result = np.full(len(values), -1, dtype=np.int64)
    classes, result[~missing] = np.unique(values[~missing].astype(str), return_inverse=True)
    return result, classes.tolist()


def encode(columns: Sequence[Any], keys: Optional[Any] = None) -> Tuple[List[Array], List[Any]]:
    """Numbers from 0 for the names in several columns of a table, in the order of their first appearance.

    With `keys` the numbers are positions in `keys`. Returns the numbers of each column, and the list of names.
    """
    if module_of(columns[0], "pandas"):
        import pandas
        if keys is not None:
            index = pandas.Index(keys)
            codes = [index.get_indexer(pandas.Index(column)) for column in columns]
            return _checked(codes, columns), list(index)
        joined, names = pandas.factorize(pandas.concat(list(columns), ignore_index=True))
        return _checked(np.split(joined, np.cumsum([len(column) for column in columns])[:-1]), columns), list(names)
    if module_of(columns[0], "pyarrow"):
        import pyarrow
        import pyarrow.compute
        if keys is not None:
            found = [pyarrow.compute.index_in(column, value_set=keys) for column in columns]
            return _checked([to_numpy(part.fill_null(-1)) for part in found], columns), keys.to_pylist()
        chunks = [chunk for column in columns for chunk in getattr(column, "chunks", [column])]
        joined_chunks = pyarrow.chunked_array(chunks).combine_chunks().dictionary_encode()
        joined = to_numpy(joined_chunks.indices.fill_null(-1))
        parts = np.split(joined, np.cumsum([len(column) for column in columns])[:-1])
        return _checked(parts, columns), joined_chunks.dictionary.to_pylist()
    arrays = [to_numpy(column) for column in columns]
    names = list(dict.fromkeys(to_numpy(keys).tolist() if keys is not None
                               else [name for array in arrays for name in array.tolist()]))
    numbers = {name: number for number, name in enumerate(names)}
    codes = [np.fromiter((numbers.get(name, -1) for name in array.tolist()), np.int64, len(array)) for array in arrays]
    return _checked(codes, columns), names


def _checked(codes: List[Array], columns: Sequence[Any]) -> List[Array]:
    for part, column in zip(codes, columns):
        if len(part) and part.min() < 0:
            row = int(np.argmin(part))
            name = column.iloc[row] if hasattr(column, "iloc") else column[row]
            raise ValueError(f"edge {row} names {name!r}, which is missing or is not in the table of vertices")
    return codes


def halve_if_symmetric(sources: Array, targets: Array, weights: Array, count: int) -> Optional[Tuple[Array, ...]]:
    """If each weighted edge has a reverse of equal weight: the edges with source <= target. Otherwise None.

    The program adds the reverse of each edge, and adds the weights of repeats. A list that has both directions
    would double the weights.
    """
    forward = sources.astype(np.int64) * count + targets
    backward = targets.astype(np.int64) * count + sources
    first, second = np.argsort(forward, kind="stable"), np.argsort(backward, kind="stable")
    if not (np.array_equal(forward[first], backward[second]) and np.array_equal(weights[first], weights[second])):
        return None
    upper = sources <= targets
    return sources[upper], targets[upper], weights[upper]


def remove_files(folder: str, names: Sequence[str]) -> None:
    """Removes those of these files that are in the folder."""
    for name in names:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            os.remove(path)

# SPDX-License-Identifier: Apache-2.0
"""Mutations of graph stores: of any bytes, of values, extents, tables and facts; and checksums made right again."""

import json
import math
import zlib

import graph_seeds
import hdf5
import plain_store

HOSTILE = [-1, -2, 0, 1, 2, 13, 14, 15, 255, 2**15, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, -2**31,
           -2**63]
HOSTILE_REALS = [math.nan, math.inf, -math.inf, 0.0, -1.0, 3e38, 1e-42]
LIMITS = {"b": (-2**7, 2**7), "B": (0, 2**8), "i": (-2**31, 2**31), "I": (0, 2**32), "q": (-2**63, 2**63), "Q": (0, 2**64)}


def fitting(draw, kind):
    if kind in "fd":
        return draw.choice(HOSTILE_REALS)
    low, high = LIMITS[kind]
    return draw.choice([value for value in HOSTILE if low <= value < high])


def change_values(draw, file):
    name = draw.choice(file.names())
    array = file.read(name)
    values = list(array.values)
    if not values:
        return f"nothing in {name}"
    at, other = draw.randrange(len(values)), draw.randrange(len(values))
    what = draw.randrange(5)
    if what == 0:
        values[at], values[other] = values[other], values[at]
    elif what == 1:
        values[at] = values[other]
    elif what == 2 and array.kind not in "fd":
        low, high = LIMITS[array.kind]
        values[at] = min(max(values[at] + draw.choice([-1, 1]), low), high - 1)
    elif what == 3 and array.kind == "I":
        values[at] ^= 1 << draw.randrange(32)
    else:
        values[at] = fitting(draw, array.kind)
    file.write(name, values)
    return f"{name}[{at}]: {array.values[at]} becomes {values[at]}" + (f", and [{other}]" if what == 0 else "")


def change_extents(draw, file):
    """Other extents or another type; the checksums of the array get extents that fit."""
    names = [name for name in file.names() if draw.random() < 0.3 or not name.startswith("/checksums")]
    name = draw.choice(names)
    array = file.read(name)
    count = len(array.values)
    kind, shape = array.kind, draw.choice([(), (0,), (max(0, count - 1),), (count + 1,), (count, 1), (1, count), (count,),
                                           array.shape[::-1], (0, count), (count, 0), array.shape + (1,), array.shape])
    if shape == array.shape:
        kind = draw.choice([other for other in "bBiIqQfd" if other != kind])
    length = math.prod(shape)
    values = (array.values + [0] * length)[:length]
    if kind != array.kind:
        values = [float(value) if kind in "fd" else int(value) if abs(value) < 100 else 0 for value in values]
        if kind in LIMITS:
            values = [min(max(value, LIMITS[kind][0]), LIMITS[kind][1] - 1) for value in values]
    file.replace(name, kind, shape, values)
    return f"{name}: {array.kind}{list(array.shape)} becomes {kind}{list(shape)}"


def remove_array(draw, file):
    name = draw.choice(file.names())
    file.remove(name)
    return f"no {name}"


def change_table(draw, file):
    name = draw.choice([name for name in file.names() if "tile_" in name and not name.startswith("/checksums")])
    array = file.read(name)
    values = list(array.values)
    at = draw.randrange(len(values))
    values[at] = fitting(draw, array.kind)
    file.write(name, values)
    return f"{name}[{at}]: {array.values[at]} becomes {values[at]}"


def change_facts(draw, file):
    facts = json.loads(file.text("facts"))
    key = draw.choice(list(facts))
    before = facts[key]
    if key == "split_sizes":
        facts[key] = draw.choice([[], [1], [before[0] + 1] + before[1:], [-1, 2, 3], [2**62] * 3, "6,3,4", [1, 2, 3, 4]])
    elif isinstance(before, bool):
        facts[key] = draw.choice([not before, not before, 1, "true", None])
    elif isinstance(before, int):
        facts[key] = draw.choice(HOSTILE + [before + 1, before - 1, before + 1, before * 2, float(before), before + 0.5, str(before)])
    else:
        facts[key] = draw.choice(["", "none", "double", "single", "cluster", "sym", "row", "dense", "sparse", "multi", "x" * 70000,
                                  7, None, "a\nb", "\0"])
    if draw.random() < 0.1:
        del facts[key]
    file.set_attribute("facts", json.dumps(facts))
    return f"facts: {key} was {before}, is {str(facts.get(key, 'absent'))[:40]!r}"


def change_attribute(draw, file):
    name = draw.choice(["format", "version", "facts_crc32", "facts"])
    value = draw.choice(["", "orthant graph store", "orthant weights", "{}", "[]", "{\"num_vertices\":", 0, 2, -1, 2**63 - 1])
    file.set_attribute(name, value)
    return f"attribute {name} is {value!r}"


STRUCTURED = [change_values, change_values, change_values, change_values, change_extents, change_extents, change_table, change_facts,
              change_facts, remove_array, change_attribute]
BYTES = [graph_seeds.flip, graph_seeds.flip, graph_seeds.truncate, graph_seeds.insert, graph_seeds.splice]


def make_checksums_right(file):
    """Of tiles, arrays and facts, as far as their tables still say what belongs together."""
    names = file.names()
    arrays = {name: file.read(name) for name in names}
    for name in names:
        if name.endswith("/tile_checksums") and not name.startswith("/checksums"):
            group = name[:-len("/tile_checksums")]
            try:
                sums = [plain_store.tile_checksum(arrays, group, max(0, begin), max(0, end))
                        for _, _, begin, end in plain_store.tiles_of(arrays, group)]
                file.write(name, sums)
                arrays[name] = file.read(name)
            except (KeyError, IndexError, hdf5.Hdf5Error, ValueError, ArithmeticError, hdf5.struct.error):
                pass  # nothing that could be right
    for name in names:
        twin = "/checksums" + name
        if name.startswith("/checksums") or twin not in names:
            continue
        sums = plain_store.checksums_of(arrays[name])
        width = -(-(arrays[name].shape[-1] if arrays[name].shape else 1) // plain_store.CHUNK)
        if len(sums) == len(arrays[twin].values):
            file.write(twin, sums)
        else:
            file.replace(twin, "I", arrays[name].shape[:-1] + (width,), sums)
    try:
        file.set_attribute("facts_crc32", zlib.crc32(file.text("facts").encode()))
    except (hdf5.Hdf5Error, KeyError, ValueError):
        pass


def mutate(draw, library, path):
    """Changes the store at `path`, on every second draw so that all checksums are right; says what it did."""
    is_right = draw.random() < 0.5
    if not is_right and draw.random() < 0.6:
        change = draw.choice(BYTES)
        with open(path, "rb") as file:
            data = file.read()
        with open(path, "wb") as file:
            file.write(change(draw, data))
        return f"{change.__name__} of bytes"
    with hdf5.File(library, path, hdf5.WRITE) as file:
        what = draw.choice(STRUCTURED)(draw, file)
        if is_right:
            make_checksums_right(file)
    return what + (", checksums made right" if is_right else "")

# SPDX-License-Identifier: Apache-2.0
"""Lines, numbers, arrays and archives as the formats of graphs write them, with nothing but Python.

Whatever is not written by the rules of its format is a ValueError.
"""

import ast
import gzip
import io
import math
import re
import struct
import zipfile
import zlib

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.I)
NATURAL = re.compile(r"\d+")
TYPES = {"<i8": "q", "<u8": "Q", "<i4": "i", "<u4": "I", "<i2": "h", "<u2": "H", "|i1": "b", "|u1": "B", "|b1": "?", "<f8": "d",
         "<f4": "f", "<f2": "e"}


def require(condition, what):
    if not condition:
        raise ValueError(what)


def single(value):
    """As a 32-bit float; not finite ones are refused by whoever needs finite ones."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def finite(value):
    value = single(value)
    require(math.isfinite(value), "not a finite number")
    return value


def read_bytes(path):
    with open(path, "rb") as file:
        data = file.read()
    if not path.endswith(".gz"):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from None


def lines_of(path, comments=""):
    """Fields of the lines that are not empty: blanks and tabs, or one comma, lie between them."""
    lines = []
    for line in read_bytes(path).decode("latin-1").split("\n"):
        line = line.strip(" \t\r")
        if line and line[0] not in (comments or "\0"):
            lines.append(re.split(r"[ \t\r]*,[ \t\r]*|[ \t\r]+", line))
    return lines


def without_names(rows, least=1):
    """Without a first line that names at least so many columns."""
    is_name = [re.match(r'[A-Za-z"_]', word) is not None and NUMBER.fullmatch(word) is None for word in rows[0]] if rows else []
    return rows[1:] if len(is_name) >= least and all(is_name) else rows


def natural(word):
    require(NATURAL.fullmatch(word) is not None, f"{word!r} is not an id or a count")
    return int(word)


def number(word):
    require(NUMBER.fullmatch(word) is not None, f"{word!r} is not a number")
    return float(word)


def only(rows, width):
    require(all(len(row) == width for row in rows), f"not {width} columns")
    return rows


def table(path):
    rows = without_names(lines_of(path))
    return [[number(word) for word in row] for row in (only(rows, len(rows[0])) if rows else rows)]


def count_of(path):
    rows = lines_of(path)
    require(len(rows) == 1 and len(rows[0]) == 1, "not one number")
    return natural(rows[0][0])


def array_of(data):
    """(type, shape, flat values) of a .npy file."""
    require(data[:6] == b"\x93NUMPY" and len(data) >= 12, "no .npy")
    version = data[6]
    require(version in (1, 2, 3), "version")
    begin = 10 if version == 1 else 12
    end = begin + int.from_bytes(data[8:begin], "little")
    require(end <= len(data), "header beyond the end")
    try:
        header = ast.literal_eval(data[begin:end].decode("utf-8" if version == 3 else "latin-1").strip(" \0"))
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError) as error:
        raise ValueError(f"header: {error}") from None
    require(isinstance(header, dict) and set(header) == {"descr", "fortran_order", "shape"}, "keys of the header")
    kind, shape, is_fortran = header["descr"], header["shape"], header["fortran_order"]
    require(isinstance(kind, str) and kind in TYPES, "type")
    require(isinstance(is_fortran, bool) and isinstance(shape, tuple), "header")
    require(all(type(extent) is int and extent >= 0 for extent in shape), "shape")
    require(not (is_fortran and len(shape) > 1), "Fortran order")
    count = math.prod(shape)
    require(count * struct.calcsize(TYPES[kind]) == len(data) - end, "size")
    return kind, shape, list(struct.unpack(f"<{count}{TYPES[kind]}", data[end:]))


def integers(array):
    require(array[0][1] in "iub", "not integers")
    return [int(value) for value in array[2]]


class Archive:
    def __init__(self, path):
        try:
            with open(path, "rb") as file:
                self.zip = zipfile.ZipFile(io.BytesIO(file.read()))
            require(len(set(self.zip.namelist())) == len(self.zip.namelist()), "two members of one name")
        except (zipfile.BadZipFile, NotImplementedError, struct.error, UnicodeDecodeError) as error:
            raise ValueError(str(error)) from None

    def __contains__(self, member):
        return member in self.zip.namelist()

    def array(self, member):
        require(member in self, f"no {member}")
        try:
            return array_of(self.zip.read(member))
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error, struct.error) as error:
            raise ValueError(str(error)) from None

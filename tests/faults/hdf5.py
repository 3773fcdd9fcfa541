# SPDX-License-Identifier: Apache-2.0
"""HDF5 files through the C library itself, as far as attacks on stores need it: read, change and replace arrays."""

import collections
import ctypes
import math
import re
import struct
import subprocess

Array = collections.namedtuple("Array", "kind shape values")  # kind: a letter of the module struct; values are flat

NATIVE = {"b": "INT8", "B": "UINT8", "h": "INT16", "H": "UINT16", "i": "INT32", "I": "UINT32", "q": "INT64", "Q": "UINT64",
          "f": "FLOAT", "d": "DOUBLE"}
WRITE, READ = 1, 0
DEFAULT = ctypes.c_int64(0)


def library_of(program):
    """The path of the HDF5 library that the program is linked with, or None."""
    found = re.search(r"=> (\S*libhdf5\S*\.so\S*)", subprocess.run(["ldd", program], capture_output=True, text=True).stdout)
    return found.group(1) if found else None


class Hdf5Error(ValueError):
    pass


class Library:
    def __init__(self, path):
        self.calls = ctypes.PyDLL(path)  # one thread at a time
        self.call("H5open")
        self.call("H5Eset_auto2", ctypes.c_int64(0), None, None)

    def call(self, name, *arguments, result=ctypes.c_int):
        function = getattr(self.calls, name)
        function.restype = result
        value = function(*arguments)
        if value is not None and value < 0:
            raise Hdf5Error(f"{name} fails")
        return value

    def open(self, name, *arguments):
        return ctypes.c_int64(self.call(name, *arguments, result=ctypes.c_int64))

    def native(self, kind):
        return ctypes.c_int64.in_dll(self.calls, f"H5T_NATIVE_{NATIVE[kind]}_g")


class File:
    """Open for as long as the `with` lasts."""

    def __init__(self, library, path, mode=READ):
        self.library = library
        self.id = library.open("H5Fopen", path.encode(), ctypes.c_uint(mode), DEFAULT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.call("H5Fclose", self.id)

    def names(self, group="/"):
        """Full names of all arrays below `group`, sorted."""
        call, found = self.library.call, []
        identity = self.library.open("H5Gopen2", self.id, group.encode(), DEFAULT)
        count = ctypes.c_uint64()
        call("H5Gget_num_objs", identity, ctypes.byref(count))
        for i in range(count.value):
            name = ctypes.create_string_buffer(256)
            call("H5Gget_objname_by_idx", identity, ctypes.c_uint64(i), name, ctypes.c_size_t(256), result=ctypes.c_ssize_t)
            kind = call("H5Gget_objtype_by_idx", identity, ctypes.c_uint64(i))
            path = group.rstrip("/") + "/" + name.value.decode()
            found += self.names(path) if kind == 0 else [path]
        call("H5Gclose", identity)
        return sorted(found)

    def read(self, name):
        call, opened = self.library.call, self.library.open
        array = opened("H5Dopen2", self.id, name.encode(), DEFAULT)
        kind, space = opened("H5Dget_type", array), opened("H5Dget_space", array)
        letter = self.letter_of(kind)
        dims = (ctypes.c_uint64 * 32)()
        shape = tuple(dims[:call("H5Sget_simple_extent_ndims", space)]) if call("H5Sget_simple_extent_dims", space, dims,
                                                                              None) else ()
        count = math.prod(shape)
        if count > 1 << 24:
            raise Hdf5Error(f"{name} is too large")
        data = ctypes.create_string_buffer(max(1, count * struct.calcsize(letter)))
        call("H5Dread", array, self.library.native(letter), DEFAULT, DEFAULT, DEFAULT, data)
        for identity in (kind, space, array):
            call("H5Idec_ref", identity)
        return Array(letter, tuple(dims[:len(shape)]), list(struct.unpack(f"<{count}{letter}",
                                                                         data.raw[:count * struct.calcsize(letter)])))

    def letter_of(self, kind):
        size = self.library.call("H5Tget_size", kind, result=ctypes.c_ssize_t)
        if self.library.call("H5Tget_class", kind) == 1:
            return {4: "f", 8: "d"}[size]
        letter = {1: "b", 2: "h", 4: "i", 8: "q"}[size]
        return letter if self.library.call("H5Tget_sign", kind) else letter.upper()

    def write(self, name, values):
        """The values of an array, whose type and extents stay."""
        array = self.library.open("H5Dopen2", self.id, name.encode(), DEFAULT)
        kind = self.read(name).kind
        data = struct.pack(f"<{len(values)}{kind}", *values)
        self.library.call("H5Dwrite", array, self.library.native(kind), DEFAULT, DEFAULT, DEFAULT, data)
        self.library.call("H5Dclose", array)

    def remove(self, name):
        self.library.call("H5Ldelete", self.id, name.encode(), DEFAULT)

    def replace(self, name, kind, shape, values):
        """Another array of that name. () makes a scalar one."""
        self.remove(name)
        extents = (ctypes.c_uint64 * max(1, len(shape)))(*shape)
        space = (self.library.open("H5Screate_simple", ctypes.c_int(len(shape)), extents, None) if shape else
                 self.library.open("H5Screate", ctypes.c_int(0)))
        native = self.library.native(kind)
        array = self.library.open("H5Dcreate2", self.id, name.encode(), native, space, DEFAULT, DEFAULT, DEFAULT)
        data = struct.pack(f"<{len(values)}{kind}", *values)
        self.library.call("H5Dwrite", array, native, DEFAULT, DEFAULT, DEFAULT, data or b"\0")
        self.library.call("H5Dclose", array)

    # Attributes of the root: texts of fixed length and whole numbers.
    def text(self, name):
        attribute = self.library.open("H5Aopen", self.id, name.encode(), DEFAULT)
        kind = self.library.open("H5Aget_type", attribute)
        size = self.library.call("H5Tget_size", kind, result=ctypes.c_ssize_t)
        data = ctypes.create_string_buffer(size + 1)
        self.library.call("H5Aread", attribute, kind, data)
        self.library.call("H5Aclose", attribute)
        return data.raw[:size].split(b"\0")[0].decode("utf-8")

    def integer(self, name):
        attribute = self.library.open("H5Aopen", self.id, name.encode(), DEFAULT)
        value = ctypes.c_int64()
        self.library.call("H5Aread", attribute, self.library.native("q"), ctypes.byref(value))
        self.library.call("H5Aclose", attribute)
        return value.value

    def set_attribute(self, name, value):
        self.library.call("H5Adelete", self.id, name.encode())
        space = self.library.open("H5Screate", ctypes.c_int(0))
        if isinstance(value, int):
            kind, data = self.library.native("q"), ctypes.byref(ctypes.c_int64(value))
        else:
            kind = self.library.open("H5Tcopy", ctypes.c_int64.in_dll(self.library.calls, "H5T_C_S1_g"))
            data = value.encode() or b"\0"
            self.library.call("H5Tset_size", kind, ctypes.c_size_t(len(data)))
        attribute = self.library.open("H5Acreate2", self.id, name.encode(), kind, space, DEFAULT, DEFAULT)
        self.library.call("H5Awrite", attribute, kind, data)
        self.library.call("H5Aclose", attribute)

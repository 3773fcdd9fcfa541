# SPDX-License-Identifier: Apache-2.0
"""Reads files of the safetensors format: 8 bytes of header length, a JSON header, then the numbers."""
import json
import os
from typing import Any, Dict, Union

import numpy as np

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
          "U8": "|u1", "BOOL": "|b1"}


def load_safetensors(path: Union[str, "os.PathLike[str]"]) -> Dict[str, "np.ndarray[Any, Any]"]:
    """The arrays of a safetensors file by name. bfloat16 becomes float32."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    arrays = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        part = memoryview(data)[begin:end]
        if entry["dtype"] == "BF16":
            array = (np.frombuffer(part, "<u2").astype("<u4") << 16).view("<f4")
        else:
            array = np.frombuffer(part, _TYPES[entry["dtype"]])
        arrays[name] = array.reshape(entry["shape"])
    return arrays

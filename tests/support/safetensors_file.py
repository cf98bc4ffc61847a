"""safetensors files of tensors of any type, as bytes: (dtype, shape, data) by name."""

import json
import pathlib
import struct

import numpy as np

KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "U8": "<u1"}


def pack(array):
    """A NumPy array as a tensor of the type that it has."""
    dtype = next(name for name, kind in KINDS.items() if np.dtype(kind) == array.dtype)
    return dtype, array.shape, array.tobytes()


def pack_bf16(array):
    """The upper half of every f32, for values that need no rounding."""
    return "BF16", array.shape, (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def unpack(tensor):
    dtype, shape, data = tensor
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    return np.frombuffer(data, KINDS[dtype]).reshape(shape)


def write(path, tensors, metadata=None):
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path):
    """Tensors, in the order of the header, and metadata."""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    data = raw[8 + length :]
    tensors = {
        name: (e["dtype"], tuple(e["shape"]), data[slice(*e["data_offsets"])])
        for name, e in header.items()
    }
    return tensors, metadata

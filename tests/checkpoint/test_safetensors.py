"""safetensors files against an independent reader and writer of a few lines."""

import ctypes
import json
import os
import pathlib
import struct

import numpy
import pytest

from package import LIBRARY, SEED

NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
         "I8": "<i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "?",
         "C64": "<c8"}


def load(path):
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, e in header.items():
        begin, end = (8 + length + offset for offset in e["data_offsets"])
        tensors[name] = numpy.frombuffer(raw[begin:end], NUMPY[e["dtype"]]).reshape(e["shape"])
    return tensors, metadata


def save(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        dtype = next(k for k, v in NUMPY.items() if numpy.dtype(v) == t.dtype)
        header[name] = {"dtype": dtype, "shape": t.shape,
                        "data_offsets": [len(data), len(data) + t.nbytes]}
        data += t.tobytes()
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


class Entry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("bits", ctypes.c_uint),
                ("ndim", ctypes.c_size_t), ("shape", ctypes.POINTER(ctypes.c_uint64)),
                ("bytes", ctypes.c_uint64), ("offset", ctypes.c_uint64)]


@pytest.fixture(scope="module")
def library():
    lib = ctypes.CDLL(str(LIBRARY))
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    lib.muonium_last_error.restype = text
    lib.muonium_reader_count.argtypes, lib.muonium_reader_count.restype = [pointer], size
    lib.muonium_reader_entry.argtypes = [pointer, size]
    lib.muonium_reader_entry.restype = ctypes.POINTER(Entry)
    lib.muonium_reader_metadata.argtypes = [pointer, text]
    lib.muonium_reader_metadata.restype = text
    lib.muonium_reader_read.argtypes = [pointer, ctypes.POINTER(Entry), ctypes.c_uint64, pointer,
                                        size]
    lib.muonium_reader_close.argtypes = [pointer]
    lib.muonium_writer_add_metadata.argtypes = [pointer, text, text]
    lib.muonium_writer_add.argtypes = [pointer, text, text, size, ctypes.POINTER(ctypes.c_uint64)]
    lib.muonium_writer_begin.argtypes = [pointer, text]
    lib.muonium_writer_data.argtypes = [pointer, pointer, size]
    lib.muonium_writer_finish.argtypes = [pointer]
    lib.muonium_writer_destroy.argtypes = [pointer]
    return lib


def sample():
    print(f"MUONIUM_TEST_SEED={SEED}")
    random = numpy.random.default_rng(SEED)
    tensors = {"": numpy.zeros((0, 3), "<f4"), "caf\u00e9 \"\\\n\U0001f600": numpy.array(2.5, "<f8")}
    for dtype in NUMPY.values():
        shape = tuple(random.integers(0, 5, random.integers(0, 5)))
        tensors["t" + dtype] = random.integers(0, 2, shape).astype(dtype)
    return tensors, {"format": "np", "key \u20ac": "value\t\x7f"}


def check(lib, status):
    assert status == 0, lib.muonium_last_error().decode()


def same(a, b):
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape
        assert a[name].tobytes() == b[name].tobytes()


def test_reads_what_python_writes(library, tmp_path):
    tensors, metadata = sample()
    path = tmp_path / "python.safetensors"
    save(path, tensors, metadata)
    reader = ctypes.c_void_p()
    check(library, library.muonium_reader_open(str(path).encode(), ctypes.byref(reader)))
    found = {}
    for i in range(library.muonium_reader_count(reader)):
        entry = library.muonium_reader_entry(reader, i)
        e = entry.contents
        t = numpy.empty(e.shape[: e.ndim], NUMPY[e.dtype.decode()])
        check(library, library.muonium_reader_read(reader, entry, 0, t.ctypes.data, t.nbytes))
        found[e.name.decode()] = t
    for key, value in metadata.items():
        assert library.muonium_reader_metadata(reader, key.encode()).decode() == value
    library.muonium_reader_close(reader)
    # Empty tensors share an offset with the tensor after them: their order may change.
    same(dict(sorted(found.items())), dict(sorted(tensors.items())))


def test_python_reads_what_it_writes(library, tmp_path):
    tensors, metadata = sample()
    path = tmp_path / "muonium.safetensors"
    writer = ctypes.c_void_p()
    check(library, library.muonium_writer_create(ctypes.byref(writer)))
    for key, value in metadata.items():
        check(library, library.muonium_writer_add_metadata(writer, key.encode(), value.encode()))
    for name, t in tensors.items():
        dtype = next(k for k, v in NUMPY.items() if numpy.dtype(v) == t.dtype)
        shape = (ctypes.c_uint64 * t.ndim)(*t.shape)
        check(library, library.muonium_writer_add(writer, name.encode(), dtype.encode(), t.ndim, shape))
    check(library, library.muonium_writer_begin(writer, str(path).encode()))
    for t in tensors.values():
        check(library, library.muonium_writer_data(writer, t.ctypes.data, t.nbytes))
    check(library, library.muonium_writer_finish(writer))
    library.muonium_writer_destroy(writer)
    found, found_metadata = load(path)
    same(found, tensors)
    assert found_metadata == metadata
    assert os.listdir(tmp_path) == [path.name]

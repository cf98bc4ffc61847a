"""Arrays of any framework as an address, a type, a shape and strides.

NumPy's array interface is read where there is one, DLPack elsewhere. Neither needs the
framework to be imported here. Nothing is copied but NumPy's scalars, which have no memory
that lasts. An address is valid for as long as the Array that it came with.
"""

import ctypes
import sys
from typing import NamedTuple

from ._library import DTYPES

F32, F64, BF16, F16 = range(4)
INT8 = 7  # of state only
SIZES = (4, 8, 2, 2)  # bytes of each type


class Array(NamedTuple):
    address: int
    dtype: int      # a muonium_dtype
    shape: tuple
    strides: tuple  # in elements
    owner: object   # what keeps the memory alive


def dense_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def array_of(x, what, writable=False):
    """Describe x, naming it `what` in errors; `writable` refuses memory that is not."""
    if hasattr(x, "__array_interface__"):
        array = _from_interface(x, what, writable)
    elif hasattr(x, "__dlpack__"):
        array = _from_dlpack(x, what, writable)
    else:
        raise TypeError(f"{what} is of type {type(x).__name__}: use a NumPy array, or an array of "
                        "another framework that speaks DLPack (__dlpack__)")
    if array.address == 0 and 0 not in array.shape:
        raise freed(what)
    if array.address % SIZES[array.dtype] and 0 not in array.shape:
        raise _not_aligned(what)
    return array


def _read_only(what):
    return ValueError(f"{what} is read-only memory, and parameters and outputs are written in "
                      "place: use a copy, as numpy.array(x)")


def _not_aligned(what):
    return ValueError(f"{what} is not aligned to its elements: copy it")


# ---- memory that must not be used ----

_IMMUTABLE = {"jax": "JAX", "jaxlib": "JAX", "tensorflow": "TensorFlow"}


def refuse_immutable(x, what):
    """Refuse arrays that their framework never changes, so that it may share and cache their
    memory, even if they let themselves be written."""
    root = type(x).__module__.partition(".")[0]
    framework = _IMMUTABLE.get(root)
    if framework:
        raise TypeError(f"{what} is an array of {framework}, which are immutable: their memory is "
                        "shared and cached. Keep it as a NumPy array, numpy.array(x), and make "
                        f"arrays of {framework} from that after each step")
    # Tensors of torch can be written; and one that NumPy has seen cannot be resized any more.
    if hasattr(x, "__array__") and not hasattr(x, "__array_interface__") and root != "torch":
        import numpy

        try:
            view = numpy.asarray(x)
        except Exception:  # of a type that NumPy does not know, or not to be seen by it
            return
        if not view.flags.writeable:
            raise _read_only(what)


def freed(what):
    return ValueError(f"{what} has no memory: its storage was freed or resized")


def refuse_outside_storage(x, what):
    """A tensor of torch must lie within its storage, which can be resized behind it."""
    storage = getattr(x, "untyped_storage", None) or getattr(x, "_storage", None)  # before 2.0
    if storage is None or 0 in x.shape:
        return
    end = x.storage_offset() + 1
    for size, stride in zip(x.shape, x.stride()):
        end += (size - 1) * stride
    if end * x.element_size() > storage().nbytes():
        raise ValueError(f"{what} reaches beyond its storage of {storage().nbytes()} bytes: the "
                         "storage was freed or resized")


# ---- the array interface ----

_NATIVE = "<" if sys.byteorder == "little" else ">"
_TYPES = {_NATIVE + "f4": F32, _NATIVE + "f8": F64, _NATIVE + "f2": F16}


def _from_interface(x, what, writable):
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.generic):
        if writable:
            raise TypeError(f"{what} is a NumPy scalar ({type(x).__name__}), which is immutable: "
                            "use an array, numpy.array(x)")
        x = numpy.asarray(x)  # the interface of a scalar tells of a temporary
    interface = x.__array_interface__
    dtype = getattr(x, "dtype", interface["typestr"])
    kind = _TYPES.get(interface["typestr"])
    if kind is None and getattr(dtype, "name", "") == "bfloat16":
        kind = BF16
    if kind is None:
        raise TypeError(f"{what} has elements of type {dtype}: use float32, float16, bfloat16 "
                        "or, where there is no parameter, float64, in the byte order of this "
                        "machine")
    if not isinstance(interface.get("data"), tuple):
        raise TypeError(f"{what} tells no address in its __array_interface__: use numpy.asarray(x)")
    address, read_only = interface["data"]
    if read_only and writable:
        raise _read_only(what)
    shape, owner = tuple(interface["shape"]), (x, interface)
    strides = interface.get("strides")
    if strides is None:
        return Array(address, kind, shape, dense_strides(shape), owner)
    if any(stride % SIZES[kind] for stride in strides):
        raise _not_aligned(what)
    return Array(address, kind, shape, tuple(s // SIZES[kind] for s in strides), owner)


# ---- DLPack, see dlpack.h ----


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


# Called with the GIL held: a deleter may release Python objects.
_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", _Deleter),
                ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


_READ_ONLY, _COPIED = 1, 2
_HOST_DEVICES = (1, 3, 11)  # plain memory, and memory pinned by CUDA and by ROCm
_DL_TYPES = {(2, 32): F32, (2, 64): F64, (2, 16): F16, (4, 16): BF16}

# Names of capsules before and after, with the structure inside. A capsule keeps but the
# address of its name, so these live as long as the module.
_CAPSULES = [(b"dltensor_versioned", b"used_dltensor_versioned", _ManagedVersioned),
             (b"dltensor", b"used_dltensor", _Managed)]


def _capsule_function(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, ctypes.py_object, *arguments)((name, ctypes.pythonapi))


_is_valid = _capsule_function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_char_p)
_get_pointer = _capsule_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_char_p)
_set_name = _capsule_function("PyCapsule_SetName", ctypes.c_int, ctypes.c_char_p)


class _Loan:
    """A tensor taken out of its capsule; given back when this is forgotten."""

    def __init__(self, capsule, what):
        self.managed = None
        for name, used, structure in _CAPSULES:
            if _is_valid(capsule, name):
                self.address = _get_pointer(capsule, name)
                self.managed = structure.from_address(self.address)
                _set_name(capsule, used)
                return
        raise TypeError(f"__dlpack__ of {what} returned no DLPack capsule, or one that was used")

    def __del__(self):
        if self.managed is not None and self.managed.deleter:
            self.managed.deleter(self.address)


def _export(x, what):
    """A capsule in the newest form that the owner of x speaks, without a copy."""
    try:
        for arguments in ({"max_version": (1, 0), "copy": False}, {"max_version": (1, 0)}, {}):
            try:
                return x.__dlpack__(**arguments)
            except TypeError:
                if not arguments:
                    raise
    except Exception as error:
        raise TypeError(f"{what} cannot be passed by DLPack: {error}") from error


def _from_dlpack(x, what, writable):
    device = x.__dlpack_device__()[0]
    if device not in _HOST_DEVICES:
        raise ValueError(f"{what} is on a device (DLPack type {int(device)}): Muonium works in host "
                         "memory; copy it to the CPU, or to pinned memory")
    refuse_outside_storage(x, what)
    loan = _Loan(_export(x, what), what)
    flags = 0
    if isinstance(loan.managed, _ManagedVersioned):
        if loan.managed.major != 1:
            raise TypeError(f"{what} comes as DLPack {loan.managed.major}.{loan.managed.minor}: "
                            "this package speaks 1.x")
        flags = loan.managed.flags
    tensor = loan.managed.tensor
    kind = _DL_TYPES.get((tensor.code, tensor.bits))
    if kind is None or tensor.lanes != 1:
        raise TypeError(f"{what} has elements of DLPack type ({tensor.code}, {tensor.bits} bits, "
                        f"{tensor.lanes} lanes): use {', '.join(DTYPES[:4])}")
    if writable and flags & _READ_ONLY:
        raise _read_only(what)
    if writable and flags & _COPIED:
        raise ValueError(f"{what} was copied on the way: writing to it would be lost")
    shape = tuple(tensor.shape[:tensor.ndim])
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else dense_strides(shape)
    address = tensor.data + tensor.byte_offset if tensor.data else 0
    return Array(address, kind, shape, strides, (x, loan))

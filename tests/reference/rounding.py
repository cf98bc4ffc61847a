"""Storage types: values are kept as float64 arrays and rounded when stored.

A half type is reached through f32, as in the library, where sums are held in
f32 before they are stored: f64 -> f32 -> half, each to nearest, ties to even.
"""
import numpy as np

DTYPES = ("f64", "f32", "bf16", "f16")
BLOCK = 2048  # elements of int8 state with one scale


def bf16_bits(values):
    """The uint16 bit patterns of `values` (any float type, read as f32) in bf16."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet_nan = (bits >> 16) | 0x40
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, quiet_nan, rounded).astype(np.uint16)


def bf16_values(bits):
    """The float64 values of bf16 bit patterns."""
    return (np.asarray(bits, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)


def blocks(values):
    """The blocks of a tensor: those of all its elements in row-major order."""
    flat = np.ravel(values)
    return [flat[i:i + BLOCK] for i in range(0, flat.size, BLOCK)]


def quantized(values):
    """Integers, flat, and the scale of each block: a 127th of its largest magnitude. In f32, as a
    definition: the scale, its inverse and the products are rounded to f32."""
    integers, scales = [], []
    for block in blocks(np.asarray(values, dtype=np.float32)):
        scale = np.float32(np.max(np.abs(block), initial=0) / np.float32(127))
        inverse = np.float32(1) / scale if scale > 0 else np.float32(0)
        integers.append(np.rint(block * inverse))
        scales.append(scale)
    return np.concatenate(integers or [np.zeros(0)]).astype(np.int8), np.array(scales, np.float32)


def dequantized(integers, scales):
    """Float64 values of integers and the scales of their blocks, flat."""
    each = [np.float32(s) * q.astype(np.float32) for q, s in zip(blocks(integers), scales)]
    return np.concatenate(each or [np.zeros(0)]).astype(np.float64)


def decayed_integers(values, scales, factor):
    """Dequantized values whose integers are multiplied by a factor and rounded."""
    parts = []
    for block, s in zip(blocks(values), scales):
        q = np.rint(block / s) if s > 0 else np.zeros(block.shape)
        moved = np.rint(q.astype(np.float32) * np.float32(factor))
        parts.append((np.float32(s) * moved.astype(np.float32)).astype(np.float64))
    return np.concatenate(parts).reshape(np.shape(values))


def round_to(dtype, values):
    """`values` as float64, each the nearest that `dtype` can hold (overflow gives infinity)."""
    values = np.asarray(values, dtype=np.float64)
    if dtype == "f64":
        return values
    if dtype == "int8":
        return dequantized(*quantized(values)).reshape(values.shape)
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
        if dtype == "f32":
            return single.astype(np.float64)
        if dtype == "bf16":
            return bf16_values(bf16_bits(single)).reshape(values.shape)
        if dtype == "f16":
            return single.astype(np.float16).astype(np.float64)
    raise ValueError(f"dtype is {dtype!r}: use one of {', '.join(DTYPES)}")

"""Storage types: values are kept as float64 arrays and rounded when stored.

A half type is reached through f32, as in the library, where sums are held in
f32 before they are stored: f64 -> f32 -> half, each to nearest, ties to even.
"""
import numpy as np

DTYPES = ("f64", "f32", "bf16", "f16")


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


def round_to(dtype, values):
    """`values` as float64, each the nearest that `dtype` can hold (overflow gives infinity)."""
    values = np.asarray(values, dtype=np.float64)
    if dtype == "f64":
        return values
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
        if dtype == "f32":
            return single.astype(np.float64)
        if dtype == "bf16":
            return bf16_values(bf16_bits(single)).reshape(values.shape)
        if dtype == "f16":
            return single.astype(np.float16).astype(np.float64)
    raise ValueError(f"dtype is {dtype!r}: use one of {', '.join(DTYPES)}")

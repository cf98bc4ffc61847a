"""Orthogonalisation of one matrix: orient, normalise, iterate, turn back.

Sums are exact to double precision whatever the `precision`; in the modes f32,
bf16 and f16 everything that an implementation stores is rounded to that type:
the matrix as read, the normalised matrix, A = X X^T, A A, b A + c A A, new X.
The divisor is not rounded.
"""
import numpy as np

from .rounding import round_to

NORMALIZATIONS = ("frobenius", "schatten", "aol", "spectral", "none")
EPS_MODES = ("none", "clamp", "add", "optax")


def divisor(x, normalization, eps_mode, eps, safety_factor):
    """What the oriented matrix is divided by: a scalar, or a column for aol."""
    if normalization == "none":
        return 1.0
    if normalization == "frobenius":
        norm = np.linalg.norm(x)
    elif normalization == "schatten":
        norm = np.sqrt(np.linalg.norm(x @ x.T))
    elif normalization == "aol":
        norm = np.sqrt(np.abs(x @ x.T).sum(axis=1, keepdims=True))
    elif normalization == "spectral":
        norm = np.linalg.norm(x, 2)
    else:
        raise ValueError(f"normalization is {normalization!r}: use one of {NORMALIZATIONS}")
    norm = norm * safety_factor
    if eps_mode == "clamp":
        return np.maximum(norm, eps)
    if eps_mode == "optax" and normalization in ("aol", "schatten"):
        return np.sqrt(np.maximum(norm**2, 1e-8))
    if eps_mode in ("add", "optax"):
        return norm + eps
    if eps_mode == "none":
        return norm
    raise ValueError(f"eps_mode is {eps_mode!r}: use one of {EPS_MODES}")


def iterate(x, table, precision="f64"):
    """All steps on an oriented, normalised matrix. Returns the result and
    ||I - X X^T||_F before the last step."""
    for a, b, c in table:
        gram = round_to(precision, x @ x.T)
        square = round_to(precision, gram @ gram)
        weights = round_to(precision, b * gram + c * square)
        x = round_to(precision, a * x + weights @ x)
    return x, np.linalg.norm(np.eye(len(gram)) - gram)


def orthogonalize_certified(matrix, table, normalization="frobenius", eps_mode="none", eps=1e-7,
                            safety_factor=1.0, precision="f64"):
    """The result and ||I - X X^T||_F before the last step (None for a zero matrix)."""
    x = np.asarray(matrix, dtype=np.float64)
    if x.ndim != 2:
        raise ValueError(f"the matrix has shape {x.shape}: it must have two dimensions")
    if not np.any(x):
        return np.zeros_like(x), None
    if eps_mode == "none" and normalization != "none":
        # An exact power of two makes the result independent of the scale in the half types too.
        x = np.ldexp(x, -np.frexp(np.abs(x).max())[1])
    x = round_to(precision, x)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    d = divisor(x, normalization, eps_mode, eps, safety_factor)
    x = round_to(precision, x / np.where(d == 0, 1.0, d))  # a zero row stays zero under aol
    x, deviation = iterate(x, table, precision)
    return (x.T if tall else x), deviation


def orthogonalize(matrix, table, **options):
    return orthogonalize_certified(matrix, table, **options)[0]

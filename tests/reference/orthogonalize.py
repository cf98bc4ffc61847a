"""Orthogonalisation of one matrix: orient, normalise, iterate, turn back.

Sums are exact to double precision whatever the `precision`; in the modes f32,
bf16 and f16 everything that an implementation stores is rounded to that type:
the normalised matrix, A = X X^T, b A + c A A, new X, and
what the `rounding` adds to these.
"""
import numpy as np

from .rounding import round_to

NORMALIZATIONS = ("frobenius", "schatten", "aol", "spectral", "none")
EPS_MODES = ("none", "clamp", "add", "optax")

# What else is rounded in the half types: the matrix before its norm is taken; the norm, and after
# each operation the divisor; c A, as a factor of (c A) A; that product, or A A; c (A A); b A; a X
# and B X.
ROUNDINGS = {
    "stored": {"square"},
    "torch": {"input", "divisor"},
    "keller": {"input", "divisor", "factor", "square", "linear", "sum"},
    "motif": {"input", "divisor", "square", "linear"},
    "fp16": {"input", "square", "scaled", "linear", "sum"},
}


def divisor(x, normalization, eps_mode, eps, safety_factor, stored=np.asarray):
    """What the oriented matrix is divided by: a scalar, or a column for aol. `stored` rounds."""
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
    norm = stored(stored(norm) * safety_factor)
    if eps_mode == "clamp":
        return np.maximum(norm, stored(eps))
    if eps_mode == "optax" and normalization in ("aol", "schatten"):
        return np.sqrt(np.maximum(norm**2, 1e-8))
    if eps_mode in ("add", "optax"):
        return stored(norm + eps)
    if eps_mode == "none":
        return norm
    raise ValueError(f"eps_mode is {eps_mode!r}: use one of {EPS_MODES}")


def rounder(precision, rounding, what):
    """Rounds to the precision if the rounding does that to `what`."""
    if what in ROUNDINGS[rounding]:
        return lambda values: round_to(precision, values)
    return np.asarray


def iterate(x, table, precision="f64", rounding="stored"):
    """All steps on an oriented, normalised matrix. Returns the result and
    ||I - X X^T||_F before the last step."""
    factor, square, scaled, linear, summand = (
        rounder(precision, rounding, what)
        for what in ("factor", "square", "scaled", "linear", "sum"))
    for a, b, c in table:
        gram = round_to(precision, x @ x.T)
        if "factor" in ROUNDINGS[rounding]:
            squared = square(factor(c * gram) @ gram)
        else:
            squared = scaled(c * square(gram @ gram))
        weights = round_to(precision, linear(b * gram) + squared)
        x = round_to(precision, summand(a * x) + summand(weights @ x))
    return x, np.linalg.norm(np.eye(len(gram)) - gram)


def orthogonalize_certified(matrix, table, normalization="frobenius", eps_mode="none", eps=1e-7,
                            safety_factor=1.0, precision="f64", rounding="stored"):
    """The result and ||I - X X^T||_F before the last step (None for a zero matrix)."""
    x = np.asarray(matrix, dtype=np.float64)
    if x.ndim != 2:
        raise ValueError(f"the matrix has shape {x.shape}: it must have two dimensions")
    if not np.any(x):
        return np.zeros_like(x), None
    if eps_mode == "none" and normalization != "none":
        # An exact power of two makes the result independent of the scale in the half types too.
        x = np.ldexp(x, -np.frexp(np.abs(x).max())[1])
    half = precision in ("bf16", "f16")
    x = rounder(precision, rounding, "input")(x) if half else round_to(precision, x)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    d = divisor(x, normalization, eps_mode, eps, safety_factor,
                rounder(precision, rounding, "divisor"))
    x = round_to(precision, x / np.where(d == 0, 1.0, d))  # a zero row stays zero under aol
    x, deviation = iterate(x, table, precision, rounding)
    return (x.T if tall else x), deviation


def orthogonalize(matrix, table, **options):
    return orthogonalize_certified(matrix, table, **options)[0]

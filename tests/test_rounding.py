"""Which intermediates the half types round: against the published formulas in f32 arithmetic, bit
for bit where no sum has two terms; and against PyTorch itself, whose sums are in another order.
"""
import os
import pathlib
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = pathlib.Path(os.environ.get("MUONIUM_BUILD_DIR", ROOT / "build")) / "libmuonium.so"
os.environ["MUONIUM_LIBRARY"] = str(LIBRARY)
sys.path.insert(0, str(ROOT / "python"))

import muonium  # noqa: E402
from reference.coefficients import PRESETS, choose  # noqa: E402
from reference.orthogonalize import ROUNDINGS  # noqa: E402
from reference.orthogonalize import orthogonalize as reference  # noqa: E402
from reference.recipes import RECIPES  # noqa: E402
from reference.rounding import round_to  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

SEED = 20
ORIGINAL = PRESETS["original"][0]
QUINTIC = PRESETS["quintic"]


@pytest.mark.parametrize("half, bits", [("bf16", 8), ("f16", 11)])
def test_a_reciprocal_divides_exactly(half, bits):
    """A significand of a half type times the f32 reciprocal of another rounds as their quotient."""
    numbers = np.arange(2 ** (bits - 1), 2**bits, dtype=np.float32)
    for x in numbers:
        assert np.array_equal(round_to(half, x * (np.float32(1) / numbers)),
                              round_to(half, x / numbers))


# ---- no sum has two terms ----

# X, a vector of the numbers of a matrix with one in each row and column, after one step; `r`
# rounds, and everything else is f32. They are the formulas of the implementations named.
FORMULAS = {
    "stored": lambda r, x, A, a, b, c: r(a * x + r(b * A + c * r(A * A)) * x),
    "torch": lambda r, x, A, a, b, c: r(a * x + r(b * A + c * (A * A)) * x),
    "keller": lambda r, x, A, a, b, c: r(r(a * x) + r(r(r(b * A) + r(r(c * A) * A)) * x)),
    "motif": lambda r, x, A, a, b, c: r(a * x + r(r(b * A) + c * r(A * A)) * x),
    "fp16": lambda r, x, A, a, b, c: r(r(a * x) + r(r(r(b * A) + r(c * r(A * A))) * x)),
}


def model(x, half, rounding, table, eps_mode, safety_factor):
    def r(values):
        return round_to(half, values).astype(np.float32)

    def divide(x):
        kept = r if rounding not in ("stored", "fp16") else np.float64
        norm = np.sqrt(np.sum(x.astype(np.float64) ** 2))
        norm = kept(kept(norm) * safety_factor)
        norm = kept(norm + 1e-7) if eps_mode == "add" else np.maximum(norm, kept(1e-7))
        return r(x * np.float32(1 / np.float64(norm)))

    x = divide(x if rounding == "stored" else r(x))
    for row in table:
        x = FORMULAS[rounding](r, x, r(x * x), *np.array(row, dtype=np.float32))
    return x


@pytest.mark.parametrize("half", ["bf16", "f16"])
@pytest.mark.parametrize("rounding", FORMULAS)
@pytest.mark.parametrize("shape", [(40, 40), (24, 90), (130, 70), (1, 8)])
@pytest.mark.parametrize("eps_mode, safety_factor", [("add", 1.0), ("clamp", 1.01)])
def test_bit_for_bit_without_sums(half, rounding, shape, eps_mode, safety_factor):
    rng = np.random.default_rng(SEED)
    for count, size in ((1, 1.0), (4, 2.0**-20)):  # f16 has its small numbers elsewhere then
        size = size if half == "bf16" else 1.0
        x = np.zeros(shape, dtype=np.float32)
        places = rng.permutation(max(shape))[:min(shape)]
        index = (np.arange(min(shape)), places)
        index = index if shape[0] <= shape[1] else index[::-1]
        x[index] = rng.standard_normal(min(shape)) * size
        x /= np.float32(2.0) ** np.frexp(np.abs(x).max())[1] / np.float32(size)
        found = muonium.orthogonalize(x, steps=count, coefficients=QUINTIC, precision=half,
                                      rounding=rounding, eps=1e-7, eps_mode=eps_mode,
                                      safety_factor=safety_factor)
        expected = np.zeros_like(x)
        expected[index] = model(x[index], half, rounding, QUINTIC[:count], eps_mode, safety_factor)
        assert np.array_equal(found, expected)

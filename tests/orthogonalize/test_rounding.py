"""Which intermediates the half types round: against the published formulas in f32 arithmetic, bit
for bit where no sum has two terms; and against PyTorch itself, whose sums are in another order.
"""

import numpy as np
import pytest

import package  # noqa: F401, finds the library

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
    # The model rounds at the scale at which it is given the matrix, and f16 has few small numbers.
    for count, size in ((1, 1.0), (4, 1.0), (4, 2.0**-20 if half == "bf16" else 0.5)):
        x = np.zeros(shape, dtype=np.float32)
        places = rng.permutation(max(shape))[:min(shape)]
        index = (np.arange(min(shape)), places)
        index = index if shape[0] <= shape[1] else index[::-1]
        x[index] = rng.standard_normal(min(shape))
        x *= np.float32(size) / np.float32(2) ** np.frexp(np.abs(x).max())[1]
        found = muonium.orthogonalize(x, steps=count, coefficients=QUINTIC, precision=half,
                                      rounding=rounding, eps=1e-7, eps_mode=eps_mode,
                                      safety_factor=safety_factor)
        expected = np.zeros_like(x)
        expected[index] = model(x[index], half, rounding, QUINTIC[:count], eps_mode, safety_factor)
        assert np.array_equal(found, expected)


# ---- the implementations, by their published formulas on PyTorch ----


def times(number, matrix):
    """As from torch 2.0 on; before, the CPU rounded the number too."""
    return (number * matrix.float()).to(matrix.dtype)


def torch_step(X, a, b, c):
    A = X @ X.T
    B = torch.addmm(A, A, A, beta=b, alpha=c)
    return torch.addmm(X, B, X, beta=a)


def timm_step(X, a, b, c):
    X = X[None]
    A = torch.bmm(X, X.mT)
    B = torch.baddbmm(A, A, A, beta=b, alpha=c)
    return torch.baddbmm(X, B, X, beta=a)[0]


def keller_step(X, a, b, c):
    A = X @ X.mT
    B = times(b, A) + times(c, A) @ A
    return times(a, X) + B @ X


def motif_step(X, a, b, c):
    A = X @ X.T
    AA = A @ A.T
    B = (times(b, A).float() + c * AA.float()).bfloat16()  # A.mul_(b).add_(AA, alpha=c)
    return torch.addmm(X, B, X, alpha=1.0, beta=a)


def fp16_step(X, a, b, c):
    def product(P, Q):  # the CPU of older torch has none of f16
        return (P.float() @ Q.float()).half()

    A = product(X, X.T)
    B = times(b, A) + times(c, product(A, A))
    return times(a, X) + product(B, X)


def clamped(X):
    return X / X.norm().clamp(min=1e-7)


def enlarged(X):
    """keller writes norm(dim=(-2, -1)), of which torch 1.13 rounds every square to bf16 as well."""
    return X / (X.norm() + 1e-7)


def enlarged_in_f32(X):
    return (X.float() / (X.float().norm() + 1e-7)).half()


# By recipe: the division by the norm, and one step.
ORIGINALS = {"torch": (clamped, torch_step), "timm": (clamped, timm_step),
             "keller": (enlarged, keller_step), "moonlight": (enlarged, keller_step),
             "motif": (enlarged, motif_step), "fp16": (enlarged_in_f32, fp16_step)}


def units_apart(found, expected):
    """In units of the last place."""
    def ordered(x):
        bits = x.contiguous().view(torch.int16).numpy().astype(np.int64)
        return np.where(bits < 0, -(bits & 0x7FFF), bits)

    return np.abs(ordered(found) - ordered(expected))


def ours(X, dtype, **options):
    found = muonium.orthogonalize(X.float().numpy(), steps=1, **options)
    result = torch.from_numpy(found).to(dtype)
    assert np.array_equal(result.float().numpy(), found)
    return result


@pytest.mark.skipif(torch is None, reason="there is no torch")
@pytest.mark.parametrize("shape", [(64, 96), (96, 200), (120, 120), (200, 112)])
@pytest.mark.parametrize("recipe", ORIGINALS)
def test_every_step_of_the_originals(recipe, shape):
    """Each step from where the original is. Sums in another order round to the next number where
    they are within some 2^-22 of the middle between two. In X that is one element in thousands; but
    one of R or Z takes a row with it, and one of R's diagonal up to a quarter of all. That is rare,
    so that the median of the steps is free of it. The rounding "stored" shows that others are told
    apart."""
    divide, step = ORIGINALS[recipe]
    fields = RECIPES[recipe]
    options = dict(precision=fields["precision"], eps=1e-7, eps_mode=fields["eps_mode"])
    G = torch.randn(shape, generator=torch.Generator().manual_seed(SEED))
    G = G.T.contiguous() if shape[0] > shape[1] else G
    dtype = torch.half if recipe == "fp16" else torch.bfloat16
    start, X, like, unlike = G, divide(G.to(dtype)), [], []
    for row in choose(fields["coefficients"], 5):
        expected = step(X, *row)
        found, other = (ours(start, dtype, coefficients=[row], rounding=rounding, **options)
                        for rounding in (fields["rounding"], "stored"))
        like.append(np.mean(units_apart(found, expected) > 0))
        unlike.append(np.mean(units_apart(other, expected) > 0))
        start = X = expected
        options = dict(precision=fields["precision"], normalize="none")
    assert np.median(like) < 0.02 and np.median(unlike) > 0.2


@pytest.mark.skipif(torch is None, reason="there is no torch")
def test_tall_matrices_are_the_same_transposed():
    G = np.random.default_rng(SEED).standard_normal((96, 200)).astype(np.float32)
    for rounding in ROUNDINGS:
        options = dict(precision="bf16", rounding=rounding, coefficients="original")
        assert np.array_equal(muonium.orthogonalize(G.T, **options),
                              muonium.orthogonalize(G, **options).T)
        tall = np.ascontiguousarray(G.T)
        assert np.array_equal(muonium.orthogonalize(tall, **options),
                              muonium.orthogonalize(G, **options).T)


@pytest.mark.parametrize("half", ["bf16", "f16"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_against_the_reference(half, rounding):
    """Five steps, whose sums the reference has in double. On a small matrix hardly any number rounds
    otherwise for that; every other rounding is much further away."""
    G = np.random.default_rng(SEED).standard_normal((24, 40)).astype(np.float32)
    G /= np.float32(8)
    options = dict(eps=1e-7, eps_mode="add", precision=half)
    expected = {r: reference(G, [ORIGINAL] * 5, rounding=r, **options) for r in ROUNDINGS}
    found = muonium.orthogonalize(G, coefficients="original", rounding=rounding, **options)
    apart = {r: np.linalg.norm(found - x) for r, x in expected.items()}
    assert 4 * apart.pop(rounding) < min(apart.values())


@pytest.mark.parametrize("normalize", ["frobenius", "schatten", "aol", "spectral", "none"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_every_normalization(normalize, rounding):
    """Wherever the divisor comes from, what is rounded more often is not much worse for it."""
    G = np.random.default_rng(SEED).standard_normal((48, 80)).astype(np.float32) / 100
    options = dict(coefficients="polar_express", normalize=normalize)
    exact = muonium.orthogonalize(G, precision="f64", form="standard", **options)
    error, least = (np.linalg.norm(muonium.orthogonalize(G, precision="bf16", rounding=r, **options)
                                   - exact) for r in (rounding, "stored"))
    assert 0 < error < 4 * least


def test_other_precisions_and_forms_ignore_it():
    G = np.random.default_rng(SEED).standard_normal((48, 80)).astype(np.float32)
    for options in (dict(), dict(precision="f64"), dict(form="quintic"),
                    dict(precision="bf16", form="gram")):
        expected = muonium.orthogonalize(G, **options)
        for rounding in ROUNDINGS:
            assert np.array_equal(muonium.orthogonalize(G, rounding=rounding, **options), expected)
    with pytest.raises(ValueError, match="rounding is 'half': use one of stored, torch"):
        muonium.orthogonalize(G, rounding="half")

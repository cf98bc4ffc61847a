"""Runs of a published Muon beside the recipe of its name, on the same parameters and gradients.

`make compare` runs the tests of this directory with the packages that they need. The library is
that of MUONIUM_BUILD_DIR, by default build/ of the source tree.
"""
import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIBRARY = pathlib.Path(os.environ.get("MUONIUM_BUILD_DIR", ROOT / "build")) / "libmuonium.so"
os.environ["MUONIUM_LIBRARY"] = str(LIBRARY)
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]

STEPS = 40
EPS = 2.0**-24  # half a unit in the last place of f32: the error of one rounding

# Square, wide, tall, an even number and a prime, two small ones that are still matrices.
MATRICES = {"square": (24, 24), "wide": (16, 40), "tall": (40, 16), "prime": (7, 13),
            "small": (4, 5), "thin": (33, 4)}
OTHERS = {"vector": (33,), "scalar": ()}


def start(shapes, seed=1):
    """Initial weights, as small as those of a model."""
    random = np.random.default_rng(seed)
    return {name: np.array(0.1 * random.standard_normal(shape), np.float32)
            for name, shape in shapes.items()}


def gradients(shapes, steps=STEPS, seed=2, scale=1.0):
    """One dict of gradients per step; their sizes change from step to step."""
    random = np.random.default_rng(seed)
    return [{name: np.array(scale * 10.0 ** random.uniform(-2, 0)
                            * random.standard_normal(shape), np.float32)
             for name, shape in shapes.items()} for _ in range(steps)]


# A rounding of the normalised matrix is an error of EPS there. Five iterations pass it on in
# directions of tiny singular values, of which a matrix has few, with at most 3.4445^5 = 485 times
# that; over all directions a third of it remains.
F32 = 168 * EPS  # 1e-5

# Results of two orders of summation are rounded to bf16 or f16 in each iteration, and the values of
# either may differ by a rounding of both.
BF16, F16 = 2 * 2.0**-8, 2 * 2.0**-11


def assert_beside(ours, theirs, before, tolerance=F32, stored=EPS, steps=STEPS):
    """Both have moved from `before` to the same place: they are apart by no more than `tolerance`
    of the way, and what storing the parameters costs. Two implementations each round them twice
    in a step (decay, update), by errors of `stored` that add up as random ones do; and one may
    round the factor of the decay, a number below 1, by EPS / 2, which is the same in each step."""
    apart = {}
    for name, expected in theirs.items():
        expected, found = np.asarray(expected, np.float64), np.asarray(ours[name], np.float64)
        origin = np.asarray(before[name], np.float64)
        way, apart_by = np.linalg.norm(expected - origin), np.linalg.norm(found - expected)
        assert way > 0, name
        size = max(np.linalg.norm(expected), np.linalg.norm(origin))
        storing = ((4 * steps) ** 0.5 * stored + steps * EPS / 2) * size
        allowed = tolerance * way + storing if tolerance else 0.0
        if not apart_by <= allowed:
            apart[name] = f"{apart_by / way:.1e} of the way, allowed {allowed / way:.1e}"
    assert not apart, apart


def half_bits(dtype, momentum=0.95):
    """(tolerance, stored) of assert_beside for parameters of a half type. The originals also keep
    momentum in it, and its roundings are forgotten as gradients are: 1 / sqrt(1 - momentum^2)
    of them remain."""
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    return 2 * unit / (1 - momentum**2) ** 0.5, unit


def train_torch(weights, grads, make, dtype="float32"):
    """The weights after the steps of a PyTorch optimizer that make(named parameters) returns."""
    import torch

    kind = getattr(torch, dtype)
    params = {name: torch.nn.Parameter(torch.tensor(w).to(kind)) for name, w in weights.items()}
    optimizer = make(params)
    for step in grads:
        for name, p in params.items():
            p.grad = torch.tensor(step[name]).to(kind)
        optimizer.step()
    return {name: p.detach().float().numpy() for name, p in params.items()}

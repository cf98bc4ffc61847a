"""Runs of a published Muon beside the recipe of its name, on the same parameters and gradients.

The tests of this directory need packages of PyPI and are skipped without them. The library is
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

# Sums of products in another order differ in f32 by a few units of 2^-24, and five iterations
# pass on the error of the smallest singular values, of which there are few.
F32 = 1e-5

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


def assert_beside(ours, theirs, before, tolerance=F32):
    """Both have moved from `before` to the same place."""
    for name, expected in theirs.items():
        expected, found = np.asarray(expected, np.float64), np.asarray(ours[name], np.float64)
        moved = np.linalg.norm(expected - before[name])
        assert moved > 0, name
        error = np.linalg.norm(found - expected) / max(np.linalg.norm(expected), moved)
        assert error <= tolerance, f"{name} is {error:.1e} apart"


def train_torch(weights, grads, make):
    """The weights after the steps of a PyTorch optimizer that make(named parameters) returns."""
    import torch

    params = {name: torch.nn.Parameter(torch.tensor(w)) for name, w in weights.items()}
    optimizer = make(params)
    for step in grads:
        for name, p in params.items():
            p.grad = torch.tensor(step[name])
        optimizer.step()
    return {name: p.detach().numpy() for name, p in params.items()}

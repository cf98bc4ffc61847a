"""optax.contrib.muon beside recipe="optax"."""
import numpy as np
import pytest

from beside import F32, MATRICES, OTHERS, assert_beside, gradients, start

jax = pytest.importorskip("jax", reason="JAX is not installed")
optax = pytest.importorskip("optax", reason="optax is not installed")

import muonium  # noqa: E402

SHAPES = {**MATRICES, **OTHERS, "conv": (3, 3, 6, 12)}
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_default_matmul_precision", "highest")


def train_optax(weights, grads, transform):
    params = {name: jax.numpy.array(w) for name, w in weights.items()}
    state = transform.init(params)

    @jax.jit
    def step(grads, state, params):
        updates, state = transform.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for g in grads:
        params, state = step(g, state, params)
    return params


def compare(options, ours=None, scale=1.0, tolerance=F32, shapes=SHAPES, **more):
    """`ours`: what Muonium calls the options."""
    weights, grads = start(shapes), gradients(shapes, scale=scale)
    expected = train_optax(weights, grads, optax.contrib.muon(0.02, **options))
    found = {name: w.copy() for name, w in weights.items()}
    optimizer = muonium.Optimizer(found, recipe="optax", lr=0.02,
                                  **(options if ours is None else ours), **more)
    for g in grads:
        optimizer.step(g)
    assert_beside(found, expected, weights, tolerance)


@pytest.mark.parametrize("options, ours", [
    ({}, None), ({"nesterov": False}, None), ({"weight_decay": 0.1}, None),
    ({"beta": 0.8}, {"momentum": 0.8}), ({"ns_steps": 3}, None), ({"eps": 0.1}, None),
    ({"consistent_rms": 0.2}, {"scale": "match_rms_adamw"}),
    ({"ns_coeffs": "dion"}, {"coefficients": "quintic"}),
    ({"adam_b1": 0.8, "adam_b2": 0.9}, {"betas": (0.8, 0.9)}),
    ({"adam_eps_root": 1e-2}, None), ({"adam_weight_decay": 0.3}, None),
    ({"adam_learning_rate": 1e-3}, {"adam_lr": 1e-3}),
    ({"preconditioning": "aol"}, {"normalization": "aol"}),
    ({"preconditioning": "schatten"}, {"normalization": "schatten"}),
    ({"preconditioning": "aol", "eps": 0.1}, {"normalization": "aol", "eps": 0.1}),
    ],
    ids=lambda x: str(x))
def test_options(options, ours):
    compare(options, ours)


@pytest.mark.parametrize("norm", ["frobenius", "aol", "schatten"])
@pytest.mark.parametrize("scale", [1e-5, 1e-7])
def test_tiny_gradients(norm, scale):
    compare({"preconditioning": norm}, {"normalization": norm}, scale=scale, shapes=MATRICES)


def test_weight_decay_mask():
    mask = {name: name in ("wide", "square") for name in SHAPES}
    compare({"weight_decay": 0.5, "weight_decay_mask": mask})
    compare({"weight_decay": 0.5, "weight_decay_mask": lambda params: mask})


def test_axes():
    """A batch of matrices with the axes named; axis 0 is an axis."""
    shapes = {"w": (6, 3, 8), "x": (10, 4, 5)}
    numbers = {"w": optax.contrib.MuonDimensionNumbers(0, 2),
               "x": optax.contrib.MuonDimensionNumbers((0,), (1, 2))}
    compare({"muon_weight_dimension_numbers": numbers}, {}, shapes=shapes, each={
        "w": {"layout": "fan", "in_axes": 0, "out_axes": 2},
        "x": {"layout": "fan", "in_axes": 0, "out_axes": (1, 2)}})

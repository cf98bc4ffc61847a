"""optax.contrib.muon beside recipe="optax"."""
import jax
import numpy as np
import optax
import pytest

from beside import (BF16, F32, MATRICES, OTHERS, assert_beside, gradients, start)

import muonium

SHAPES = {**MATRICES, **OTHERS, "conv": (3, 3, 6, 12)}
FEW = {name: SHAPES[name] for name in ("wide", "tall", "vector")}
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


def compare(options, ours=None, scale=1.0, tolerance=F32, shapes=FEW, lr=0.02, **more):
    """`ours`: what Muonium calls the options."""
    weights, grads = start(shapes), gradients(shapes, scale=scale)
    expected = train_optax(weights, grads, optax.contrib.muon(lr, **options))
    found = {name: w.copy() for name, w in weights.items()}
    optimizer = muonium.Optimizer(found, recipe="optax", lr=lr,
                                  **(options if ours is None else ours), **more)
    for g in grads:
        optimizer.step(g)
    assert_beside(found, expected, weights, tolerance)


@pytest.mark.parametrize("nesterov", [True, False])
def test_every_shape(nesterov):
    compare({"nesterov": nesterov}, shapes=SHAPES)


POLAR_EXPRESS = tuple(map(tuple, muonium.polar_express(5, safety=0.02)))


@pytest.mark.parametrize("options, ours", [
    ({"weight_decay": 0.1}, None), ({"weight_decay": 0.1, "nesterov": False}, None),
    ({"beta": 0.8}, None), ({"beta": 0.0}, None), ({"ns_steps": 3}, None), ({"eps": 0.1}, None),
    ({"eps": 0.0}, None),
    ({"consistent_rms": 0.2}, {"scale": "match_rms_adamw"}),
    ({"consistent_rms": 0.3}, {"scale": "match_rms_adamw", "scale_factor": 1.5}),
    ({"ns_coeffs": "dion"}, {"coefficients": "quintic"}),
    ({"ns_coeffs": "standard"}, {"coefficients": "original"}),
    ({"ns_coeffs": (2.0, -1.5, 0.5)}, {"coefficients": (2.0, -1.5, 0.5)}),
    ({"ns_coeffs": POLAR_EXPRESS}, {"coefficients": "generated", "safety": 0.02}),
    ({"ns_coeffs": POLAR_EXPRESS}, {"coefficients": POLAR_EXPRESS}),
    ({"adam_b1": 0.8, "adam_b2": 0.9}, None),
    ({"adam_b1": 0.8, "adam_b2": 0.9, "nesterov": False}, None),
    ({"adam_eps_root": 1e-2}, None), ({"adam_weight_decay": 0.3}, None),
    ({"adam_learning_rate": 1e-3}, None),
    ], ids=str)
def test_options(options, ours):
    compare(options, ours)


@pytest.mark.parametrize("options", [
    {}, {"eps": 0.1}, {"nesterov": False}, {"ns_coeffs": "dion"}], ids=str)
@pytest.mark.parametrize("norm", ["spectral", "aol", "schatten"])
def test_preconditionings(norm, options):
    ours = {{"ns_coeffs": "coefficients"}.get(key, key): {"dion": "quintic"}.get(value, value)
            for key, value in options.items()}
    compare({"preconditioning": norm, **options}, {"preconditioning": norm, **ours})


@pytest.mark.parametrize("norm", ["frobenius", "spectral", "aol", "schatten"])
@pytest.mark.parametrize("scale", [1e-5, 1e-7])
def test_tiny_gradients(norm, scale):
    compare({"preconditioning": norm}, scale=scale, shapes={"wide": MATRICES["wide"]})


@pytest.mark.parametrize("options", [
    {}, {"nesterov": False}, {"weight_decay": 0.1}, {"consistent_rms": 0.2},
    {"preconditioning": "aol"}, {"preconditioning": "schatten", "beta": 0.8}], ids=str)
def test_adaptive(options):
    """Updates multiplied by the dual norm of their direction."""
    ours = {key: value for key, value in options.items() if key != "consistent_rms"}
    scale = {"scale": "match_rms_adamw"} if "consistent_rms" in options else {}
    compare({"adaptive": True, **options}, {"adaptive": True, **ours, **scale}, shapes=SHAPES)


def test_adaptive_takes_one_matrix_per_parameter():
    w = {"w": np.zeros((4, 8, 8), "f4")}
    with pytest.raises(ValueError, match="^w stands for 4 matrices, and adaptive takes one"):
        muonium.Optimizer(w, recipe="keller", adaptive=True)
    muonium.Optimizer(w, recipe="keller", adaptive=True, layout="flatten")


@pytest.mark.parametrize("nesterov", [True, False])
def test_mu_dtype(nesterov):
    """The original may round beta times the momentum as well as the momentum: two roundings in
    each step, which are forgotten as gradients are. Their sum is 1 / sqrt(1 - beta^2) of them."""
    compare({"mu_dtype": "bfloat16", "nesterov": nesterov},
            {"state_dtype": "bf16", "nesterov": nesterov}, tolerance=BF16 / (1 - 0.95**2) ** 0.5)


def test_weight_decay_mask():
    mask = {name: name in ("wide", "vector") for name in FEW}
    compare({"weight_decay": 0.5, "weight_decay_mask": mask})
    compare({"weight_decay": 0.5, "weight_decay_mask": lambda params: mask})


def test_schedule():
    """A learning rate that changes from step to step, and AdamW's with it."""
    weights, grads = start(FEW), gradients(FEW)
    rate = optax.cosine_decay_schedule(0.05, 50)
    expected = train_optax(weights, grads, optax.contrib.muon(rate, weight_decay=0.1))
    found = {name: w.copy() for name, w in weights.items()}
    optimizer = muonium.Optimizer(found, recipe="optax", lr=0.05, weight_decay=0.1)
    for i, g in enumerate(grads):
        optimizer.lr = float(rate(i))
        optimizer.step(g)
    assert_beside(found, expected, weights)


def test_axes():
    """A batch of matrices with the axes named; axis 0 is an axis, and None means AdamW."""
    shapes = {"w": (6, 3, 8), "x": (10, 4, 5), "y": (5, 4, 10), "z": (6, 8)}
    number = optax.contrib.MuonDimensionNumbers
    numbers = {"w": number(0, 2), "x": number((0,), (1, 2)), "y": number((-3, -2), -1), "z": None}
    compare({"muon_weight_dimension_numbers": numbers}, {}, shapes=shapes, each={
        "w": {"layout": "fan", "in_axes": 0, "out_axes": 2},
        "x": {"layout": "fan", "in_axes": 0, "out_axes": (1, 2)},
        "y": {"layout": "fan", "in_axes": (-3, -2), "out_axes": -1},
        "z": {"use_muon": False}})


@pytest.mark.parametrize("sigma", [[1, 0.5, 0.1], [1, 1, 0.1], [1, 1, 1], [1, 0.9999, 0.1],
                                   [1, 0.999, 0.998]], ids=str)
def test_the_spectral_norm(sigma):
    """The divisor is the largest singular value, also where others are close to it."""
    random = np.random.default_rng(3)
    u, v = (np.linalg.qr(random.standard_normal((n, 3)))[0] for n in (20, 30))
    x = np.array(7.0 * u * sigma @ v.T, np.float32)
    _, certificate = muonium.orthogonalize(x, normalize="spectral", eps_mode="optax", eps=0.0,
                                           return_certificate=True)
    assert abs(certificate.divisor / np.linalg.norm(x.astype(np.float64), 2) - 1) < 32 * 2.0**-24


def test_arrays_of_jax():
    """They are gradients as NumPy's arrays are, and no parameters: JAX shares and caches them."""
    with pytest.raises(TypeError, match="w is an array of JAX, .*numpy.array"):
        muonium.Optimizer({"w": jax.numpy.zeros((8, 8))})
    one, other = ({"w": np.zeros((8, 8), "f4")} for _ in range(2))
    g = np.random.default_rng(5).standard_normal((8, 8)).astype("f4")
    for w, grad in ((one, g), (other, jax.numpy.array(g))):
        muonium.Optimizer(w).step({"w": grad})
    assert one["w"].any() and np.array_equal(one["w"], other["w"])

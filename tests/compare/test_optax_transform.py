"""muonium.optax beside optax.contrib and beside the recipes of muonium.Optimizer."""
import inspect
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from beside import BF16, F32, MATRICES, OTHERS, assert_beside, gradients, half_bits, start

import muonium
import muonium.optax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_default_matmul_precision", "highest")

STEPS = 50
FEW = {name: MATRICES[name] for name in ("wide", "tall")}
FEW.update(again=FEW["wide"], vector=OTHERS["vector"])  # two of one shape
POLAR_EXPRESS = tuple(muonium.polar_express(5, safety=0.02))


def train(weights, grads, transform, dtype="float32", state=None):
    """The parameters and the state after the steps of a transformation, in one program."""
    params = {name: jnp.asarray(w, dtype) for name, w in weights.items()}
    grads = {name: jnp.stack([jnp.asarray(g[name], dtype) for g in grads]) for name in params}

    def step(carry, grads):
        params, state = carry
        updates, state = transform.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    state = transform.init(params) if state is None else state
    return jax.jit(lambda carry: jax.lax.scan(step, carry, grads)[0])((params, state))


def compare(options, theirs=None, shapes=FEW, tolerance=F32, stored=2.0**-24, scale=1.0, lr=0.02,
            dtype="float32"):
    weights, grads = start(shapes), gradients(shapes, STEPS, scale=scale)
    expected = train(weights, grads, optax.contrib.muon(lr, **(theirs or options)), dtype)
    found = train(weights, grads, muonium.optax.muon(lr, **options), dtype)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert (ours.shape, ours.dtype) == (other.shape, other.dtype)
    weights = {name: np.asarray(jnp.asarray(w, dtype), "f8") for name, w in weights.items()}
    assert_beside(found[0], expected[0], weights, tolerance, stored, STEPS)
    return found, expected


# ---- the same as optax.contrib ----


@pytest.mark.parametrize("name", ["muon", "scale_by_muon"])
def test_signature(name):
    """Every argument of optax, in its place, with its default; two more by keyword."""
    theirs = inspect.signature(getattr(optax.contrib, name)).parameters
    ours = inspect.signature(getattr(muonium.optax, name)).parameters
    assert list(ours)[:len(theirs)] == list(theirs)
    assert list(ours)[len(theirs):] == ["recipe", "precision"]
    for argument, parameter in theirs.items():
        assert ours[argument].default == parameter.default, argument
        assert ours[argument].kind == parameter.kind, argument


@pytest.mark.parametrize("coefficients", ["standard", "dion", (2.0, -1.5, 0.5), POLAR_EXPRESS],
                         ids=["standard", "dion", "one", "polar_express"])
@pytest.mark.parametrize("norm", ["frobenius", "spectral", "aol", "schatten"])
def test_trajectories(norm, coefficients):
    compare({"preconditioning": norm, "ns_coeffs": coefficients})


@pytest.mark.parametrize("options", [
    {"nesterov": False, "weight_decay": 0.1, "beta": 0.8, "ns_steps": 3, "eps": 0.1},
    {"consistent_rms": 0.2, "adam_b1": 0.8, "adam_b2": 0.9, "adam_eps_root": 1e-2,
     "adam_weight_decay": 0.3, "adam_learning_rate": 1e-3},
    {"adaptive": True}, {"adaptive": True, "preconditioning": "aol", "nesterov": False},
    {"weight_decay": 0.5, "weight_decay_mask": {"wide": True, "tall": False, "again": True,
                                                "vector": True}},
    {"ns_coeffs": POLAR_EXPRESS[:3]}], ids=str)
def test_options(options):
    compare(options)


def test_mask_by_a_function():
    compare({"weight_decay": 0.5,
             "weight_decay_mask": lambda params: jax.tree.map(lambda x: x.shape[0] > 20, params)})


@pytest.mark.parametrize("norm", ["frobenius", "aol"])
def test_tiny_gradients(norm):
    compare({"preconditioning": norm}, scale=1e-6)


def test_schedule():
    compare({"weight_decay": 0.1}, lr=optax.cosine_decay_schedule(0.05, 60))


@pytest.mark.parametrize("nesterov", [True, False])
def test_mu_dtype(nesterov):
    """Momentum is rounded once in each step by both; optax then rounds intermediates as it casts,
    and roundings are forgotten as gradients are."""
    compare({"mu_dtype": "bfloat16", "nesterov": nesterov},
            tolerance=BF16 / (1 - 0.95**2) ** 0.5)


def test_half_parameters():
    """optax computes in bf16, with roundings in each iteration; here only the result is rounded."""
    weights, grads = start(FEW), gradients(FEW, STEPS)
    tolerance, stored = half_bits("bfloat16")
    theirs, _ = train(weights, grads, optax.contrib.muon(0.02), "bfloat16")
    rounded = {name: np.asarray(jnp.asarray(w, "bfloat16"), "f8") for name, w in weights.items()}
    exact, _ = train(rounded, [{n: np.asarray(jnp.asarray(x, "bfloat16"), "f4")
                                for n, x in g.items()} for g in grads], optax.contrib.muon(0.02))
    ours, _ = train(weights, grads, muonium.optax.muon(0.02), "bfloat16")
    assert_beside(ours, exact, rounded, tolerance, stored, STEPS)

    def apart(found):
        return sum(float(jnp.linalg.norm(found[n].astype("f4") - exact[n])) for n in FEW)
    assert apart(ours) <= apart(theirs)


def test_dimension_numbers():
    """Batches with their axes named; None means Adam, and one entry stands for a subtree."""
    number = optax.contrib.MuonDimensionNumbers
    shapes = {"w": (6, 3, 8), "x": (10, 4, 5), "y": (5, 4, 10), "z": (6, 8)}
    numbers = {"w": number(0, 2), "x": number((0,), (1, 2)), "y": number((-3, -2), -1), "z": None}
    compare({"muon_weight_dimension_numbers": numbers}, shapes=shapes)
    compare({"muon_weight_dimension_numbers": lambda params: numbers, "consistent_rms": 0.2,
             "adaptive": True}, shapes=shapes)


def test_checkpoints_go_both_ways():
    """A state of either is one of the other: 25 steps by one and 25 by the other."""
    weights, grads = start(FEW), gradients(FEW, STEPS)
    ours, theirs = muonium.optax.muon(0.02), optax.contrib.muon(0.02)
    expected, _ = train(weights, grads, theirs)
    for first, second in ((ours, theirs), (theirs, ours)):
        params, state = train(weights, grads[:25], first)
        leaves = pickle.loads(pickle.dumps([np.asarray(x) for x in jax.tree.leaves(state)]))
        state = jax.tree.unflatten(jax.tree.structure(second.init(params)), leaves)
        found, _ = train(params, grads[25:], second, state=state)
        assert_beside(found, expected, weights, steps=STEPS)


def test_the_coefficients_are_those_of_the_state():
    transform = muonium.optax.scale_by_muon()
    x = {"w": jnp.asarray(start({"w": (6, 9)})["w"])}
    state = transform.init(x)._replace(ns_coeffs=jnp.array([2.0, -1.5, 0.5]))
    other = muonium.optax.scale_by_muon((2.0, -1.5, 0.5))
    expected, _ = other.update(x, other.init(x))
    assert np.array_equal(transform.update(x, state)[0]["w"], expected["w"])


def test_an_ensemble():
    """vmap over parameters and state."""
    transform = muonium.optax.muon(0.02)
    many = {"w": jnp.asarray(start({"w": (3, 6, 9)})["w"]), "b": jnp.ones((3, 9))}
    state = jax.vmap(transform.init)(many)
    update = jax.jit(jax.vmap(lambda g, s, p: transform.update(g, s, p)[0]))
    assert str(jax.make_jaxpr(update)(many, state, many)).count("muonium_orthogonalize[") == 1
    found = update(many, state, many)
    for i in range(3):
        one = jax.tree.map(lambda x: x[i], many)
        expected = transform.update(one, transform.init(one), one)[0]
        np.testing.assert_allclose(found["w"][i], expected["w"], rtol=1e-6)


def test_one_call_in_an_update():
    transform = muonium.optax.muon(0.02)
    params = {name: jnp.asarray(w) for name, w in start({**MATRICES, **OTHERS}).items()}
    program = jax.make_jaxpr(transform.update)(params, transform.init(params), params)
    assert str(program).count("muonium_orthogonalize[") == 1


def test_injected_hyperparameters():
    """beta and eps are then known only when the program runs."""
    for norm in ("frobenius", "aol", "spectral"):
        made = [optax.inject_hyperparams(muon, static_args=("ns_steps",))(
            learning_rate=0.02, preconditioning=norm, eps=1e-3, ns_coeffs="standard")
            for muon in (muonium.optax.muon, optax.contrib.muon)]
        weights, grads = start(FEW), gradients(FEW, 10)
        (found, _), (expected, _) = (train(weights, grads, transform) for transform in made)
        assert_beside(found, expected, weights, steps=10)


def test_nan_becomes_nan():
    """As in optax: the parameter with NaN alone is lost."""
    params = {"a": jnp.eye(4), "b": jnp.ones((4, 6))}
    transform = muonium.optax.muon(0.02)
    grads = {"a": jnp.eye(4).at[1, 2].set(jnp.nan), "b": jnp.ones((4, 6))}
    updates, _ = transform.update(grads, transform.init(params), params)
    assert jnp.isnan(updates["a"]).all() and jnp.isfinite(updates["b"]).all()


def test_bits_depend_on_no_thread_count():
    weights, grads = start({**FEW, "large": (300, 200)}), gradients({**FEW, "large": (300, 200)}, 5)
    results = []
    try:
        for threads in (1, 2, 5):
            muonium.set_threads(threads)
            found, _ = train(weights, grads, muonium.optax.muon(0.02))
            results.append([np.asarray(x).tobytes() for x in jax.tree.leaves(found)])
    finally:
        muonium.set_threads(0)
    assert results[0] == results[1] == results[2]


# ---- more than optax ----


RECIPES = ("muonium", "motif", "fp16", "fp32", "timm", "optax", "torch", "keller", "moonlight")


@pytest.mark.parametrize("recipe", sorted(set(muonium.recipes()) - set(RECIPES)))
def test_a_recipe_with_more_than_optax_has_is_refused(recipe):
    with pytest.raises(ValueError, match=f"recipe is '{recipe}', which sets .*muonium.Optimizer"):
        muonium.optax.muon(0.1, recipe=recipe)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("options", [{}, {"beta": 0.8, "weight_decay": 0.1, "ns_steps": 4}], ids=str)
def test_recipes(recipe, options):
    """The recipes are those of muonium.Optimizer, for matrices and for the vector under Adam."""
    weights, grads = start(FEW), gradients(FEW, STEPS)
    found = {name: w.copy() for name, w in weights.items()}
    optimizer = muonium.Optimizer(
        found, recipe=recipe, lr=0.02, kernels_in_out=True, patterns=[],
        **{{"beta": "momentum"}.get(name, name): value for name, value in options.items()},
        each={name: {"use_muon": w.ndim == 2} for name, w in weights.items()})
    for g in grads:
        optimizer.step(g)
    transform, _ = train(weights, grads, muonium.optax.muon(0.02, recipe=recipe, **options))
    half = recipe in ("motif", "timm", "torch", "keller", "moonlight")
    tolerance = BF16 / (1 - 0.95**2) ** 0.5 if half else F32
    assert_beside(transform, found, weights, 10 * 2.0**-11 if recipe == "fp16" else tolerance,
                  steps=STEPS)


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16", "fixed23", "fixed15"])
def test_precision(precision):
    x = jnp.asarray(start({"w": (12, 20)})["w"])
    transform = muonium.optax.scale_by_muon(precision=precision)
    found, _ = transform.update(x, transform.init(x))
    corrected = x * (0.95 * 0.05 / (1 - 0.95**2) + 1)
    expected = muonium.orthogonalize(np.asarray(corrected), coefficients="original", eps=1e-8,
                                     eps_mode="optax", precision=precision, form="quintic")
    np.testing.assert_allclose(found, expected, atol=1e-5 if precision[-1] in "23" else 0.03)
    assert precision == "f32" or not np.array_equal(
        found, muonium.optax.scale_by_muon().update(x, transform.init(x))[0])


def test_errors():
    muon, scale = muonium.optax.muon, muonium.optax.scale_by_muon
    with pytest.raises(ValueError, match="Unknown preconditioning l2: use one of frobenius"):
        muon(0.1, preconditioning="l2")
    with pytest.raises(ValueError, match="Unknown ns_coeff preset string: x; use one of standard"):
        muon(0.1, ns_coeffs="x")
    with pytest.raises(ValueError, match="steps is 65"):
        muon(0.1, ns_steps=65)
    with pytest.raises(ValueError, match="below 1e"):
        muon(0.1, ns_coeffs=(1e30, 0.0, 0.0))
    with pytest.raises(ValueError, match="Not enough coeffs to perform 2 steps"):
        muon(0.1, ns_coeffs="dion", ns_steps=2).init({"w": jnp.eye(3)})
    with pytest.raises(ValueError, match="must have shape"):
        scale((1.0, 2.0)).init({"w": jnp.eye(3)})
    with pytest.raises(ValueError, match="recipe"):
        muon(0.1, recipe="adamm")
    with pytest.raises(ValueError, match="precision is 'f31': use one of f32"):
        muon(0.1, precision="f31")
    with pytest.raises(ValueError, match="NAdamW in a form that optax lacks"):
        muon(0.1, recipe="timm", nesterov=True)
    with pytest.raises(ValueError, match="rank >= 2, got x.ndim=1.*None, and it gets Adam"):
        transform = scale()
        transform.update(jnp.ones(3), transform.init(jnp.ones(3)))
    with pytest.raises(NotImplementedError, match="optax.contrib.muon on this device"):
        transform = muon(0.1)
        state = transform.init({"w": jnp.eye(3)})
        jax.jit(transform.update).trace({"w": jnp.eye(3)}, state, {"w": jnp.eye(3)}).lower(
            lowering_platforms=("cuda",))

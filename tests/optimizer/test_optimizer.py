"""Whole trajectories of every recipe against the reference (see MUONIUM_BUILD_DIR in
muonium_library.py for the library under test), and the proof that every matrix was iterated on.

Compared are the parameters after all steps, by trajectory.distance: the largest relative RMS
difference of a tensor. Each side computes its gradients from its own parameters, so that a
difference is fed back as in training.
"""
import numpy as np
import pytest

from muonium_library import LIBRARY, OUTCOMES, call, load, store
from optimizer_runs import SEED, SPECS, Pair, gradient, newton_schulz
from reference import layouts
from reference.coefficients import choose
from reference.optimizer import direction, update_momentum
from reference.orthogonalize import orthogonalize_certified
from reference.recipes import RECIPES
from reference.trajectory import distance, initial
from reference.trajectory import gradient as trajectory_gradient

STEPS = 1000


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Matrices as small as these gain nothing from more; that threads change no bit is tested in
    test_optimizer.c."""
    call("set_threads", 1)
    yield
    call("set_threads", 0)


def lr_of(name):
    return {"lr": 0.02} if name == "optax" else {}  # it has no default


def matrices_of(pair):
    """How many each parameter stands for; 0 for AdamW."""
    return [len(p.matrix_shapes()) if p.muon else 0 for p in pair.reference.parameters]


def test_recipes_are_those_of_the_reference():
    names = [LIBRARY.muonium_recipe_name(i) for i in range(len(RECIPES) + 1)]
    assert [name and name.decode() for name in names] == [*RECIPES, None]


def test_inputs_are_those_of_the_reference():
    for dtype in ("f64", "f32", "bf16", "f16"):
        for i, spec in enumerate(SPECS):
            w = initial(SEED, i, spec)
            assert np.array_equal(gradient(SPECS, 3, i, w, dtype),
                                  trajectory_gradient(SEED, 3, i, w, dtype))


@pytest.mark.parametrize("name", RECIPES)
def test_thousand_steps_in_f32(name):
    """Parameters, state and iteration in f32, whatever precision the recipe has, against exact
    arithmetic."""
    pair = Pair(name, precision="f32", **lr_of(name))
    start = pair.weights()
    pair.run(STEPS)
    assert distance(pair.exact(), start) > 0.1  # it went somewhere
    assert distance(pair.weights(), pair.exact()) < 1e-4

    matrices = matrices_of(pair)
    assert sum(count > 0 for count in matrices) >= 8
    counters = pair.library.count()
    assert counters.steps == STEPS
    assert counters.matrices == STEPS * sum(matrices)
    assert (counters.skipped, counters.zero) == (0, 0)
    assert (counters.muon, counters.adam) == (sum(n > 0 for n in matrices),
                                              sum(n == 0 for n in matrices))
    for i, p in enumerate(pair.reference.parameters):
        report = pair.library.report(i)
        assert (report.name.decode(), report.reason.decode()) == (p.name, p.reason)
        assert (report.muon, report.matrices, report.steps) == (p.muon, matrices[i], STEPS)
        certificates = pair.library.certificates(i)
        assert len(certificates) == matrices[i]
        for certificate in certificates:
            assert OUTCOMES[certificate.outcome] == "orthogonalized"
            assert certificate.divisor > 0 and certificate.deviation > 0


@pytest.mark.parametrize("dtype, tolerance", [("bf16", 2e-2), ("f16", 5e-3)])
@pytest.mark.parametrize("name", RECIPES)
def test_twenty_steps_in_half_precision(name, dtype, tolerance):
    """Parameters, gradients and every intermediate of the iteration in the half type, momentum
    and moments in f32, against the reference that rounds in the same places. One rate for all
    recipes, so that even the most cautious moves by far more than the tolerance."""
    pair = Pair(name, dtype=dtype, emulate=True, precision=dtype, lr=0.02, adam_lr=None)
    start = pair.weights()
    pair.run(20)
    assert distance(pair.exact(), start) > 10 * tolerance
    assert distance(pair.weights(), pair.exact()) < tolerance


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_half_parameters_with_f32_iteration(dtype):
    """What users of half-precision parameters get by default: nothing but the parameters is
    rounded, so all but a few round alike. Gradients depend on the parameters: those that round
    otherwise are counted and set right after each step, so that none brings others along."""
    pair = Pair(dtype=dtype, emulate=True)
    otherwise = [0] * len(pair.data)
    for _ in range(20):
        pair.run(1)
        assert distance(pair.weights(), pair.exact()) < {"bf16": 2e-3, "f16": 3e-4}[dtype]
        for i, (found, exact) in enumerate(zip(pair.weights(), pair.exact())):
            otherwise[i] += np.count_nonzero(found != exact)
            pair.data[i][...] = store(dtype, exact)
    for count, data in zip(otherwise, pair.data):
        assert count <= max(0.02 * data.size, 1)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_master_copies(dtype):
    """With f32 copies a run follows the exact one as closely as gradients in the half type allow,
    and much more closely than without; parameters are the copies, rounded."""
    exact = Pair().run(60).exact()
    with_master = Pair(dtype=dtype, emulate=True, master=True).run(60)
    without = Pair(dtype=dtype, emulate=True).run(60)
    for found, expected in zip(with_master.weights(), with_master.exact()):
        assert np.mean(found != expected) <= max(0.03, 1 / found.size)
    assert distance(with_master.weights(), exact) < 0.5 * distance(without.weights(), exact)
    # Steps far below the spacing of the type are kept by a copy, and mostly lost without.
    moved = {}
    for master in (True, False):
        pair = Pair(dtype=dtype, emulate=True, master=master, lr=1e-4, weight_decay=0.0)
        start = pair.weights()
        pair.run(60)
        moved[master] = np.mean([np.mean(w != s) for w, s in zip(pair.weights(), start)])
    assert moved[True] > 0.2 and moved[False] < 0.5 * moved[True]


@pytest.mark.parametrize("name", ["muonium", "keller", "optax"])
def test_certificates_of_a_step_are_those_of_its_matrices(name):
    """Divisor and deviation, matrix by matrix, in two steps: each certificate belongs to the
    direction that the reference finds at its place."""
    pair = Pair(name, **{**lr_of(name), "precision": "f32"})
    momenta = [0.0] * len(SPECS)
    for t in (1, 2):
        gradients = [gradient(SPECS, t, i, load("f32", w), "f32")
                     for i, w in enumerate(pair.data)]
        pair.run(1)
        for i, p in enumerate(pair.reference.parameters):
            if not p.muon:
                continue
            o = p.options
            momenta[i] = update_momentum(momenta[i], gradients[i], o.momentum, o.momentum_form)
            d = direction(momenta[i], gradients[i], t, o.momentum, o.momentum_form, o.nesterov)
            certificates = pair.library.certificates(i)
            for certificate, matrix in zip(certificates, layouts.split(d, p.layout), strict=True):
                _, deviation = orthogonalize_certified(
                    matrix, choose(o.coefficients, o.steps), eps_mode=o.eps_mode, eps=o.eps)
                norm = np.linalg.norm(matrix)
                if o.eps_mode == "add":
                    norm += o.eps
                assert certificate.divisor == pytest.approx(norm, rel=1e-5)
                assert certificate.deviation == pytest.approx(deviation, rel=1e-2, abs=1e-5)


def test_the_iteration_of_these_tests_is_that_of_the_reference():
    pair = Pair()
    x = initial(SEED, 0, SPECS[0])
    assert np.array_equal(newton_schulz(x, pair.reference.options),
                          pair.reference.newton_schulz(x, pair.reference.options))

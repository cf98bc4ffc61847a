"""The tool that finds the sets of the direct form: derivatives, bounds, and a small search."""
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "direct"))
import fit  # noqa: E402
import programs  # noqa: E402
import remez  # noqa: E402
import rounding  # noqa: E402
import verify  # noqa: E402
from family import Family  # noqa: E402
from reference.checks import SEED, fresh_rng  # noqa: E402
from reference.coefficients import polar_express  # noqa: E402

SETS = programs.read_sets()


@pytest.fixture
def rng():
    return fresh_rng()


@pytest.mark.parametrize("pattern", ["SGS", "GHH", "DDDD", "SSGHD"])
def test_derivatives_are_those_of_differences(rng, pattern):
    family, theta = fit.random_start(fit.Problem(lower=.1, points=100), pattern, rng)
    theta = theta + .1 * rng.standard_normal(family.size)  # nothing at a special place
    r = np.linspace(0, 1, 50)
    direction = rng.standard_normal(family.size)
    step = 1e-6 * direction
    # Central differences: truncation of order step^2 and cancellation of order eps/step.
    for values, rows, f in [
            (*family.jacobian(theta, r), lambda t: family.h(t, r)),
            (*family.amplification(theta), lambda t: family.amplification(t, derivatives=False))]:
        np.testing.assert_allclose(values, f(theta), rtol=1e-12, atol=1e-12 * np.abs(values).max())
        differences = (f(theta + step) - f(theta - step)) / 2e-6
        np.testing.assert_allclose(rows.T @ direction, differences,
                                   atol=1e-6 * np.abs(differences).max())


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_a_member_of_its_family(name):
    family, theta = Family.of_program(SETS[name])
    sigma = np.geomspace(1e-3, 1, 300)
    again = family.program(theta, name)
    assert again.terms() == SETS[name].terms()
    np.testing.assert_allclose(sigma * again.h(sigma**2), sigma * SETS[name].h(sigma**2), atol=1e-9)


def test_amplification_sees_what_rounding_does():
    # Two sets with the same products; the dense one is some thirty times worse on Gaussian
    # matrices, and the penalty must know.
    sets = [SETS["P12"], SETS["S12"]]
    errors = rounding.worst_errors(sets, 1, shape=(64, 128), spectra=())
    assert errors["S12"]["Gaussian"] > 4 * errors["P12"]["Gaussian"]
    ours = [fit.norm(family.amplification(theta, derivatives=False), 4)
            for family, theta in map(Family.of_program, sets)]
    assert ours[1] > 2 * ours[0]


@pytest.mark.parametrize("name", ["P11", "five quintics"])
def test_simulated_form_is_the_polynomial_of_the_singular_values(rng, name):
    program = SETS.get(name) or programs.Quintics()
    x = rounding.matrix(None, 24, 40, rng).astype(np.float64)
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    run = rounding.direct if name in SETS else rounding.gram
    # h is up to 1e3 and its derivative in R up to 1e3 times that for the smallest s here.
    np.testing.assert_allclose(run(program, x), (u * (s * program.h(s**2))) @ vt, atol=1e-9)


@pytest.mark.parametrize("lower", [.05, .3])
def test_bound_is_that_of_the_best_quintic(lower):
    row = polar_express(1, lower=lower, cushion=0.0)[0]
    ends = abs(row[0] * lower + row[1] * lower**3 + row[2] * lower**5 - 1)
    smallest, largest = remez.best_deviation(2, lower)
    assert smallest <= ends * (1 + 1e-9) and ends <= largest * (1 + 1e-5)


@pytest.mark.parametrize("degree, deviation", [(64, .8088), (128, .6613), (512, .2239)])
def test_bounds_of_the_page(degree, deviation):
    assert abs(remez.best_deviation(degree, 1e-3)[1] - deviation) <= .00005


def test_search_from_scratch():
    # Five products on [.05, 1]: no polynomial of degree 32 is better than .0156; two quintics,
    # which are five products too, reach .218. A few random starts must find something much
    # nearer to the bound, and pruning must keep to its limit.
    print(f"MUONIUM_TEST_SEED={SEED}")
    problem = fit.Problem(lower=.05, top=1.0, points=120)
    family, theta = fit.search(problem, "SGGGG", SEED, pool=6)
    found = float(verify.measure(family.program(theta, lower=.05)).deviation)
    assert remez.best_deviation(32, .05)[0] < found < .1
    terms = family.program(theta).terms()
    smaller, fewer = fit.prune(problem, family, theta, limit=.15, tries=1)
    pruned = smaller.program(fewer, lower=.05)
    assert pruned.terms() < terms
    assert float(verify.measure(pruned).deviation) < .16  # the grid of the fit is coarse

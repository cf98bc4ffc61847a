"""The sets of the direct form hold what is said of them, in the C table and in docs/direct.md.

Measured with 50 digits and, for every sigma in between, by a bound on polynomials
(tools/direct/verify.py). Tolerances are half a unit of the last digit printed.
"""
import pathlib
import sys
from functools import lru_cache

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "direct"))
import programs  # noqa: E402
import verify  # noqa: E402

SETS = programs.read_sets()

# name: (products, terms, deviation, lowest and highest on (1, 1.01], edge, h(0),
#        largest h on [-1e-6, 0], growth at -1e-5)
SAID = {
    "five quintics": (17, 22, .1411, .859, 1.119, 1.0218, 989, 1141, 4.1),
    "P11": (11, 28, .1380, .916, 1.108, 1.0103, 1002, 1169, 4.7),
    "P11w": (11, 33, .1388, .911, 1.098, 1.0291, 1001, 1166, 4.7),
    "P12": (12, 41, .0473, .959, 1.042, 1.0109, 1265, 1717, 24.2),
    "P13": (13, 42, .0492, .977, 1.029, 1.0154, 1260, 1709, 25.9),
    "S12": (12, 168, .0095, .992, 1.008, 1.0111, 1581, 2799, 332.1),
    "P11c": (11, 31, .0947, .906, 1.094, 1.0123, 1098, 1338, 7.4),
    "P12w": (12, 41, .0470, .974, 1.046, 1.0302, 1266, 1718, 24.2),
}


@lru_cache(maxsize=None)
def measure(name):
    return verify.measure(programs.Quintics() if name == "five quintics" else SETS[name])


@pytest.fixture(params=SAID)
def measured(request):
    return measure(request.param)


def test_every_set_is_described():
    assert set(SAID) == {"five quintics", *SETS}


def test_measures(measured):
    products, terms, deviation, low, high, edge, at_zero, negative, growth = SAID[measured.name]
    assert (measured.products, measured.terms) == (products, terms)
    assert abs(measured.deviation - deviation) <= .00005
    assert abs(measured.low - low) <= .0005 and abs(measured.high - high) <= .0005
    assert abs(measured.edge - edge) <= .00005
    assert abs(measured.at_zero - at_zero) <= .5 and abs(measured.negative - negative) <= .5
    assert abs(measured.growth - growth) <= .05


def test_no_sigma_deviates_more(measured):
    # What the grid alone proves lies above what was found, but not by more than its slack.
    assert measured.deviation <= measured.deviation_bound
    assert measured.deviation_bound <= measured.deviation * verify.SLACK * (1 + 1e-6)
    # The grid is evaluated in long double or double: far more exact than the last digit.
    assert measured.float64_error <= 1e-8


def test_measuring_notices_a_wrong_digit():
    wrong = SETS["P11"].map(float)
    wrong.c[-1] *= 1 + 1e-3
    assert abs(verify.measure(wrong).deviation - SAID["P11"][2]) > .00005


def test_text_survives_reading_and_writing(tmp_path):
    path = tmp_path / "sets.txt"
    path.write_text("".join(map(programs.format_set, SETS.values())))
    assert programs.read_sets(path) == SETS
    assert path.read_text() == programs.SETS.read_text()


def test_quintics_are_the_composition_of_their_steps():
    sigma = np.linspace(0, 1, 101)
    expected = sigma
    for a, b, c in programs.QUINTICS:
        expected = a * expected + b * expected**3 + c * expected**5
    np.testing.assert_allclose(sigma * programs.Quintics().h(sigma**2), expected, rtol=1e-12)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_programs_are_what_the_definition_says(form):
    rng = np.random.default_rng(1)
    rows = [[rng.standard_normal(j + 2) for j in range(3)] for _ in "ab"]
    c = rng.standard_normal(5)
    if form == "sparse":
        for row in [*rows[0], *rows[1], c]:
            row[1:-1] = 0
    a, b = rows
    r = .7
    y = [1, r]
    for j in range(3):
        y.append(np.dot(a[j], y) * np.dot(b[j], y))
    program = programs.Program("x", *[[list(row) for row in side] for side in rows], list(c))
    assert np.isclose(program.h(r), np.dot(c, y), rtol=1e-13)
    # Sparse: each product reads one matrix, as its two factors are parallel, and so does the sum.
    assert program.terms() == (4 if form == "sparse" else 1 + 4 + 6 + 4)
    assert program.degree() == 8


def test_c_table_is_the_text():
    table = programs.read_table()
    assert [program for program, _, _ in table.values()] == list(SETS.values())


@pytest.mark.parametrize("name", SETS)
def test_c_table_promises_no_more_than_there_is(name):
    # Rounded to six and four digits behind the point, to the safe side.
    _, deviation, edge = programs.read_table()[name]
    found = measure(name)
    assert 0 <= deviation - found.deviation <= 1e-6
    assert 0 <= found.edge - edge <= 1e-4


def test_candidates_reach_the_bounds():
    # The fewest products that any polynomial needs for the band of five quintics, and for .05.
    candidates = programs.read_sets(programs.SETS.with_name("candidates.txt"))
    for name, products, terms, deviation in [("P10", 10, 48, .1254), ("Q11", 11, 47, .0491),
                                             ("P9", 9, 33, .0108)]:
        found = verify.measure(candidates[name])
        assert (found.products, found.terms) == (products, terms)
        assert abs(found.deviation - deviation) <= .00005


def test_page_has_the_figures():
    # Each row of the table in docs/direct.md begins with the set and its counts.
    page = (programs.ROOT / "docs" / "direct.md").read_text("utf-8")
    for name, (products, terms, deviation, *_) in SAID.items():
        assert f"| {name} | {products} | {terms} | {deviation:.4f} |".replace(" 0.", " .") in page

"""Tests of the reference itself: tables, rounding, orthogonalisation, layouts, routing.

Expected values are published, written out by hand, or computed by another route
(singular value decomposition), never by the code under test.
"""
import numpy as np
import pytest

from reference import layouts
from reference.checks import LAYOUTS, by_svd, fresh_rng, relative, with_singular_values
from reference.coefficients import (Generated, PRESETS, apply_table, choose, polar_cubic,
                                    polar_express, polynomial)
from reference.optimizer import Optimizer
from reference.orthogonalize import divisor, orthogonalize, orthogonalize_certified
from reference.recipes import Options, matching_pattern, recipe, route, scale
from reference.rounding import bf16_bits, bf16_values, round_to

EPS = np.finfo(np.float64).eps


@pytest.fixture
def rng():
    return fresh_rng()


# ---- coefficients ----------------------------------------------------------

TEN_STEPS = [
    (8.2373124904955546, -23.157747414558191, 16.680568411445908),
    (4.0824419990648337, -2.8930477353325856, 0.52528492569756446),
    (3.926347992254652, -2.8547468034765262, 0.53180224228949824),
    (3.2982187133085161, -2.4245419810267084, 0.48632008358844114),
    (2.2970369434552582, -1.6366255812590318, 0.40026284559536307),
    (1.8763805351440404, -1.2347896577722244, 0.35891887501668474),
    (1.8564423485604249, -1.21324498809086, 0.35680034878126737),
    (1.8564356435863227, -1.2132376849334816, 0.35679963285487626),
    (1.8564356435704306, -1.2132376849161717, 0.35679963285317939),
    (1.8750000000061269, -1.2500000000068077, 0.37500000000068079),
]


def test_generator_gives_the_known_table():
    np.testing.assert_allclose(polar_express(10), TEN_STEPS, rtol=4 * EPS)


def test_generator_agrees_with_the_published_five_steps():
    np.testing.assert_allclose(polar_express(5, safety=2e-2), PRESETS["polar_express_5"],
                               rtol=1e-13)


def test_generated_quintic_equioscillates():
    # A single step without cushion: 1 is missed by the same amount, with alternating sign.
    row = polar_express(1, lower=0.1, cushion=0.0)[0]
    y = polynomial(row, np.linspace(0.1, 1, 200001)) - 1
    error = abs(y[0])
    assert np.isclose(y[0], -error) and np.isclose(y[-1], error)
    assert np.isclose(y.max(), error, rtol=1e-8) and np.isclose(y.min(), -error, rtol=1e-8)


def test_generated_cubic_equioscillates():
    row = polar_cubic(1, lower=0.1)[0]
    y = polynomial(row, np.linspace(0.1, 1, 200001)) - 1
    assert row[2] == 0
    assert np.isclose(y[0], y[-1]) and np.isclose(y.max(), -y[0], rtol=1e-8)
    assert np.isclose(y.min(), y[0], rtol=1e-8)


def test_generator_limit_of_a_point_interval():
    np.testing.assert_allclose(polar_express(1, lower=1.0)[0], (15 / 8, -10 / 8, 3 / 8),
                               rtol=EPS)
    np.testing.assert_allclose(polar_express(12, safety=0.0)[-1], (15 / 8, -10 / 8, 3 / 8),
                               rtol=1e-12)
    assert np.all(np.isfinite(polar_express(64)))


@pytest.mark.parametrize("arguments, word", [
    (dict(steps=0), "steps"), (dict(steps=65), "steps"), (dict(steps=5, lower=-1e-9), "lower"),
    (dict(steps=5, lower=1.1), "lower"), (dict(steps=5, lower=0.0, cushion=0.0), "lower"),
    (dict(steps=5, safety=-0.1), "safety"), (dict(steps=5, safety=float("nan")), "safety"),
    (dict(steps=5, cushion=1.0), "cushion"), (dict(steps=5, cushion=-0.1), "cushion"),
])
def test_generator_refuses_by_name(arguments, word):
    with pytest.raises(ValueError, match=word):
        polar_express(**arguments)


@pytest.mark.parametrize("name, low, high, edge", [
    ("original", 0.471, 1.202, 1.264), ("quintic", 0.475, 1.145, 1.325),
    ("polar_express_5", 0.859, 1.141, 1.022), ("cans", 0.884, 1.120, 1.0000078),
    ("cubic", 0.119, 1.300, None),
])
def test_bands_of_five_steps(name, low, high, edge):
    table = choose(name, 5)
    y = apply_table(table, np.concatenate([np.logspace(-3, 0, 100001),
                                           np.linspace(1e-3, 1, 100001)]))
    assert round(y.min(), 3) == low and round(y.max(), 3) == high
    if edge is not None:
        span = (edge - 1) * 1.5
        x = 1 + span * np.arange(1, 100001) / 100000
        with np.errstate(over="ignore", invalid="ignore"):
            first = x[np.argmax(np.abs(apply_table(table, x)) >= 2)]
        assert abs(first - edge) < 6e-4 * (1 if edge > 1.001 else 1e-3)


@pytest.mark.parametrize("name, checksum", [
    ("original", -0.011),
    ("quintic", 22.1991),
    ("polar_express", 107.004690939851),
    ("polar_express_safer", 106.551211740869),
    ("polar_express_5", 50.868507886642),
    ("cans", 52.5992),
    ("aol", 18.7392),
    ("cubic", 31.603895),
])
def test_presets_are_as_published(name, checksum):
    """Every number weighted by its place, so that a typing error or an exchange shows."""
    values = np.concatenate(PRESETS[name])
    assert np.isclose(np.sum(values * np.arange(1, len(values) + 1)), checksum, rtol=0, atol=1e-11)


def test_choice_of_a_table():
    assert choose("original", 3) == [(3.4445, -4.7750, 2.0315)] * 3
    assert choose("aol", 6) == PRESETS["aol"] + [PRESETS["aol"][-1]] * 2
    assert choose((1, 2, 3), 2) == [(1, 2, 3)] * 2
    assert choose([(1, 2, 3), (4, 5, 6)], 3) == [(1, 2, 3), (4, 5, 6), (4, 5, 6)]
    np.testing.assert_allclose(choose(Generated(rows=10), 5), TEN_STEPS[:5], rtol=4 * EPS)
    np.testing.assert_allclose(choose(Generated(rows=10), 12)[9:], [TEN_STEPS[-1]] * 3,
                               rtol=4 * EPS)
    for bad in ("unknown", [], [(1, 2)], (1.0, float("inf"), 2.0)):
        with pytest.raises(ValueError, match="coefficients"):
            choose(bad, 5)
    with pytest.raises(ValueError, match="original.*cubic"):
        choose("unknown", 5)


# ---- rounding --------------------------------------------------------------

def test_bf16_round_trip_of_every_pattern():
    bits = np.arange(65536, dtype=np.uint16)
    finite = (bits & 0x7F80) != 0x7F80
    assert np.array_equal(bf16_bits(bf16_values(bits[finite])), bits[finite])
    infinity = bits[(bits & 0x7FFF) == 0x7F80]
    assert np.array_equal(bf16_bits(bf16_values(infinity)), infinity)
    assert np.isnan(bf16_values(bf16_bits([np.nan, -np.nan]))).all()


def test_bf16_rounds_to_nearest_even():
    lower = np.arange(0x0000, 0x7F7F, dtype=np.uint16)  # neighbours lower, lower + 1
    a, b = bf16_values(lower), bf16_values(lower + 1)
    middle = (a + b) / 2
    even = np.where(lower % 2 == 0, a, b)
    assert np.array_equal(round_to("bf16", middle), even)
    # One f32 step to either side of the middle goes to that side (denormals are left out:
    # half of the smallest has no room below it).
    below = np.nextafter(middle.astype(np.float32), np.float32(0))
    above = np.nextafter(middle.astype(np.float32), np.float32(np.inf))
    assert np.array_equal(round_to("bf16", below), a)
    assert np.array_equal(round_to("bf16", above), b)
    assert round_to("bf16", 3.4e38) == np.inf and round_to("bf16", -3.4e38) == -np.inf


def test_other_types():
    assert round_to("f16", 1 + 2**-11) == 1 and round_to("f16", 1 + 3 * 2**-11) == 1 + 2**-9
    assert round_to("f16", 65520) == np.inf and round_to("f16", 65519) == 65504
    assert round_to("f16", 2.0**-25) == 0 and round_to("f16", 1.5 * 2.0**-25) == 2.0**-24
    assert round_to("f32", 1 + 2.0**-24) == 1 and round_to("f64", 1 + 2.0**-52) == 1 + 2.0**-52
    assert round_to("bf16", 1.0).shape == ()
    with pytest.raises(ValueError, match="dtype"):
        round_to("f8", 1.0)


# ---- orthogonalisation -----------------------------------------------------

REFERENCE_VALUES = [
    ([[.2450, .1280, .0010, .4861], [.3499, .2341, .3737, .9310], [.9632, .9400, .5003, .1285],
      [.3585, .4744, .7334, .6123]],
     [[-.0493, .3418, -.5932, .5596], [.3052, -.4529, .1063, .7101],
      [.6898, .5104, .0184, -.3814], [-.4041, .2930, .7062, .2322]]),
    ([[.83079288, .13086341], [.34745056, .05995961], [.02953721, .58638872],
      [.06437917, .68301915]],
     [[.8826, .1575], [.3692, .0714], [.0445, .6226], [.0836, .7259]]),
    ([[.2499, .9105], [.2655, .8824]], [[-.4419, .6456], [.7282, .2970]]),
]


@pytest.mark.parametrize("matrix, expected", REFERENCE_VALUES)
def test_published_results(matrix, expected):
    result = orthogonalize(matrix, choose("original", 5), eps_mode="add", eps=1e-7)
    np.testing.assert_allclose(result, expected, atol=5.01e-5)


SHAPES = [(1, 1), (1, 7), (7, 1), (5, 5), (4, 9), (9, 4), (24, 40)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["original", "polar_express_5", "cubic"])
def test_iteration_is_the_polynomial_of_the_singular_values(rng, shape, name):
    x, table = rng.standard_normal(shape), choose(name, 5)
    s = np.linalg.svd(x, compute_uv=False)
    bounds = {"frobenius": np.sqrt(np.sum(s**2)), "schatten": np.sum(s**4) ** 0.25,
              "spectral": s[0], "none": 1.0}
    for normalization, bound in bounds.items():
        scaled = x / s[0] if normalization == "none" else x
        bound = 1.0 if normalization == "none" else bound * 1.05
        result = orthogonalize(scaled, table, normalization=normalization, safety_factor=1.05)
        np.testing.assert_allclose(result, by_svd(scaled, table, bound), atol=1e-9)


@pytest.mark.parametrize("normalization", ["frobenius", "schatten", "aol", "spectral"])
@pytest.mark.parametrize("precision", ["f64", "f32", "bf16", "f16"])
def test_invariance_under_transposition_and_powers_of_two(rng, normalization, precision):
    options = dict(normalization=normalization, precision=precision)
    x, table = rng.standard_normal((6, 10)), choose(Generated(safety=2e-2), 5)
    base = orthogonalize(x, table, **options)
    assert np.array_equal(orthogonalize(x.T, table, **options), base.T)
    for exponent in (-149, -30, 1, 100):
        assert np.array_equal(orthogonalize(np.ldexp(x, exponent), table, **options), base)
    assert np.array_equal(orthogonalize(-x, table, **options), -base)


def test_equivariance_and_scale(rng):
    x, table = rng.standard_normal((6, 10)), choose("polar_express_5", 5)
    q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    r = np.linalg.qr(rng.standard_normal((10, 10)))[0]
    base = orthogonalize(x, table)
    np.testing.assert_allclose(orthogonalize(q @ x @ r, table), q @ base @ r, atol=1e-12)
    for factor in (1e-30, 3.7, 1e30):
        np.testing.assert_allclose(orthogonalize(factor * x, table), base, atol=1e-13)


def test_aol_bounds_the_singular_values_and_divides_rows():
    x = np.array([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    np.testing.assert_allclose(divisor(x, "aol", "none", 0, 1.0), [[3.0], [4.0]])
    x = np.array([[1.0, 1.0], [1.0, 0.0]])  # Gram matrix [[2, 1], [1, 1]]
    d = divisor(x, "aol", "none", 0, 1.0)
    np.testing.assert_allclose(d, np.sqrt([[3.0], [2.0]]))
    assert np.linalg.norm(x / d, 2) <= 1
    x = np.array([[1.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    result = orthogonalize(x, choose("aol", 4), normalization="aol")
    np.testing.assert_allclose(result, [x[0] / 3 * apply_table(choose("aol", 4), 1.0), [0] * 3],
                               atol=1e-14)


def test_eps_modes():
    x, table = np.array([[3e-8, 0.0], [0.0, 4e-8]]), [(1.0, 0.0, 0.0)]  # norm 5e-8
    for mode, bound in (("clamp", 1e-7), ("add", 2e-7)):
        result = orthogonalize(x, table, eps_mode=mode, eps=1e-7, safety_factor=2.0)
        np.testing.assert_allclose(result, x / bound, rtol=1e-14)
    np.testing.assert_allclose(orthogonalize(x, table), x / 5e-8, rtol=1e-14)
    np.testing.assert_allclose(orthogonalize(x * 1e8, table, eps_mode="clamp"), x / 5e-8,
                               rtol=1e-14)


def test_zero_and_certificate(rng):
    table = choose("polar_express", 8)
    result, deviation = orthogonalize_certified(np.zeros((3, 5)), table)
    assert deviation is None and not result.any()
    x = rng.standard_normal((3, 5))
    _, deviation = orthogonalize_certified(x, table)
    before = by_svd(x, table[:-1])
    assert np.isclose(deviation, np.linalg.norm(np.eye(3) - before @ before.T))
    with pytest.raises(ValueError, match="two dimensions"):
        orthogonalize(np.zeros(3), table)


@pytest.mark.parametrize("shape", [(32, 64), (64, 32), (48, 48)])
def test_precisions_stay_close_to_double(rng, shape):
    x = with_singular_values(rng, *shape, np.linspace(0.3, 1, min(shape)))
    # Polar Express amplifies the rounding of b A + c A A about three times as much as quintic:
    # in bf16, whose unit is 2^-9, it ends 2.0e-2 to 2.8e-2 from the exact result.
    for coefficients, half in (("quintic", 2e-2), (Generated(safety=2e-2), 16 * 2.0**-9)):
        table = choose(coefficients, 5)
        exact = orthogonalize(x, table)
        for precision, tolerance in (("f32", 1e-5), ("f16", 5e-3), ("bf16", half)):
            result = orthogonalize(x, table, precision=precision)
            assert 0 < relative(result, exact) < tolerance
            assert np.array_equal(round_to(precision, result), result)


@pytest.mark.parametrize("precision, unit", [("f16", 2.0**-10), ("bf16", 2.0**-7)])
def test_what_the_half_modes_round(precision, unit):
    """One step on a 1 x 1 matrix: each stored value is the nearest multiple of its spacing."""
    def stored(x):
        spacing = unit * 2.0 ** np.floor(np.log2(abs(x)))
        return np.round(x / spacing) * spacing

    a, b, c = 3.4445, -4.775, 2.0315
    for x in np.linspace(0.3, 0.95, 200):
        x0 = stored(x)
        gram = stored(x0 * x0)
        weight = stored(b * gram + c * stored(gram * gram))
        result = orthogonalize([[x]], [(a, b, c)], normalization="none", precision=precision)
        assert result[0, 0] == stored(a * x0 + weight * x0)


HARD = {
    "decaying": lambda n: 2.0 ** -np.arange(n), "zero_or_two": lambda n: 2.0 * (np.arange(n) % 2),
    "linspace": lambda n: np.linspace(0, 0.5, n), "log3": lambda n: np.logspace(0, -3, n),
    "log9": lambda n: np.logspace(0, -9, n), "rank_one": lambda n: np.eye(n)[0],
    "two_large": lambda n: np.where(np.arange(n) < 2, 1.0, 1e-6),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("normalization", ["frobenius", "schatten", "spectral"])
def test_hard_spectra_stay_in_the_band(rng, name, normalization):
    x = with_singular_values(rng, 16, 24, HARD[name](16))
    table = choose(Generated(safety=2e-2), 5)
    s = np.linalg.svd(orthogonalize(x, table, normalization=normalization), compute_uv=False)
    assert s.max() < 1.15
    if name in ("linspace", "log3"):  # all but the values below 1e-3 of the norm reach the band
        assert np.sum(s > 0.85) >= 9


# ---- layouts ---------------------------------------------------------------

@pytest.mark.parametrize("shape, layout, expected", LAYOUTS)
def test_layout_round_trip(rng, shape, layout, expected):
    x = rng.standard_normal(shape)
    matrices = layouts.split(x, layout)
    assert [m.shape for m in matrices] == expected == layouts.matrix_shapes(shape, layout)
    assert np.array_equal(layouts.join(matrices, shape, layout), x)


def test_layout_elements():
    x = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    assert np.array_equal(layouts.split(x, layouts.spatial())[1], x[:, :, 1])
    assert np.array_equal(layouts.split(x, layouts.experts())[1], x[1])
    assert np.array_equal(layouts.split(x, layouts.flatten(3))[0], x.reshape(2, 12))
    fans = layouts.split(x, layouts.fan(out_axes=(2,), in_axes=(0,)))
    assert np.array_equal(fans[2], x[:, 2, :].T)
    both = layouts.split(x, layouts.fan(out_axes=(2, 0), in_axes=(1,)))[0]
    assert both[3 * 2 + 1, 2] == x[1, 2, 3]
    assert np.array_equal(layouts.split(x[0], layouts.row_blocks(sizes=(1, 2)))[1], x[0, 1:])


@pytest.mark.parametrize("make", [
    lambda: layouts.matrix_shapes((12, 5), layouts.row_blocks(sizes=(6, 5))),
    lambda: layouts.matrix_shapes((12, 5), layouts.row_blocks(sizes=(12, 0))),
    lambda: layouts.matrix_shapes((12, 5), layouts.row_blocks(heads=5)),
    lambda: layouts.matrix_shapes((12, 5), layouts.fan((0,), (0,))),
    lambda: layouts.matrix_shapes((12, 5), layouts.fan((0,), (2,))),
    lambda: layouts.matrix_shapes((12, 5), layouts.fan((0, 1), ())),
    lambda: layouts.row_blocks(),
])
def test_layout_refuses(make):
    with pytest.raises(ValueError):
        make()


# ---- scale and routing -----------------------------------------------------

@pytest.mark.parametrize("out, columns, expected", [
    (64, 16, dict(original=2.0, match_rms_adamw=1.6, rms_to_rms=2.0, none=1.0)),
    (16, 64, dict(original=1.0, match_rms_adamw=1.6, rms_to_rms=0.5, none=1.0)),
    (25, 25, dict(original=1.0, match_rms_adamw=1.0, rms_to_rms=1.0, none=1.0)),
])
def test_scale(out, columns, expected):
    for name, value in expected.items():
        assert np.isclose(scale(name, out, columns), value, rtol=4 * EPS)
    with pytest.raises(ValueError, match="scale"):
        scale("other", out, columns)


@pytest.mark.parametrize("shape, reason", [
    ((64, 128), "ok"), ((96, 3, 4, 4), "ok"), ((4, 2048), "extreme_aspect_ratio:512.0"),
    ((64,), "insufficient_dims"), ((), "insufficient_dims"), ((1, 64), "insufficient_dims"),
    ((64, 1), "insufficient_dims"), ((1, 196, 768), "leading_unit_dims"),
    ((32, 1, 3, 3), "leading_unit_dims"), ((3, 64), "min_dim_too_small:3"),
    ((64, 2), "min_dim_too_small:2"), ((8, 1024), "ok"), ((8, 1025), "extreme_aspect_ratio:128.1"),
    ((2, 64, 64), "min_dim_too_small:2"), ((4, 4), "ok"),
])
def test_routing_by_shape(shape, reason):
    assert route("h.0.w", shape, Options()) == (reason == "ok", reason)


def test_routing_order():
    options = Options()
    assert route("w", (3,), options, use_muon=False) == (False, "use_muon_flag")
    assert route("wte", (64, 64), options, use_muon=True) == (True, "use_muon_flag")
    assert route("w", (64, 64), options, use_muon=True, use_fallback=True) == (
        False, "use_fallback_flag")
    with pytest.raises(ValueError, match="use_muon"):
        route("w", (64,), options, use_muon=True)
    for name in ("tok_embeddings.weight", "lm_head.weight", "h.3.ln_1.weight", "Model/WTE",
                 "blocks.1.norm2.weight", "fc.bias", "moe.router.weight", "attn.gain"):
        assert route(name, (64, 64), options)[1].startswith("name_pattern:"), name
    for name in ("h.0.mlp.w", "attn.heads.weight", "gate_proj.weight", "", None):
        assert route(name, (64, 64), options) == (True, "ok"), name
    assert matching_pattern("a.b", [("b", "part")]) == "b"
    assert route("mlp.gate.weight", (8, 64), options) == (False, "name_pattern:gate")
    assert route("output.weight", (64, 64), options) == (False, "name_pattern:output")
    assert route("h.0.output.weight", (64, 64), options) == (True, "ok")
    assert route("wte", (64, 64), recipe(patterns=())) == (True, "ok")


def test_routing_with_layouts_and_recipes():
    experts = layouts.experts()
    assert route("w", (2, 64, 64), Options(), experts) == (True, "ok")
    assert route("w", (1, 64, 64), Options(), experts) == (True, "ok")
    assert route("w", (8, 64, 3), Options(), experts)[1] == "min_dim_too_small:3"
    assert route("w", (96, 3, 4, 4), Options(), layouts.spatial()) == (True, "ok")
    assert route("w", (64, 32), Options(), layouts.row_blocks(heads=32))[1] == (
        "min_dim_too_small:2")
    assert route("w", (2, 64, 64), recipe("motif")) == (True, "ok")
    assert route("w", (16, 8, 3, 3), recipe("torch")) == (False, "not_2d")
    assert route("w", (16, 8, 3, 3), recipe("torch"), layouts.flatten(4)) == (True, "ok")
    assert route("w", (16, 8), recipe("optax", lr=0.1)) == (True, "ok")
    assert route("lm_head", (2, 4096), recipe("torch")) == (True, "ok")
    assert route("lm_head", (64, 64), recipe("timm")) == (True, "ok")
    assert route("lm_head", (64, 64), recipe("moonlight")) == (False, "name_pattern:*lm_head*")
    assert route("mlp.experts.w1", (2, 64, 64), Options()) == (True, "ok")


def test_routing_summary():
    opt = Optimizer(recipe())
    for i in range(12):
        opt.add(f"b{i}", np.zeros(3 + i))
    opt.add("w", np.zeros((8, 8)))
    line, shapes, counts = opt.routing_summary()
    assert line == "1 Muon, 12 AdamW" and counts == {"insufficient_dims": 12, "ok": 1}
    assert len(shapes["insufficient_dims"]) == 10 and shapes["ok"] == [(8, 8)]

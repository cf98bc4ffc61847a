"""Every option of the optimizer against the reference: short runs on all layouts (the library is
found as muonium_library.py says, by MUONIUM_BUILD_DIR).

A run with an option must follow the reference, and the reference must move away from the run
without it, or the option was not tested.
"""
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "direct"))

import programs
from muonium_library import ENUMS, MuoniumError, Optimizer, load, make_options, store
from optimizer_runs import SEED, SPECS, Pair
from reference import layouts
from reference.coefficients import PRESETS, Generated, choose
from reference.optimizer import adam_moments, adam_step
from reference.orthogonalize import orthogonalize
from reference.trajectory import Spec, distance, initial, unit

STEPS = 6
TOLERANCE = 5e-6  # rounding in f32, amplified by the slopes of the polynomials
VISIBLE = 20 * TOLERANCE
MUON_SPECS = tuple(spec for spec in SPECS if len(spec.shape) > 1 and spec.name != "ln_1.weight")


DIRECT_SETS = {p.name: p for p in programs.read_sets().values() if p.lower == 1e-3}


@lru_cache(maxsize=None)
def default_run():
    return Pair().run(STEPS).exact()


def check(tolerance=TOLERANCE, baseline=None, **fields):
    pair = Pair(**fields).run(STEPS)
    assert distance(pair.weights(), pair.exact()) < tolerance
    if baseline is None:
        baseline = default_run()
    assert distance(pair.exact(), baseline) > VISIBLE
    return pair


# ---- Muon ---------------------------------------------------------------------

@pytest.mark.parametrize("nesterov", ["off", "auto", "lerp", "sum"])
@pytest.mark.parametrize("form", ["lerp", "sum", "ema_corrected"])
def test_momentum(form, nesterov):
    """mu is small enough for every form to show in a few steps."""
    baseline = default_run()
    check(baseline=baseline, momentum=0.75, momentum_form=form, nesterov=nesterov != "off",
          nesterov_form="auto" if nesterov == "off" else nesterov)


def test_forms_of_momentum_differ():
    """Else the test before could not tell them apart. Orthogonalising hides a common factor, so
    some pairs are the same by right: lerp and sum with their own nesterov, and the corrected
    average without nesterov."""
    runs = {}
    for form in ("lerp", "sum", "ema_corrected"):
        for nesterov in (None, "auto", "lerp", "sum"):
            pair = Pair(momentum=0.75, momentum_form=form, nesterov=nesterov is not None,
                        nesterov_form=nesterov or "auto", specs=SPECS[:1])
            runs[form, nesterov] = pair.run(STEPS).exact()
    same = [{("lerp", None), ("sum", None), ("ema_corrected", None)},
            {("lerp", "auto"), ("lerp", "lerp"), ("sum", "auto"), ("sum", "sum")}]
    keys = list(runs)
    for i, a in enumerate(keys):
        for b in keys[:i]:
            alike = distance(runs[a], runs[b]) < TOLERANCE
            assert alike == any({a, b} <= group for group in same), (a, b)


def test_zero_momentum():
    check(momentum=0.0)


@pytest.mark.parametrize("form", ["lerp", "sum", "ema_corrected"])
def test_momentum_kept_in_bf16(form):
    """Against the reference that rounds momentum in the same place. Where the two round a value
    near a tie apart, one unit of bf16 in an element of the momentum remains."""
    fields = dict(momentum=0.75, momentum_form=form, specs=MUON_SPECS)
    pair = Pair(emulate=True, state_dtype="bf16", **fields).run(STEPS)
    effect = distance(pair.exact(), Pair(**fields).run(STEPS).exact())
    assert effect > VISIBLE
    assert distance(pair.weights(), pair.exact()) < 0.1 * effect


# Several blocks with one scale each: of one matrix, with matrices that end with a block, with
# matrices that cut blocks, and with matrices whose rows are not consecutive.
BLOCK_SPECS = (
    Spec("one", (40, 110)),
    Spec("tall", (110, 40)),
    Spec("whole", (64, 64), layouts.row_blocks(heads=2)),
    Spec("cut", (90, 50), layouts.row_blocks(sizes=(40, 30, 20))),
    Spec("experts", (3, 30, 40), layouts.experts()),
    Spec("spatial", (30, 20, 2, 2), layouts.spatial()),
    Spec("fan", (20, 10, 12), layouts.fan(out_axes=(2,), in_axes=(0, 1))),
)


def check_int8(effect_of, steps=STEPS, **fields):
    """The library and the reference round in the same places, but for elements near a tie. That is
    a small part of what int8 changes."""
    pair = Pair(emulate=True, **fields).run(steps)
    wide = Pair(**{name: value for name, value in fields.items() if name not in effect_of})
    effect = distance(pair.exact(), wide.run(steps).exact())
    assert effect > VISIBLE
    assert distance(pair.weights(), pair.exact()) < 0.1 * effect


@pytest.mark.parametrize("form", ["lerp", "sum", "ema_corrected"])
def test_momentum_kept_in_int8(form):
    check_int8({"state_dtype"}, momentum=0.75, momentum_form=form, specs=BLOCK_SPECS,
               state_dtype="int8")


@pytest.mark.parametrize("recipe", ["nanochat", "dion2", "nordion2", "adamuon", "muonh", "optax"])
def test_recipes_with_int8_momentum(recipe):
    """In f32, since roundings of bf16 products depend on the order of their sums."""
    fields = dict(precision="f32", **(dict(lr=0.02) if recipe == "optax" else {}))
    check_int8({"state_dtype"}, recipe_name=recipe, specs=BLOCK_SPECS[:4], state_dtype="int8",
               **fields)


def test_first_moment_kept_in_int8():
    check_int8({"adam_state_dtype"}, specs=(Spec("vector", (5000,)), Spec("ln_1.weight", (9, 9))),
               adam_state_dtype="int8")


def test_moments_of_adam_are_f32_in_any_case():
    fields = dict(specs=tuple(spec for spec in SPECS if spec not in MUON_SPECS))
    pair, wide = Pair(state_dtype="bf16", **fields).run(STEPS), Pair(**fields).run(STEPS)
    assert all(map(np.array_equal, pair.data, wide.data))


@pytest.mark.parametrize("scale", ["original", "rms_to_rms", "none"])
def test_scale(scale):
    check(scale=scale)


def test_scale_factor():
    check(scale_factor=0.25)
    check(scale_factor=0.0)


@pytest.mark.parametrize("decay", ["decoupled", "cautious", "independent"])
def test_decay(decay):
    other = {"decoupled": "cautious", "cautious": "independent", "independent": "decoupled",
             "cautious_scaled": "cautious"}
    # AdamW decays alike in all; leave it out, so that the difference is Muon's.
    fields = dict(weight_decay=0.3, lr=0.1, specs=SPECS[:6])
    baseline = Pair(decay=other[decay], **fields).run(STEPS).exact()
    check(decay=decay, baseline=baseline, **fields)


@pytest.mark.parametrize("decay", ["cautious", "cautious_scaled"])
def test_cautious_decay_of_rows_that_get_nothing(decay):
    """Where O is exactly 0, `cautious` leaves W alone and `cautious_scaled` shrinks it."""
    w = store("f32", np.ones((8, 16)))
    g = store("f32", unit(SEED, 1, 0, (8, 16)))
    g[2] = 0
    opt = Optimizer(make_options(decay=decay, weight_decay=0.5, scale="none", lr=0.1))
    opt.add("w", w, grad=g)
    opt.step()
    np.testing.assert_allclose(w[2], 0.95 if decay == "cautious_scaled" else 1, rtol=1e-6)


def test_spatial_normalization():
    check(normalize_spatial=False)


@pytest.mark.parametrize("fields", [{}, dict(nesterov=False, momentum_form="sum"),
                                    dict(normuon=True), dict(maximize=True)], ids=str)
def test_adaptive(fields):
    """Steps by the dual norm of the direction, of parameters that are one matrix."""
    specs = tuple(spec for spec in SPECS if spec.name in ("wide", "tall", "conv", "fan"))
    fields = dict(lr=1e-3, specs=specs, **fields)
    check(adaptive=True, tolerance=2 * TOLERANCE, baseline=Pair(**fields).run(STEPS).exact(), **fields)


@pytest.mark.parametrize("fields", [{}, dict(normuon_beta2=0.5), dict(normuon_eps=0.1),
                                    dict(normuon_beta2=0.0, normuon_eps=0.0)])
def test_normuon(fields):
    check(normuon=True, tolerance=2 * TOLERANCE, **fields)


@pytest.mark.parametrize("fields", [
    dict(normuon=True, normuon_axis="columns"), dict(normuon=True, normuon_axis="shape"),
    dict(normuon=True, normuon_form="clamp", normuon_eps=1e-3),
    dict(equilibrate=True), dict(equilibrate=True, equilibrate_eps=0.25),
    dict(renormalize=True), dict(renormalize=True, renormalize_eps=3.0),
    dict(fraction=0.5, momentum_form="sum", nesterov=False),
    dict(fraction=1 / 3, selection="rows", ef_decay=0.5, momentum_form="sum", nesterov=False),
    dict(adamuon=True), dict(adamuon=True, adamuon_beta2=0.5, adamuon_eps=0.1),
    dict(adamuon=True, scale="rms_to_rms"), dict(adamuon=True, scale="rsqrt_in", lr=1.0),
    dict(hyperball=True, weight_decay=0.0),
    dict(hyperball=True, weight_decay=0.0, scale_factor=0.5, normalize_spatial=False),
], ids=str)
def test_newer_rules(fields):
    """Each alone: recipes have them together. Sums of squares of whole rows are behind some."""
    check(tolerance=4 * TOLERANCE, **fields)


def test_normuon_of_zero_rows():
    """A row without gradient: 0 / 0 is 0, and all rows alike keep their share of the norm."""
    for zero_rows in (slice(2, 5), slice(None)):
        w = store("f32", unit(SEED, 0, 0, (8, 12)))
        g = store("f32", unit(SEED, 1, 0, (8, 12)))
        g[zero_rows] = 0
        before = w.copy()
        opt = Optimizer(make_options(normuon=True, normuon_eps=0.0, weight_decay=0.0))
        opt.add("w", w, grad=g)
        for _ in range(3):
            opt.step()
        assert np.array_equal(w[zero_rows], before[zero_rows])
        assert np.all(np.isfinite(w))
        assert opt.count().zero == (3 if zero_rows == slice(None) else 0)


# ---- orthogonalisation ------------------------------------------------------------

@pytest.mark.parametrize("coefficients", [
    *(name for name in PRESETS if name not in ("aol", "polar_express_5")), (2.0, -1.5, 0.5),
    ((3.0, -3.2, 1.1), (2.0, -1.5, 0.5)), Generated(lower=1e-2, safety=5e-2, cushion=0.1),
    Generated(rows=10)])
def test_coefficients(coefficients):
    check(coefficients=coefficients, tolerance=2 * TOLERANCE)


def test_the_default_table_is_polar_express_5():
    pair = Pair(coefficients="polar_express_5").run(STEPS)
    assert distance(pair.weights(), default_run()) < TOLERANCE


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_steps(steps):
    check(steps=steps, tolerance=2 * TOLERANCE)


@pytest.mark.parametrize("normalization, eps_mode, eps, safety_factor", [
    ("frobenius", "clamp", 1.0, 1.0), ("frobenius", "add", 0.1, 1.0),
    ("frobenius", "none", 0.0, 1.3), ("frobenius", "add", 0.1, 1.3),
    ("schatten", "none", 0.0, 1.0), ("schatten", "clamp", 0.2, 1.0),
    ("schatten", "add", 0.1, 1.2), ("aol", "none", 0.0, 1.0), ("aol", "add", 0.05, 1.1)])
def test_normalization(normalization, eps_mode, eps, safety_factor):
    check(normalization=normalization, eps_mode=eps_mode, eps=eps, safety_factor=safety_factor,
          tolerance=2 * TOLERANCE)


def test_spectral_normalization():
    """The library divides by an upper bound of the largest singular value, the reference by the
    value itself, a fraction of a percent less."""
    check(normalization="spectral", tolerance=3e-3)


def test_aol_coefficients_with_aol_normalization():
    check(coefficients="aol", normalization="aol", steps=4, tolerance=2 * TOLERANCE)
    with pytest.raises(MuoniumError, match="aol"):
        Optimizer(make_options(coefficients="aol"))


def test_no_normalization():
    """The caller promises singular values of at most 1."""
    g = store("f32", 0.1 * unit(SEED, 1, 0, (8, 12)))
    w = store("f32", np.zeros((8, 12)))
    opt = Optimizer(make_options(normalization="none", momentum=0.0, scale="none", lr=1.0))
    opt.add("w", w, grad=g)
    opt.step()
    o = orthogonalize(load("f32", g), choose(Generated(safety=2e-2), 5), normalization="none")
    assert np.linalg.norm(w + o) < 1e-5 * np.linalg.norm(o)
    assert opt.certificates(0)[0].divisor == 1


@pytest.mark.parametrize("fields", [dict(form="standard"), dict(form="gram"),
                                    dict(precision="f64"), dict(scratch_bytes=1)])
def test_ways_to_the_same_result(fields):
    pair = Pair()
    pair.library = Optimizer(make_options(**fields))
    for i, spec in enumerate(SPECS):
        pair.library.add(spec.name, pair.data[i], "f32", spec.layout, pair.grads[i])
    pair.run(STEPS)
    assert distance(pair.weights(), default_run()) < TOLERANCE
    if "form" in fields:
        assert pair.library.report(0).form == ("auto", "standard", "gram", "direct").index(fields["form"])


def by_svd(program):
    """The direct form without its products: what the program makes of each singular value."""
    def orthogonalizer(matrix, o):
        u, s, v = np.linalg.svd(matrix, full_matrices=False)
        s = s / np.linalg.norm(s)
        return u @ np.diag([x * program.h(x * x) for x in s]) @ v
    return orthogonalizer


@pytest.mark.parametrize("fields", [dict(form="auto"), dict(form="direct")] + [
    dict(form="direct", direct_set=name.encode()) for name in DIRECT_SETS])
def test_direct_form(fields):
    """Small and ill-conditioned matrices round more than in the other forms (docs/direct.md)."""
    pair = Pair(specs=MUON_SPECS)
    pair.library = Optimizer(make_options(**fields))
    for i, spec in enumerate(MUON_SPECS):
        pair.library.add(spec.name, pair.data[i], "f32", spec.layout, pair.grads[i])
    report = pair.library.report(0)
    assert report.form == ("auto", "standard", "gram", "direct").index("direct")
    wanted = fields.get("direct_set", report.direct_set if fields["form"] == "auto" else b"P12")
    assert report.direct_set == wanted
    pair.reference.orthogonalizer = by_svd(DIRECT_SETS[wanted.decode()])
    pair.run(STEPS)
    assert distance(pair.weights(), pair.exact()) < 100 * TOLERANCE
    quintics = Pair(specs=MUON_SPECS).run(STEPS).exact()
    assert distance(pair.exact(), quintics) > 5 * 100 * TOLERANCE


@pytest.mark.parametrize("fields", [{}, dict(adam="nadamw", normuon=True), dict(state_dtype="bf16"),
                                    dict(momentum_form="ema_corrected", decay="cautious")])
def test_maximize(fields):
    """The same bits as with all gradients turned round."""
    turned, pair = Pair(**fields), Pair(**fields, maximize=True)
    for step in range(1, 6):
        for i, spec in enumerate(pair.specs):
            pair.grads[i][...] = unit(SEED, step, i, spec.shape)
            turned.grads[i][...] = -pair.grads[i]
        pair.library.step()
        turned.library.step()
    for a, b in zip(pair.data, turned.data):
        assert np.array_equal(a, b)
    assert not np.array_equal(pair.data[0], store("f32", initial(SEED, 0, pair.specs[0])))


# ---- AdamW -------------------------------------------------------------------------

@pytest.mark.parametrize("fields", [
    dict(adam="nadamw"), dict(adam="by_nesterov"), dict(adam_lr=0.1), dict(adam_lr=0.0),
    dict(adam="nadamw", nadamw_form="timm"), dict(adam="nadamw", nadamw_form="optax"),
    dict(adam_eps_root=0.1), dict(adam="nadamw", adam_eps_root=3.0),
    dict(adam_lr_scale=3.0), dict(adam_betas=(0.5, 0.7)), dict(adam_betas=(0.0, 0.0)),
    dict(adam_eps=0.2), dict(adam_eps=None, eps=0.3), dict(adam_weight_decay=2.0)])
def test_adam(fields):
    check(**fields)


def test_adam_by_nesterov_off_is_adamw():
    """As in the recipe timm."""
    pair = check(adam="by_nesterov", nesterov=False)
    plain = Pair(adam="adamw", nesterov=False).run(STEPS)
    for a, b in zip(pair.data, plain.data):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", ["adamw", "nadamw"])
@pytest.mark.parametrize("grad_dtype", ["f32", "own"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_single_steps_of_adam(kind, dtype, grad_dtype):
    """Ten steps, each from the parameters that the library had before, against the formula in
    double: within 1e-6 of max(|w|, lr), but for the rounding of a half parameter."""
    f32_grad = grad_dtype == "f32"
    gradient_dtype = "f32" if f32_grad else dtype
    unit_roundoff = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11}[dtype]
    lr, decay, betas, eps = 0.05, 0.2, (0.9, 0.95), 1e-8
    count = 40007  # more than a task, and no multiple of anything
    w = store(dtype, unit(SEED, 0, 0, (count,)))
    g = store(gradient_dtype, np.zeros(count))
    opt = Optimizer(make_options(adam=kind, lr=lr, weight_decay=decay))
    opt.add("vector", w, dtype, grad=g, f32_grad=f32_grad)
    m = v = np.zeros(count)
    for t in range(1, 11):
        # Magnitudes from 1e-6 to 1, so that eps counts for some.
        values = unit(SEED, t, 0, (count,)) * 10.0 ** (6 * unit(SEED, 100, 0, (count,)) - 6) * 1e3
        g[...] = store(gradient_dtype, values)
        before, exact_g = load(dtype, w), load(gradient_dtype, g)
        m, v = adam_moments(m, v, exact_g, betas)
        exact = adam_step(before, m, v, exact_g, t, lr, decay, betas, eps,
                          "lookahead" if kind == "nadamw" else None)
        opt.step()
        error = np.abs(load(dtype, w) - exact)
        allowed = 1e-6 * np.maximum(np.abs(exact), lr) + unit_roundoff * np.abs(exact) + 2.0**-25
        assert np.all(error <= allowed), (t, np.max(error / allowed))


def test_f32_gradients_of_half_parameters():
    """They are not rounded to the parameter's type: 1e-30 is 0 in f16, and here it is a step."""
    for dtype in ("bf16", "f16"):
        w, g = store(dtype, np.full(5, 0.5)), store("f32", np.full(5, 1e-15))
        opt = Optimizer(make_options(adam_eps=0.0, lr=0.25, weight_decay=0.0))
        opt.add("vector", w, dtype, grad=g, f32_grad=True)
        opt.step()
        assert np.allclose(load(dtype, w), 0.25, rtol=1e-2)
    # And where the type holds them, they give the same bits.
    for dtype in ("bf16", "f16"):
        pair = Pair(dtype=dtype, emulate=True)
        wide = Pair(dtype=dtype, emulate=True, f32_grad=True)
        for _ in range(3):
            pair.run(1)
            for ours, given in zip(wide.grads, pair.grads):
                ours[...] = load(dtype, given)
            wide.library.step()
        for a, b in zip(pair.data, wide.data):
            assert np.array_equal(a, b)


# ---- routing and groups -------------------------------------------------------------

@pytest.mark.parametrize("fields", [
    dict(patterns=("t?ll", "qkv*")), dict(patterns=()), dict(min_dim=9), dict(max_aspect=1.6),
    dict(only_2d=True), dict(layout_3d="experts"),
    *(dict(routing=rule) for rule in ENUMS["routing"][1:])])
def test_routing(fields):
    pair = check(**fields)
    for i, p in enumerate(pair.reference.parameters):
        report = pair.library.report(i)
        assert (report.muon, report.reason.decode()) == (p.muon, p.reason)
        assert report.matrices == (len(p.matrix_shapes()) if p.muon else 0)


def test_groups_with_options_of_their_own():
    groups = {
        "wide": dict(lr=0.1, momentum=0.5, momentum_form="sum", scale="none"),
        "tall": dict(nesterov=False, coefficients="quintic", steps=3, weight_decay=0.5),
        "conv": dict(normuon=True, decay="cautious", weight_decay=0.5),
        "conv_spatial": dict(normalize_spatial=False),
        "heads": dict(momentum_form="ema_corrected", eps_mode="add", eps=0.1),
        "vector": dict(adam="nadamw", adam_betas=(0.5, 0.5), adam_lr=0.2),
        "scalar": dict(adam_weight_decay=1.0),
        "experts": dict(patterns=("exp*",)),
    }
    check(groups=groups)


def test_scale_is_of_the_matrix_that_is_orthogonalized():
    """Blocks of rows of one tensor get scales of their own."""
    spec = Spec("qkv", (24, 6), layouts.row_blocks(sizes=(4, 20)))
    w, g = store("f32", np.zeros(spec.shape)), store("f32", unit(SEED, 1, 0, spec.shape))
    opt = Optimizer(make_options(lr=1.0, coefficients="polar_express", steps=8))
    opt.add("qkv", w, layout=spec.layout, grad=g)
    opt.step()
    for rows in (slice(0, 4), slice(4, 24)):
        block = w[rows]
        expected = 0.2 * max(block.shape) ** 0.5
        assert np.allclose(np.linalg.svd(block)[1], expected, rtol=2e-2)

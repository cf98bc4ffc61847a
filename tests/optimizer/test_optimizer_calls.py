"""The calls of the optimizer beside the step: changes between steps, missing gradients, moved and
strided memory, gradient utilities, QK-clip, log and report (the library is found as
muonium_library.py says, by MUONIUM_BUILD_DIR)."""
import ctypes

import numpy as np
import pytest

from muonium_library import (DTYPES, OUTCOMES, LossFunction, MuoniumError, Optimizer, QK, call,
                             load, make_options, store)
from optimizer_runs import SEED, SPECS, Pair
from reference import layouts
from reference.optimizer import clip_factor, global_norm, qk_clip
from reference.recipes import override
from reference.trajectory import distance, unit

TOLERANCE = 5e-6


def close(pair):
    return distance(pair.weights(), pair.exact()) < TOLERANCE


# ---- changes between steps ------------------------------------------------------

@pytest.mark.parametrize("fields", [{}, dict(adam_lr=0.05), dict(adam_lr_scale=0.5)])
def test_set_lr_moves_adam_along(fields):
    pair = Pair(**fields).run(2)
    for lr in (0.1, 0.004):
        pair.library.set_lr(lr)
        pair.reference.set_lr(lr)
        pair.run(2)
    assert close(pair)
    vector = [spec.name for spec in SPECS].index("vector")
    expected = 0.05 * 0.004 / 0.02 if "adam_lr" in fields else 0.004 * fields.get(
        "adam_lr_scale", 1)
    assert pair.library.report(vector).lr == pytest.approx(expected, rel=1e-12)
    assert pair.library.report(0).lr == 0.004


def test_lr_through_zero():
    """A rate that follows comes back; one that stands by itself cannot be followed from 0."""
    pair = Pair(adam_lr=0.05).run(1)
    before = pair.weights()
    pair.library.set_lr(0.0)
    pair.run(1)
    assert all(map(np.array_equal, pair.weights(), before))
    pair.library.set_lr(0.02)
    vector = [spec.name for spec in SPECS].index("vector")
    assert pair.library.report(vector).lr == pytest.approx(0.05, rel=1e-12)
    opt = Optimizer(make_options(lr=0.0, adam_lr=0.05))
    with pytest.raises(MuoniumError, match="adam_lr is 0.05"):
        opt.set_lr(0.1)


def test_set_weight_decay_and_momentum():
    pair = Pair().run(2)
    for fields in (dict(weight_decay=0.5, momentum=0.5), dict(weight_decay=0.0, momentum=0.0)):
        pair.library.set_weight_decay(fields["weight_decay"])
        pair.library.set_momentum(fields["momentum"])
        for p in pair.reference.parameters:
            p.options = override(p.options, **fields)
        pair.run(2)
    assert close(pair)


def test_changes_of_one_group():
    pair = Pair(groups={"wide": dict(lr=0.01), "vector": dict(adam_lr=0.01)})
    opt = pair.library
    group = opt.add_group(make_options())
    opt.add("more", store("f32", unit(SEED, 0, 99, (8, 8))), group=group,
            grad=store("f32", unit(SEED, 1, 99, (8, 8))))
    more = opt.find("more")
    opt.set_lr(0.5, group)
    opt.set_momentum(0.1, group)
    assert [opt.report(i).lr for i in range(3)] == [0.01, 0.02, 0.02]
    assert opt.report(more).lr == 0.5
    opt.set_lr(0.25)
    assert {opt.report(i).lr for i in range(more + 1)} >= {0.25}
    assert opt.report(0).lr == opt.report(more).lr == 0.25


def test_refused_changes_change_nothing():
    """Not even the groups before the one that refuses."""
    opt = Optimizer(make_options(lr=0.02))
    opt.add("first", store("f32", np.zeros((8, 8))))
    group = opt.add_group(make_options(lr=0.0, adam_lr=0.1))
    opt.add("second", store("f32", np.zeros((8, 8))), group=group)
    with pytest.raises(MuoniumError, match="adam_lr"):
        opt.set_lr(0.5)
    assert (opt.report(0).lr, opt.report(1).lr) == (0.02, 0.0)
    for change, field in ((opt.set_lr, "lr"), (opt.set_weight_decay, "weight_decay"),
                          (opt.set_momentum, "momentum")):
        for value in (-1.0, float("nan"), float("inf")):
            with pytest.raises(MuoniumError, match=f"^MUONIUM_INVALID: {field} is ") as caught:
                change(value, group if field == "lr" else None)
            assert caught.value.status == "MUONIUM_INVALID"
    with pytest.raises(MuoniumError, match="momentum is 1"):
        opt.set_momentum(1.0)


# ---- missing gradients ------------------------------------------------------------

def test_parameters_without_gradient():
    """Skipped and counted; their bias corrections count their own steps alone."""
    for fields in ({}, dict(momentum_form="ema_corrected", normuon=True)):
        pair = Pair(**fields)
        pair.run(2)
        pair.run(2, without=("wide", "vector", "qkv"))
        before = [w.copy() for w in pair.data]
        everything = tuple(spec.name for spec in SPECS)
        pair.run(1, without=everything)
        assert all(map(np.array_equal, pair.data, before))
        pair.run(2, without=("scalar",))
        assert close(pair)
        counters = pair.library.count()
        assert counters.steps == 7
        assert counters.skipped == 2 * 3 + len(SPECS) + 2
        for name, steps in (("wide", 4), ("vector", 4), ("scalar", 4), ("tall", 6)):
            assert pair.library.report(pair.library.find(name)).steps == steps
        matrices = {p.name: len(p.matrix_shapes()) if p.muon else 0
                    for p in pair.reference.parameters}
        expected = 6 * sum(matrices.values()) - 2 * (matrices["wide"] + matrices["qkv"])
        assert counters.matrices == expected


@pytest.mark.parametrize("policy", ["skip", "propagate"])
def test_gradients_that_are_not_finite(policy):
    """`skip` leaves the parameter and its state alone; `propagate` spoils this matrix alone."""
    pair = Pair(nonfinite=policy, specs=SPECS[:1] + SPECS[4:5] + SPECS[-2:]).run(2)
    for name, bad in (("experts", np.nan), ("vector", np.inf)):
        index = pair.library.find(name)
        pair.grads[index].flat[-1] = bad
    before = [w.copy() for w in pair.data]
    pair.library.step()
    for i, (w, old) in enumerate(zip(pair.data, before)):
        name = pair.specs[i].name
        if name == "experts" and policy == "propagate":
            assert not np.array_equal(w[0], old[0]) and np.all(np.isfinite(w[0]))
            assert np.all(np.isnan(w[1]))
            assert [OUTCOMES[c.outcome] for c in pair.library.certificates(i)] == [
                "orthogonalized", "propagated"]
        elif name == "vector" and policy == "propagate":
            assert np.all(np.isfinite(w[:-1])) and not np.array_equal(w[:-1], old[:-1])
        elif name in ("experts", "vector"):
            assert np.array_equal(w, old)
        else:
            assert not np.array_equal(w, old)
    assert pair.library.count().skipped == (2 if policy == "skip" else 0)
    steps = [pair.library.report(i).steps for i in range(4)]
    assert steps == ([3, 2, 2, 3] if policy == "skip" else [3, 3, 3, 3])


def test_zero_gradients():
    """Nothing to go by: decay alone. With momentum, the parameter goes on by it."""
    pair = Pair()
    pair.library.zero_grads()
    start = pair.weights()
    pair.library.step()
    counters = pair.library.count()
    muon = [p.muon for p in pair.reference.parameters]
    assert (counters.matrices, counters.zero) == (0, sum(
        len(p.matrix_shapes()) for p in pair.reference.parameters if p.muon))
    for w, s in zip(pair.weights(), start):
        assert np.allclose(w, (1 - 0.02 * 0.01) * s, rtol=1e-6, atol=0)
    pair = Pair().run(1)
    before = pair.weights()
    pair.library.zero_grads()
    assert all(np.all(g == 0) for g in pair.grads)
    pair.library.step()
    for w, b, is_muon in zip(pair.weights(), before, muon):
        assert distance([w], [b]) > 1e-3


# ---- memory that moves, and strides ------------------------------------------------

def test_moved_memory():
    pair = Pair(dtype="bf16", emulate=True, master=True).run(2)
    still = Pair(dtype="bf16", emulate=True, master=True).run(2)
    for i in range(len(SPECS)):
        old, pair.data[i] = pair.data[i], pair.data[i].copy()
        pair.library.set_data(i, pair.data[i])
        old[...] = 0x7fc0  # NaN: what is no longer used
        pair.grads[i] = pair.grads[i].copy()
    pair.run(2)
    still.run(2)
    assert all(map(np.array_equal, pair.data, still.data))


FILLING = 7


def with_gaps(array, number):
    """The same values in memory that is not dense: transposed, reversed, with gaps; and all of
    that memory."""
    if array.ndim == 0:
        return array.copy(), None
    axes = list(range(array.ndim))[::-1] if number % 2 else list(range(array.ndim))
    step = 1 + number % 3
    memory = np.full([array.shape[axis] * step + 1 for axis in axes], FILLING, array.dtype)
    view = memory.transpose(np.argsort(axes))[(slice(1, None, step),) * array.ndim]
    view = view[tuple(slice(0, size) for size in array.shape)]
    if number % 4 >= 2:
        view = view[(slice(None, None, -1),) * array.ndim]
    view[...] = array
    return view, memory


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_strides_change_no_bit(dtype, state_dtype):
    """Parameters and gradients in any memory, of which nothing but the elements is written."""
    for fields in ({}, dict(stochastic_rounding=True, seed=5), dict(master=True, normuon=True)):
        options = make_options(state_dtype=state_dtype, **fields)
        dense = Pair(dtype=dtype, emulate=True)
        dense.library, strided = Optimizer(options), Optimizer(options)
        data, grads = [], []
        for i, spec in enumerate(SPECS):
            dense.library.add(spec.name, dense.data[i], dtype, spec.layout, dense.grads[i])
            data.append(with_gaps(dense.data[i], i + 1))
            grads.append(with_gaps(dense.grads[i], 2 * i + 1)[0])
            strided.add(spec.name, data[i][0], dtype, spec.layout, grads[i], strided=True)
        for _ in range(3):
            dense.run(1)
            for ours, given in zip(grads, dense.grads):
                ours[...] = given
            strided.step()
        for (w, memory), expected in zip(data, dense.data):
            assert np.array_equal(w, expected)
            if memory is not None:
                w[...] = FILLING
                assert np.all(memory == FILLING)


# ---- gradient utilities ----------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_norm_clip_and_zero(dtype):
    pair = Pair(dtype=dtype, emulate=True).run(1)
    gradients = [load(dtype, g) for g in pair.grads]
    ours = [g for g, p in zip(gradients, pair.reference.parameters) if not p.muon]
    opt = pair.library
    assert opt.grad_norm() == pytest.approx(global_norm(gradients), rel=1e-12)
    assert opt.grad_norm(adam_only=True) == pytest.approx(global_norm(ours), rel=1e-12)

    before = [g.copy() for g in pair.grads]
    norm, factor = opt.clip_grads(1e6)
    assert (norm, factor) == (opt.grad_norm(), 1.0)
    assert all(map(np.array_equal, pair.grads, before))

    for adam_only in (True, False):
        chosen = ours if adam_only else [load(dtype, g) for g in pair.grads]
        norm, factor = opt.clip_grads(0.5, adam_only=adam_only)
        assert norm == pytest.approx(global_norm(chosen), rel=1e-12)
        assert factor == pytest.approx(clip_factor(chosen, 0.5), rel=1e-12)
        unit_roundoff = {"f32": 2.0**-23, "bf16": 2.0**-8, "f16": 2.0**-11}[dtype]
        for g, old, p in zip(pair.grads, before, pair.reference.parameters):
            if adam_only and p.muon:
                assert np.array_equal(g, old)
            else:
                expected = factor * load(dtype, old)
                assert np.all(np.abs(load(dtype, g) - expected)
                              <= 1.001 * unit_roundoff * np.abs(expected) + 1e-7)
        before = [g.copy() for g in pair.grads]
    assert opt.grad_norm() == pytest.approx(0.5, rel=1e-2 if dtype != "f32" else 1e-6)

    opt.set_grad(0, None)  # what is not there takes no part
    gradients = [load(dtype, g) for g in pair.grads[1:]]
    assert opt.grad_norm() == pytest.approx(global_norm(gradients), rel=1e-12)
    opt.zero_grads()
    assert opt.grad_norm() == 0
    assert np.any(pair.grads[0] != 0) and all(np.all(g == 0) for g in pair.grads[1:])


def test_clip_refuses_what_it_cannot_do():
    pair = Pair().run(1)
    before = [g.copy() for g in pair.grads]
    for value in (0.0, -1.0, float("nan")):
        with pytest.raises(MuoniumError, match="max_norm is"):
            pair.library.clip_grads(value)
    for bad in (np.nan, np.inf):
        pair.grads[2].flat[3] = bad
        with pytest.raises(MuoniumError, match="norm of the gradients") as caught:
            pair.library.clip_grads(1.0)
        assert caught.value.status == "MUONIUM_NON_FINITE"
        pair.grads[2].flat[3] = before[2].flat[3]
    assert all(map(np.array_equal, pair.grads, before))


def test_huge_and_tiny_gradients_have_a_norm():
    for size in (3e38, 1e-44):
        g = store("f32", np.full((3,), size))
        opt = Optimizer(make_options())
        opt.add("v", store("f32", np.zeros(3)), grad=g)
        assert opt.grad_norm() == pytest.approx(float(g[0]) * 3**0.5, rel=1e-12)


# ---- QK-clip ------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_qk_clip(dtype):
    heads, dim, cols = 4, 4, 1030  # more columns than are worked on at a time
    logits = [50.0, 150.0, 1000.0, 100.0]
    q, k = (unit(SEED, 0, p, (heads * dim, cols)) for p in (0, 1))
    w_q, w_k = store(dtype, q), store(dtype, k)
    opt = Optimizer(make_options())
    opt.add("q", w_q, dtype)
    opt.add("k", w_k, dtype)
    exact = qk_clip(load(dtype, w_q), load(dtype, w_k), logits, 100.0)
    before = w_q.copy(), w_k.copy()
    assert opt.qk_clip(logits, query=0, key=1, head_dim=dim, threshold=100.0) == 2
    unit_roundoff = 2.0**-23 if dtype == "f32" else 2.0**-8
    for found, expected, old in zip((w_q, w_k), exact, before):
        assert np.allclose(load(dtype, found), expected, rtol=1.01 * unit_roundoff, atol=0)
        for h in (0, 3):  # heads within the threshold keep every bit
            assert np.array_equal(found[h * dim:(h + 1) * dim], old[h * dim:(h + 1) * dim])
    # The largest logit of a head is now the threshold.
    ratio = (exact[0][8] @ exact[1][8]) / (load(dtype, before[0])[8] @ load(dtype, before[1])[8])
    assert ratio * 1000 == pytest.approx(100)


def test_qk_clip_of_a_fused_parameter_with_shared_keys():
    """Four query heads, two key heads, in one tensor: keys by their largest logit, queries so
    that every logit above the threshold becomes it and the others stay."""
    dim, cols, first = 3, 5, 2
    logits = np.array([400.0, 50.0, 200.0, 300.0])
    w = store("f32", unit(SEED, 0, 0, (first + 6 * dim + 1, cols)))
    before = load("f32", w)
    opt = Optimizer(make_options())
    opt.add("qkv", w, layout=None, route="muon")
    fields = dict(query=0, key=0, query_row=first, key_row=first + 4 * dim, key_heads=2,
                  head_dim=dim, threshold=100.0)
    assert opt.qk_clip(logits, **fields) == 3
    after = load("f32", w)

    def head(array, row, h):
        return array[row + h * dim:row + (h + 1) * dim]
    for h, logit in enumerate(logits):
        product = (head(after, first, h)[0] @ head(after, first + 4 * dim, h // 2)[0])
        old = (head(before, first, h)[0] @ head(before, first + 4 * dim, h // 2)[0])
        assert product / old * logit == pytest.approx(min(logit, 100.0), rel=1e-5)
    for k, largest in ((0, 400.0), (1, 300.0)):
        assert np.allclose(head(after, first + 4 * dim, k),
                           head(before, first + 4 * dim, k) * (100 / largest) ** 0.5, rtol=1e-6)
    others = [0, 1, first + 6 * dim]
    assert np.array_equal(after[others], before[others])


def test_qk_clip_scales_master_copies():
    """Else the next step would undo it."""
    for strided in (False, True):
        w = store("bf16", unit(SEED, 0, 0, (8, 6)))
        g = store("bf16", np.zeros((8, 6)))
        if strided:
            w, g = with_gaps(w, 3)[0], with_gaps(g, 2)[0]
        opt = Optimizer(make_options(master=True, weight_decay=0.0, momentum=0.0))
        opt.add("qk", w, "bf16", grad=g, strided=strided)
        opt.step()
        opt.qk_clip([1e4], query=0, key=0, key_row=4, head_dim=4, threshold=1.0)
        scaled = w.copy()
        assert np.allclose(load("bf16", scaled), 0.01 * unit(SEED, 0, 0, (8, 6)), rtol=1e-2)
        opt.step()
        assert np.array_equal(w, scaled)


@pytest.mark.parametrize("fields, message", [
    (dict(query=7), "parameter is 7"), (dict(key=7), "parameter is 7"),
    (dict(head_dim=0), "head_dim 0"), (dict(key_heads=3), "key_heads is 3"),
    (dict(threshold=0.0), "threshold is 0"), (dict(threshold=float("nan")), "threshold is"),
    (dict(threshold=float("inf")), "threshold is inf"), (dict(query_row=1), "query rows"),
    (dict(key_row=2**63), "key rows"), (dict(head_dim=2**62), "query rows"),
    (dict(query=1), "query parameter vector has 1 dimensions"),
    (dict(logits=[1.0, float("nan")]), r"max_logits\[1\]"),
    (dict(logits=[float("inf"), 1.0]), r"max_logits\[0\]"),
    (dict(key=0), "overlap"), (dict(key=0, key_row=3, head_dim=2), "overlap"),
])
def test_qk_clip_refuses(fields, message):
    w = [store("f32", np.ones((8, 6))), store("f32", np.ones(6)), store("f32", np.ones((8, 6)))]
    opt = Optimizer(make_options())
    for name, data in zip(("q", "vector", "k"), w):
        opt.add(name, data)
    call_fields = {**dict(query=0, key=2, head_dim=4, threshold=1.0), **fields}
    with pytest.raises(MuoniumError, match=message):
        opt.qk_clip(call_fields.pop("logits", [9.0, 9.0]), **call_fields)
    assert all(np.all(data == 1) for data in w)


def test_qk_clip_looks_at_no_more_logits_than_there_are_rows_for():
    """An absurd number of heads is refused before the logits are read."""
    opt = Optimizer(make_options())
    opt.add("q", store("f32", np.ones((8, 6))))
    opt.add("k", store("f32", np.ones((8, 6))))
    logits = (ctypes.c_float * 1)(9.0)
    qk = QK(query=0, key=1, heads=2**50, head_dim=1, max_logits=logits, threshold=1.0)
    with pytest.raises(MuoniumError, match="query rows"):
        call("qk_clip_sized", opt.handle, ctypes.byref(qk), ctypes.sizeof(qk), None)
    with pytest.raises(MuoniumError, match="max_logits is NULL"):
        call("qk_clip_sized", opt.handle,
             ctypes.byref(QK(query=0, key=1, heads=2, head_dim=1, threshold=1.0)),
             ctypes.sizeof(QK), None)
    with pytest.raises(MuoniumError, match="heads is NULL"):
        call("qk_clip_sized", opt.handle, None, 0, None)


# ---- closure, log, report -------------------------------------------------------------------

def test_step_with():
    pair, plain = Pair(), Pair().run(1)

    def loss():
        for ours, given in zip(pair.grads, plain.grads):
            ours[...] = given
        return 42.5
    assert pair.library.step_with(loss) == 42.5
    assert all(map(np.array_equal, pair.data, plain.data))
    assert pair.library.count().steps == 1
    with pytest.raises(MuoniumError, match="loss is NULL"):
        call("step_with", pair.library.handle, LossFunction(), None, None)


def test_log_tells_the_routing_before_the_first_step():
    lines = []
    opt = Optimizer(make_options(log=lines.append))
    for i, spec in enumerate(SPECS):
        data = store("f32", unit(SEED, 0, i, spec.shape))
        opt.add(spec.name, data, layout=spec.layout, grad=data.copy())
    assert lines == []
    opt.step()
    muon = sum(len(spec.shape) > 1 and spec.name != "ln_1.weight" for spec in SPECS)
    assert lines[0] == f"{muon} Muon, {len(SPECS) - muon} AdamW"
    assert any(line.startswith("2 insufficient_dims: (33,), ()") for line in lines)
    assert any(line.startswith("1 name_pattern:ln_*: (8, 8)") for line in lines)
    told = len(lines)
    opt.step()
    assert len(lines) == told
    opt.add("late", store("f32", np.zeros((8, 8))))
    opt.step()
    assert len(lines) > told


@pytest.mark.parametrize("fields", [{}, dict(scale="original", lr=0.5, normuon=True),
                                    dict(state_dtype="bf16", normalize_spatial=False),
                                    dict(fraction=0.25, momentum_form="sum", nesterov=False),
                                    dict(adamuon=True),
                                    dict(adamuon=True, scale="rms_to_rms")])
def test_report_is_a_dry_run(fields):
    """What the report promises before any step is what a step then does."""
    pair = Pair(weight_decay=0.0, coefficients="polar_express", steps=8, **fields)
    reports = [pair.library.report(i) for i in range(len(SPECS))]
    counters = pair.library.count()
    assert (counters.steps, counters.matrices) == (0, 0)
    assert counters.scratch_bytes > 0 and counters.teams > 0 and counters.team_width > 0
    assert counters.flops == sum(r.flops for r in reports)
    assert counters.state_bytes == sum(r.state_bytes for r in reports)
    start = pair.weights()
    pair.run(1)
    after = pair.library.count()
    assert [getattr(counters, name) for name in ("scratch_bytes", "teams", "team_width")] == [
        getattr(after, name) for name in ("scratch_bytes", "teams", "team_width")]
    for i, (report, p) in enumerate(zip(reports, pair.reference.parameters)):
        size = p.data.size
        assert report.steps == 0
        if not p.muon:
            assert (report.matrices, report.flops, report.rows, report.cols) == (0, 0, 0, 0)
            assert report.state_bytes == 8 * size
            assert report.step_rms == report.lr
            continue
        shapes = p.matrix_shapes()
        assert (report.matrices, (report.rows, report.cols)) == (len(shapes), shapes[0])
        rows = sum(out for out, _ in shapes)
        assert report.state_bytes == size * (2 if "state_dtype" in fields else 4) + (
            4 * rows if "normuon" in fields else 4 * size if "adamuon" in fields else 0)
        assert report.flops > 0
        first = layouts.split(pair.weights()[i] - start[i], p.layout)[0]
        assert np.sqrt(np.mean(first**2)) == pytest.approx(report.step_rms, rel=0.03)


def test_flops_are_those_of_the_forms():
    """Standard: T (3a + 1) m^3 with a = n / m, a product of one triangle counting m^3."""
    opt = Optimizer(make_options(form="standard"))
    opt.add("w", store("f32", np.zeros((8, 24))))
    opt.add("qkv", store("f32", np.zeros((24, 8))), layout=layouts.row_blocks(sizes=(8, 12, 4)))
    opt.add("experts", store("f32", np.zeros((3, 8, 24))), layout=layouts.experts())

    def standard(m, n):
        return 5 * (3 * n / m + 1) * m**3
    assert opt.report(0).flops == pytest.approx(standard(8, 24), rel=0.15)
    assert opt.report(1).flops == pytest.approx(
        standard(8, 8) + standard(8, 12) + standard(4, 8), rel=0.15)
    assert opt.report(2).flops == 3 * opt.report(0).flops


def test_find_and_numbers():
    opt = Optimizer(make_options())
    for name in ("a", None, "c"):
        opt.add(name, store("f32", np.zeros(3)))
    assert [opt.find(name) for name in ("a", "parameter 1", "c")] == [0, 1, 2]
    with pytest.raises(MuoniumError, match="no parameter is named b"):
        opt.find("b")
    for query in (opt.report, opt.certificates, lambda i: opt.set_grad(i, None)):
        with pytest.raises(MuoniumError, match="parameter is 3: there are 3"):
            query(3)


def test_dtypes_of_this_module():
    """The numbers of the enum that arrays are described by."""
    assert [DTYPES.index(d) for d in ("f32", "bf16", "f16")] == [0, 2, 3]

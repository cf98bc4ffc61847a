"""The Python package over NumPy arrays and DLPack: against NumPy code that shares nothing
with it, and against the header that it mirrors.

The library is that of MUONIUM_BUILD_DIR, by default build/ of the source tree.
"""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from package import LIBRARY, ROOT, SEED
HEADER = (ROOT / "include" / "muonium.h").read_text()

import muonium  # noqa: E402
from muonium import _arrays, _library, _options  # noqa: E402
from reference.coefficients import PRESETS, choose, polar_express  # noqa: E402
from reference.layouts import experts, row_blocks, spatial  # noqa: E402
from reference.orthogonalize import orthogonalize as reference  # noqa: E402
from reference.recipes import EXACT, RECIPES  # noqa: E402
from reference.trajectory import SPECS, distance, gradient, initial, run  # noqa: E402


@pytest.fixture
def rng():
    print(f"MUONIUM_TEST_SEED={SEED}")
    return np.random.default_rng(SEED)


# ---- the header ----

STRUCTURES = {
    "muonium_cpu_info": _library.CpuInfo, "muonium_shape": _library.Shape,
    "muonium_view": _library.View, "muonium_plan_options": _library.PlanOptions,
    "muonium_certificate": _library.Certificate, "muonium_options": _library.Options,
    "muonium_tensor": _library.Tensor, "muonium_parameter_report": _library.ParameterReport,
    "muonium_counters": _library.Counters, "muonium_state": _library.State,
    "muonium_qk": _library.QK,
}


def test_structures_are_those_of_the_header(tmp_path):
    lines = ["#include <stdio.h>", "#include <muonium.h>", "int main(void) {"]
    expected = []
    for name, structure in STRUCTURES.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append(ctypes.sizeof(structure))
        for field, _ in structure._fields_:
            lines.append(f'printf("%zu %zu\\n", offsetof({name}, {field}), '
                         f"sizeof((({name} *)0)->{field}));")
            place = getattr(structure, field)
            expected.append((place.offset, place.size))
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines + ["return 0; }"]))
    subprocess.run(["cc", "-I", ROOT / "include", source, "-o", tmp_path / "layout"], check=True)
    output = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True)
    found = [tuple(map(int, line.split())) for line in output.stdout.splitlines()]
    assert found == [e if isinstance(e, tuple) else (e,) for e in expected]


@pytest.mark.parametrize("enum, prefix, names", [
    ("muonium_dtype", "", _library.DTYPES), ("muonium_outcome", "", _library.OUTCOMES),
    ("muonium_momentum_form", "MOMENTUM_", _options.CHOICES["momentum_form"]),
    ("muonium_nesterov_form", "NESTEROV_", _options.CHOICES["nesterov_form"]),
    ("muonium_scale", "SCALE_", _options.CHOICES["scale"]),
    ("muonium_decay", "DECAY_", _options.CHOICES["decay"]),
    ("muonium_normalization", "NORM_", _options.CHOICES["normalization"]),
    ("muonium_eps_mode", "EPS_", _options.CHOICES["eps_mode"]),
    ("muonium_form", "FORM_", _options.CHOICES["form"]),
    ("muonium_nonfinite", "NONFINITE_", _options.CHOICES["nonfinite"]),
    ("muonium_adam_kind", "", ("adamw", "nadamw", "adam_by_nesterov")),
    ("muonium_nadamw_form", "NADAMW_", _options.CHOICES["nadamw_form"]),
    ("muonium_route", "ROUTE_", _options.CHOICES["route"]),
    ("muonium_layout", "LAYOUT_", _options.CHOICES["layout"]),
])
def test_enums_are_those_of_the_header(enum, prefix, names):
    body = re.search(rf"typedef enum {enum} {{(.*?)}} {enum};", HEADER, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    found = re.findall(r"MUONIUM_(\w+)\s*=\s*(\d+)", body)
    assert [value for _, value in found] == [str(i) for i in range(len(names))]
    assert [name.lower()[len(prefix):] for name, _ in found] == list(names)


def test_versions_agree():
    assert f'#define MUONIUM_VERSION_STRING "{_library.HEADER_VERSION}"' in HEADER
    assert muonium.__version__ == muonium.info()["version"] == _library.HEADER_VERSION


# ---- finding the library ----


def import_in(directory, script="import muonium", **environment):
    clean = {k: v for k, v in os.environ.items() if k not in ("MUONIUM_LIBRARY", "LD_PRELOAD")}
    return subprocess.run([sys.executable, "-c", script], cwd=directory, text=True,
                          capture_output=True, env={**clean, **environment})


@pytest.fixture
def package(tmp_path):
    """The package alone, far from any library."""
    shutil.copytree(ROOT / "python" / "muonium", tmp_path / "muonium",
                    ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return tmp_path


def test_missing_library_says_where_it_looked(package):
    result = import_in(package)
    assert result.returncode != 0
    for part in ("MUONIUM_LIBRARY: not set", str(package / "muonium" / "libmuonium.so"),
                 "ldconfig", "make python"):
        assert part in result.stderr


def test_library_named_by_the_environment(package):
    bad = import_in(package, MUONIUM_LIBRARY="/no/such/library.so")
    assert bad.returncode != 0 and "/no/such/library.so" in bad.stderr


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="the library needs the runtime before it")
def test_library_inside_the_package_and_light_imports(package):
    shutil.copy(LIBRARY, package / "muonium" / "libmuonium.so")
    script = ("import sys, muonium; print(muonium.info()['library']); "
              "print('numpy' in sys.modules, 'torch' in sys.modules)")
    result = import_in(package, script)
    assert result.stdout.split() == [str(package / "muonium" / "libmuonium.so"), "False", "False"]


@pytest.mark.parametrize("version, part", [("9.9.9", "9.9.9"), (_library.HEADER_VERSION, "symbol")])
def test_library_of_another_kind(package, version, part):
    (package / "fake.c").write_text(f'const char *muonium_version(void) {{ return "{version}"; }}')
    subprocess.run(["cc", "-shared", "-fPIC", package / "fake.c", "-o", package / "fake.so"],
                   check=True)
    result = import_in(package, MUONIUM_LIBRARY=str(package / "fake.so"))
    assert result.returncode != 0
    assert "LibraryError" in result.stderr and part in result.stderr and "fake.so" in result.stderr


# ---- orthogonalize ----

EPSILON = {"f2": 2.0**-11, "f4": 2.0**-24, "f8": 2.0**-24}  # f8: computed in f32 by default


def iterated(x, **options):
    """Each matrix by the reference, in double precision."""
    table = choose("original", 5)
    flat = np.asarray(x, "f8").reshape(-1, *x.shape[-2:])
    return np.array([reference(m, table, **options) for m in flat]).reshape(x.shape)


def random_view(rng, kind):
    """An array of random shape, dimensions and strides, and of a type."""
    shape = tuple(rng.integers(1, 4, rng.integers(0, 3))) + tuple(rng.integers(1, 40, 2))
    steps = rng.integers(1, 3, len(shape))
    base = rng.standard_normal([size * step for size, step in zip(shape, steps)]).astype(kind)
    base = np.ascontiguousarray(base.transpose(order := rng.permutation(len(shape))))
    view = base.transpose(np.argsort(order))[tuple(slice(None, None, s) for s in steps)]
    return view[tuple(slice(None, None, -1) if rng.random() < 0.3 else slice(None)
                      for _ in shape)]


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
@pytest.mark.parametrize("case", range(12))
def test_any_shape_and_strides(kind, case):
    print(f"MUONIUM_TEST_SEED={SEED}")
    rng = np.random.default_rng([SEED, case, ord(kind[1])])
    x = random_view(rng, kind)
    found = muonium.orthogonalize(x, coefficients="original")
    assert found.shape == x.shape and found.dtype == x.dtype and found.flags.c_contiguous
    packed = muonium.orthogonalize(np.ascontiguousarray(x), coefficients="original")
    np.testing.assert_array_equal(found, packed)
    k = max(x.shape[-2:])
    # A small singular value is amplified by a^5, and its rounding with it.
    tolerance = 8 * 3.4445**5 * k * EPSILON["f4"] + 4 * EPSILON[kind]
    assert np.abs(found - iterated(x)).max() <= tolerance

    target = random_view(np.random.default_rng([SEED, case, ord(kind[1])]), kind)
    returned = muonium.orthogonalize(x, coefficients="original", out=target)
    assert returned is target
    np.testing.assert_array_equal(target, found)
    muonium.orthogonalize(x, coefficients="original", out=x)  # in place
    np.testing.assert_array_equal(x, found)


def test_other_arrays_are_copied_where_they_must_be(rng):
    x = rng.standard_normal((6, 5)).astype("f4")
    expected = muonium.orthogonalize(x)
    np.testing.assert_array_equal(muonium.orthogonalize(x.astype(">f4")), expected)
    np.testing.assert_array_equal(muonium.orthogonalize(x.tolist()).astype("f4"),
                                  muonium.orthogonalize(x.astype("f8")).astype("f4"))
    record = np.zeros(6, [("pad", "u1"), ("x", "f4", 5)])
    record["x"] = x
    np.testing.assert_array_equal(muonium.orthogonalize(record["x"]), expected)
    broadcast = np.broadcast_to(x, (2, 3, 6, 5))
    np.testing.assert_array_equal(muonium.orthogonalize(broadcast)[1, 2], expected)
    swapped = np.zeros((6, 5), ">f4")
    muonium.orthogonalize(x, out=swapped)
    np.testing.assert_array_equal(swapped, expected)
    square = rng.standard_normal((7, 7)).astype("f4")
    expected = muonium.orthogonalize(square)
    muonium.orthogonalize(square, out=square.T)  # overlaps its input
    np.testing.assert_array_equal(square.T, expected)
    frozen = x.copy()
    frozen.flags.writeable = False
    muonium.orthogonalize(frozen)
    with pytest.raises(ValueError, match="read-only"):
        muonium.orthogonalize(x, out=frozen)
    assert muonium.orthogonalize(np.zeros((0, 3, 4), "f4")).shape == (0, 3, 4)
    assert muonium.orthogonalize(np.zeros((2, 0, 4))).dtype == "f8"


def test_options_of_orthogonalize(rng):
    x = rng.standard_normal((24, 40))
    exact = iterated(x, eps_mode="add", eps=1e-7)
    found = muonium.orthogonalize(x, coefficients="original", precision="f64", eps=1e-7,
                                  eps_mode="add")
    assert np.abs(found - exact).max() < 1e-10
    rows = [(3.4445, -4.775, 2.0315)]
    np.testing.assert_array_equal(
        muonium.orthogonalize(x, coefficients=rows),
        muonium.orthogonalize(x, coefficients=np.array(rows[0])))
    u, _, v = np.linalg.svd(x, full_matrices=False)
    assert np.abs(muonium.orthogonalize(x, steps=9, precision="f64") - u @ v).max() < 1e-3
    for normalize in ("schatten", "spectral", "aol"):
        assert np.abs(muonium.orthogonalize(x, steps=9, normalize=normalize) - u @ v).max() < 0.3
    for form in ("standard", "gram"):
        assert np.abs(muonium.orthogonalize(x, form=form, coefficients="original", eps_mode="add",
                                            eps=1e-7) - exact).max() < 1e-3
    _, certificate = muonium.orthogonalize(x, return_certificate=True)
    assert certificate.outcome == "orthogonalized" and certificate.divisor > 0
    assert np.isnan([certificate.orthogonality_error, certificate.sigma_min,
                     certificate.sigma_max]).all()
    y, certificate = muonium.orthogonalize(x, return_certificate=True, exact_certificate=True)
    values = np.linalg.svd(y, compute_uv=False)
    assert certificate.sigma_min == pytest.approx(values.min(), abs=1e-4)
    assert certificate.sigma_max == pytest.approx(values.max(), abs=1e-4)
    assert certificate.orthogonality_error == pytest.approx(np.linalg.norm(values**2 - 1), abs=1e-4)
    batch = np.stack([x, 0 * x])
    _, certificates = muonium.orthogonalize(batch, return_certificate=True)
    assert [c.outcome for c in certificates] == ["orthogonalized", "zero"]


def test_values_that_are_not_finite(rng):
    x = rng.standard_normal((2, 5, 6)).astype("f4")
    x[1, 2, 3] = np.nan
    out = np.full_like(x, 7)
    with pytest.raises(muonium.NonFiniteError, match="2"):
        muonium.orthogonalize(x, out=out)
    assert (out == 7).all()
    muonium.orthogonalize(x, out=out, nonfinite="skip")
    assert (out[1] == 7).all() and (out[0] != 7).all()
    assert (muonium.orthogonalize(x, nonfinite="skip")[1] == 0).all()
    assert np.isnan(muonium.orthogonalize(x, nonfinite="propagate")[1]).all()


@pytest.mark.parametrize("arguments, kind, part", [
    ((np.zeros(3, "f4"),), ValueError, "two dimensions"),
    ((np.zeros((3, 3), "i4"),), TypeError, "int32"),
    ((np.zeros((3, 3), "c8"),), TypeError, "complex64"),
    (("text",), TypeError, "U4"),
    ((np.zeros((3, 3)), dict(steps=0)), ValueError, "steps"),
    ((np.zeros((3, 3)), dict(steps=2.5)), TypeError, "steps"),
    ((np.zeros((3, 3)), dict(form="triangular")), ValueError, "gram"),
    ((np.zeros((3, 3)), dict(coefficients="none such")), ValueError, "original"),
    ((np.zeros((3, 3)), dict(form="direct", coefficients="original")), ValueError, "ignored"),
    ((np.zeros((3, 3)), dict(coefficients=[(1, 2)])), TypeError, "coefficients"),
    ((np.zeros((3, 3)), dict(eps=1e-7)), ValueError, "eps_mode"),
    ((np.zeros((3, 3)), dict(out=np.zeros((3, 4)))), ValueError, "shape"),
    ((np.zeros((3, 3)), dict(out=np.zeros((3, 3), "i4"))), TypeError, "out"),
])
def test_refusals(arguments, kind, part):
    x, options = (*arguments, {})[:2]
    with pytest.raises(kind, match=part):
        muonium.orthogonalize(x, **options)


# ---- coefficients, the machine, routing ----


def test_coefficients():
    for steps in (1, 5, 8):
        np.testing.assert_allclose(muonium.polar_express(steps),
                                   [tuple(map(float, row)) for row in polar_express(steps)],
                                   rtol=1e-12)
    # Which table orthogonalize uses, as docs/python.md says: not that of polar_express(5).
    x, form = np.random.default_rng(SEED).standard_normal((6, 9)), "standard"
    ours = muonium.orthogonalize(x, form=form)
    safer = muonium.polar_express(5, safety=0.02)
    np.testing.assert_array_equal(ours, muonium.orthogonalize(x, form=form, coefficients=safer))
    assert not np.array_equal(ours, muonium.orthogonalize(
        x, form=form, coefficients=muonium.polar_express(5)))
    np.testing.assert_allclose(safer, muonium.presets()["polar_express_5"], rtol=1e-11)
    np.testing.assert_array_equal(
        muonium.orthogonalize(x, form=form, safety=0.01),
        muonium.orthogonalize(x, form=form, coefficients=muonium.polar_express(5)))
    with pytest.raises(ValueError, match="lower"):
        muonium.polar_express(5, lower=2)
    with pytest.raises(ValueError, match="steps"):
        muonium.polar_express(0)
    assert all(c == 0 for _, _, c in muonium.polar_cubic(4))
    assert set(muonium.presets()) == set(PRESETS)
    assert muonium.presets()["original"] == [(3.4445, -4.775, 2.0315)]


def test_threads_and_info():
    table = (ROOT / "src/base/instruction_sets.def").read_text()
    sets = re.findall(r"^INSTRUCTION_SET\((\w+),", table, re.MULTILINE)
    assert "portable" in sets and muonium.info()["isa"] in [*sets, "blas"]
    muonium.set_threads(3)
    assert muonium.threads() == muonium.info()["threads"] == 3
    with pytest.raises(ValueError):
        muonium.set_threads(-1)
    muonium.set_threads(0)


def test_route():
    rows = muonium.route({"a.w": (64, 128), "a.norm.weight": np.zeros((64, 64)), "b": (64,),
                          "stem": (96, 3, 4, 4), "long": (4, 2048)})
    assert {r.name: (r.optimizer, r.reason.split(":")[0]) for r in rows} == {
        "a.w": ("muon", "ok"), "a.norm.weight": ("adam", "name_pattern"),
        "b": ("adam", "insufficient_dims"), "stem": ("muon", "ok"),
        "long": ("adam", "extreme_aspect_ratio")}
    assert (rows[3].rows, rows[3].cols) == (96, 48) and rows[0].flops > 0
    assert muonium.route({"b": (64, 8)}, use_muon=False)[0].optimizer == "adam"
    heads = {"lm_head": (64, 64), "mine": (64, 64), "attn.qkv": (192, 64)}
    for options, expected in [(dict(recipe="timm"), "muon muon muon"),
                              (dict(recipe="timm", routing="muonium"), "adam muon muon"),
                              (dict(patterns=["mine"]), "adam adam muon"),
                              (dict(patterns=["mine"], only_patterns=True), "muon adam muon")]:
        assert " ".join(r.optimizer for r in muonium.route(heads, **options)) == expected
    assert muonium.route(heads, split_fused=True)[2].matrices == 3
    with pytest.raises(ValueError, match="routing is 'other': use one of muonium, timm"):
        muonium.route(heads, routing="other")
    with pytest.raises(TypeError, match="did you mean 'momentum'"):
        muonium.route({}, momentun=1)


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="the sanitizer ends the program instead")
def test_lack_of_memory():
    class Huge:
        """Nothing of it is looked at before there is memory for its state."""
        __array_interface__ = {"typestr": "<f4", "shape": (2**29, 2**29), "data": (4096, False)}

    with pytest.raises(MemoryError, match="huge"):
        muonium.Optimizer({"huge": Huge()})


def test_routing_needs_no_memory():
    found = muonium.route({"embed": (2**24, 2**22), "mlp": (2**17, 2**16)})
    assert [report.state_bytes for report in found] == [2**49, 2**35]


# ---- Optimizer ----

LAYOUTS = {"conv_spatial": dict(layout="spatial"), "experts": dict(layout="experts"),
           "qkv": dict(layout="flatten", row_splits=[24, 12, 12])}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_follows_the_reference(recipe):
    """50 steps in f32 beside the exact trajectory."""
    assert SPECS[5].layout == row_blocks(sizes=(24, 12, 12))
    assert SPECS[3].layout == spatial() and SPECS[4].layout == experts()
    lr = {"lr": 0.02} if recipe == "optax" else {}
    weights = {spec.name: initial(1, i, spec).astype("f4") for i, spec in enumerate(SPECS)}
    layouts = dict(LAYOUTS, conv=dict(layout="flatten"))
    optimizer = muonium.Optimizer(weights, recipe, layouts, precision="f32", form="quintic", **lr)
    for t in range(1, 51):
        optimizer.step({spec.name: gradient(1, t, i, weights[spec.name], "f32").astype("f4")
                        for i, spec in enumerate(SPECS)})
    exact = run(recipe, 1, 50, **EXACT, **lr)
    assert distance([w.astype("f8") for w in weights.values()], exact) < 1e-4
    assert optimizer.counters()["steps"] == 50


def make_weights(rng):
    return {"w": rng.standard_normal((24, 16)).astype("f4"), "b": np.zeros(9, "f4"),
            "h": rng.standard_normal((8, 20)).astype("f2")}


def grads_like(rng, weights):
    return {name: rng.standard_normal(w.shape).astype(w.dtype) for name, w in weights.items()}


def test_saving_resumes_bit_for_bit(rng, tmp_path):
    weights = make_weights(rng)
    optimizer = muonium.Optimizer(weights, normuon=True, master=True)
    grads = [grads_like(rng, weights) for _ in range(6)]
    for g in grads[:3]:
        optimizer.step(g)
    optimizer.save(tmp_path / "state.safetensors")
    copies = {name: w.copy() for name, w in weights.items()}
    resumed = muonium.Optimizer(copies, normuon=True, master=True)
    resumed.load(str(tmp_path / "state.safetensors"))
    for g in grads[3:]:
        optimizer.step(g)
        resumed.step(g)
    for name, w in weights.items():
        np.testing.assert_array_equal(copies[name], w)
    with pytest.raises(OSError, match="nowhere"):
        optimizer.save(tmp_path / "nowhere" / "x")
    (tmp_path / "bad").write_bytes(b"no such format")
    with pytest.raises(ValueError):
        optimizer.load(tmp_path / "bad")
    with pytest.raises(ValueError, match="'?other'?|other"):
        muonium.Optimizer({"other": np.zeros((8, 8), "f4")}).load(tmp_path / "state.safetensors")


def test_strided_parameters_and_gradients(rng):
    base, grad = (rng.standard_normal((40, 24)).astype("f4") for _ in range(2))
    packed = np.ascontiguousarray(base.T[::2])
    view = base.T[::2]
    one, two = muonium.Optimizer({"w": packed}), muonium.Optimizer({"w": view})
    one.step({"w": np.ascontiguousarray(grad.T[::2])})
    two.step({"w": grad.T[::2]})
    np.testing.assert_array_equal(packed, view)
    before = packed.copy()
    one.step({})
    one.step({"w": None})
    np.testing.assert_array_equal(packed, before)
    assert one.counters()["skipped"] == 2


def test_rates_can_change(rng):
    weights = make_weights(rng)
    optimizer = muonium.Optimizer(weights, lr=0.1)
    assert (optimizer.lr, optimizer.weight_decay, optimizer.momentum) == (0.1, 0.01, 0.95)
    optimizer.lr = optimizer.weight_decay = 0
    before = {name: w.copy() for name, w in weights.items()}
    optimizer.step(grads_like(rng, weights))
    for name, w in weights.items():
        np.testing.assert_array_equal(w, before[name])
    with pytest.raises(ValueError, match="momentum"):
        optimizer.momentum = 1
    assert optimizer.momentum == 0.95


def test_refusals_of_the_optimizer(rng):
    w = np.zeros((8, 8), "f4")
    frozen = w.copy()
    frozen.flags.writeable = False
    for params, kind, part in [({"w": w.astype("f8")}, TypeError, "f64"),
                               ({"w": w.astype("c8")}, TypeError, "complex64"),
                               ({"w": frozen}, ValueError, "w is read-only"),
                               ({"w": w, "v": w[2:]}, ValueError, "overlaps"),
                               ({"w": np.broadcast_to(w[:1], (8, 8))}, ValueError, "read-only"),
                               ({"w": np.zeros((1,) * 9, "f4")}, ValueError, "9 dimensions"),
                               ({3: w}, TypeError, "strings"), ({"w": [1.0]}, TypeError, "DLPack")]:
        with pytest.raises(kind, match=part):
            muonium.Optimizer(params)
    with pytest.raises(ValueError, match="lr is NaN"):
        muonium.Optimizer({"w": w}, "optax")
    with pytest.raises(ValueError, match="recipe"):
        muonium.Optimizer({"w": w}, "no such")
    with pytest.raises(TypeError, match="did you mean 'nesterov'"):
        muonium.Optimizer({"w": w}, nestrov=True)
    with pytest.raises(ValueError, match="each names 'v'"):
        muonium.Optimizer({"w": w}, each={"v": {}})
    with pytest.raises(ValueError, match="row_splits|rows"):
        muonium.Optimizer({"w": w}, each={"w": {"row_splits": [5, 5]}})
    optimizer = muonium.Optimizer({"w": w})
    for grads, kind, part in [({"v": w}, ValueError, "'v'"), ({"w": w[:4]}, ValueError, "shape"),
                              ({"w": w.astype("f2")}, TypeError, "f16")]:
        with pytest.raises(kind, match=part):
            optimizer.step(grads)
    with pytest.raises(ValueError, match="overlaps"):
        optimizer.step({"w": w})
    bad = w + np.float32(np.inf)
    with pytest.raises(muonium.NonFiniteError, match=r"w is inf at \(0, 0\)"):
        optimizer.step({"w": bad})
    assert (w == 0).all()


# ---- DLPack ----


class Exporter:
    """A producer of capsules by hand: unversioned, or versioned with flags."""

    def __init__(self, values, version=None, flags=0, code=2, device=1, strides=True, offset=0,
                 lanes=1):
        self.values, self.version, self.device = values, version, device
        self.exported = self.deleted = 0
        ndim = values.ndim
        self.sizes = (ctypes.c_int64 * ndim)(*values.shape)
        self.steps = (ctypes.c_int64 * ndim)(*[s // values.itemsize for s in values.strides])
        tensor = _arrays._DLTensor(values.ctypes.data - offset, device, 0, ndim, code,
                                   8 * values.itemsize, lanes, self.sizes,
                                   self.steps if strides else None, offset)
        self.deleter = _arrays._Deleter(self.delete)
        self.managed = (_arrays._Managed(tensor, None, self.deleter) if version is None else
                        _arrays._ManagedVersioned(*version, None, self.deleter, flags, tensor))

    def delete(self, address):
        assert address == ctypes.addressof(self.managed)
        self.deleted += 1

    def __dlpack_device__(self):
        return (self.device, 0)

    def capsule(self):
        self.exported += 1
        name = b"dltensor" if self.version is None else b"dltensor_versioned"
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p,
                                                       ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), name, None)

    def __dlpack__(self, **arguments):
        if self.version is None and arguments:
            raise TypeError("an old producer knows no max_version")
        return self.capsule()


@pytest.mark.parametrize("version", [None, (1, 0), (1, 3)])
@pytest.mark.parametrize("strides", [True, False])
def test_dlpack_is_not_copied(rng, version, strides):
    values = rng.standard_normal((12, 8)).astype("f4")
    grad = rng.standard_normal((12, 8)).astype("f4")
    twin = values.copy()
    exporter = Exporter(values, version, strides=strides, offset=64)
    optimizer = muonium.Optimizer({"w": exporter})
    source = Exporter(grad, version)
    optimizer.step({"w": source})
    assert (exporter.exported - exporter.deleted, source.exported - source.deleted) == (1, 0)
    muonium.Optimizer({"w": twin}).step({"w": grad})
    np.testing.assert_array_equal(values, twin)
    del optimizer
    assert exporter.exported == exporter.deleted
    out = Exporter(np.zeros((12, 8), "f4"), version)
    muonium.orthogonalize(Exporter(grad, version), out=OutOf(out))
    np.testing.assert_array_equal(out.values, muonium.orthogonalize(grad))


class OutOf:
    """An output has a shape, too."""

    def __init__(self, exporter):
        self.shape = exporter.values.shape
        self.__dlpack__, self.__dlpack_device__ = exporter.__dlpack__, exporter.__dlpack_device__


def test_dlpack_of_bfloat16(rng):
    values = rng.standard_normal((12, 8)).astype("f4")
    bits = (values.view("u4") >> 16).astype("u2")
    expected = muonium.orthogonalize((bits.astype("u4") << 16).view("f4"))
    found = muonium.orthogonalize(Exporter(bits, (1, 0), code=4))
    assert found.dtype == "f4"
    np.testing.assert_array_equal(found, expected)


def test_dlpack_refusals(rng):
    values = np.zeros((12, 8), "f4")
    for exporter, kind, part in [
            (Exporter(values, (1, 0), flags=1), ValueError, "read-only"),
            (Exporter(values, (1, 0), flags=2), ValueError, "copied"),
            (Exporter(values, (2, 0)), TypeError, r"2\.0"),
            (Exporter(values, code=0), TypeError, "type"),
            (Exporter(values, lanes=2), TypeError, "lanes")]:
        with pytest.raises(kind, match=part):
            muonium.Optimizer({"w": exporter})
        assert exporter.deleted == 1
    on_device = Exporter(values, device=2)
    with pytest.raises(ValueError, match="device"):
        muonium.Optimizer({"w": on_device})
    assert on_device.deleted == 0
    muonium.orthogonalize(Exporter(values, (1, 0), flags=1))  # reading is fine
    muonium.Optimizer({"w": Exporter(values, device=3)})      # and so is pinned memory
    used = Exporter(values)
    capsule = used.capsule()
    used.__dlpack__ = lambda **arguments: capsule
    Exporter.__dlpack__, original = lambda self, **a: capsule, Exporter.__dlpack__
    try:
        muonium.orthogonalize(used)
        with pytest.raises(TypeError, match="used"):
            muonium.orthogonalize(used)
    finally:
        Exporter.__dlpack__ = original


# ---- threads and processes ----


def test_many_threads(rng):
    """Optimizers side by side give what each gives alone, and leave Python free."""
    def trained(seed):
        own = np.random.default_rng(seed)
        weights = make_weights(own)
        optimizer = muonium.Optimizer(weights)
        for _ in range(20):
            optimizer.step(grads_like(own, weights))
        return weights

    found = {}
    workers = [threading.Thread(target=lambda s=s: found.update({s: trained(s)}))
               for s in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for seed in range(8):
        for name, w in trained(seed).items():
            np.testing.assert_array_equal(found[seed][name], w)


def test_the_gil_is_released(rng):
    x = rng.standard_normal((1, 768, 768)).astype("f4")
    beats, done = [], threading.Event()

    def beat():
        while not done.is_set():
            beats.append(time.monotonic())
            time.sleep(0.0005)

    worker = threading.Thread(target=beat)
    worker.start()
    start = time.monotonic()
    muonium.orthogonalize(x, steps=64)
    end = time.monotonic()
    done.set()
    worker.join()
    assert sum(start < t < end for t in beats) >= 3


def test_fork(rng):
    x = rng.standard_normal((300, 200)).astype("f4")
    expected = muonium.orthogonalize(x)
    child = os.fork()
    if child == 0:
        same = (muonium.orthogonalize(x) == expected).all()
        os._exit(0 if same else 1)
    deadline = time.monotonic() + 60
    while (waited := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if waited == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert waited == (child, 0)


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="the sanitizer keeps hundreds of MB of what is freed")
def test_nothing_leaks(rng):
    """Memory does not grow over many optimizers, steps and loans."""
    def resident():
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def work(times):
        for _ in range(times):
            weights = {"w": np.zeros((256, 128), "f4"), "v": Exporter(np.ones((64, 64), "f4"))}
            muonium.Optimizer(weights).step({"w": np.ones((256, 128), "f4")})
    work(50)
    before = resident()
    work(200)  # a leak of one parameter's state each would be 26 MB
    assert resident() - before < 10 * 2**20

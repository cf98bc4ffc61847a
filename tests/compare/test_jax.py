"""muonium.jax: results, transformations, memory, threads and errors."""
import concurrent.futures
import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from beside import BF16, EPS, F16, LIBRARY, ROOT

import muonium
import muonium.jax
from muonium import _library
from muonium.jax import call, orthogonalize

jax.config.update("jax_platforms", "cpu")


def normal(*shape, seed=1, dtype="float32"):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape).astype("f4")).astype(dtype)


def same_bits(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def run_python(program, **environment):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={
        **os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'tests/compare'}",
        "MUONIUM_LIBRARY": str(LIBRARY), **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_layout():
    """The structs of src/xla/ffi.h are those of the installed jaxlib."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    subprocess.run([compiler, "-std=c11", "-Wall", "-Werror", "-fsyntax-only", f"-I{ROOT / 'src'}",
                    f"-I{jax.ffi.include_dir()}", ROOT / "tests/compare/xla_layout.c"], check=True)


# ---- results ----


@pytest.mark.parametrize("options", [
    {}, {"steps": 8}, {"coefficients": "original"}, {"coefficients": (2.0, -1.5, 0.5)},
    {"coefficients": [(4.0, -6.0, 2.5), (2.0, -1.5, 0.5)], "steps": 4}, {"normalize": "aol"},
    {"eps_mode": "add", "eps": 0.1}, {"precision": "bf16", "rounding": "torch"},
    {"precision": "fixed15"}, {"form": "gram"},
    {"form": "direct", "direct_set": muonium.direct_sets()[-1]},
    {"safety": 0.01, "cushion": 0.1, "lower": 1e-4}, {"safety_factor": 1.5}], ids=str)
def test_options_give_the_bits_of_the_other_function(options):
    x = normal(3, 12, 20)
    expected = muonium.orthogonalize(np.array(x), **options)
    assert same_bits(orthogonalize(x, **options), expected)
    assert same_bits(jax.jit(lambda x: orthogonalize(x, **options))(x), expected)


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (40, 16), (2, 3, 5, 9, 6)], ids=str)
def test_ranks(shape):
    x = normal(*shape)
    assert same_bits(orthogonalize(x), muonium.orthogonalize(np.array(x)))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 3, 4)], ids=str)
def test_empty(shape):
    assert orthogonalize(jnp.zeros(shape)).shape == shape


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", BF16),
                                              ("float16", F16)])
def test_types(dtype, tolerance):
    """Against f64 on the same numbers: a half type rounds the result alone."""
    x = normal(24, 40, dtype=dtype)
    found = orthogonalize(x)
    expected = muonium.orthogonalize(np.array(x, "f8"), precision="f64")
    assert found.dtype == x.dtype
    assert (np.linalg.norm(np.asarray(found, "f8") - expected)
            <= tolerance * np.linalg.norm(expected))


def test_float64():
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(3).standard_normal((9, 14)))
        assert x.dtype == jnp.float64
        expected = muonium.orthogonalize(np.array(x), precision="f64")
        assert same_bits(orthogonalize(x), expected)
        mixed = orthogonalize({"d": x, "s": x.astype("f4")})
        assert same_bits(mixed["d"], expected) and mixed["s"].dtype == jnp.float32


def test_a_tree_is_one_call():
    tree = {"a": normal(8, 12), "b": [normal(8, 12, seed=2), normal(3, 8, 12), normal(12, 8)]}
    assert str(jax.make_jaxpr(orthogonalize)(tree)).count("muonium_orthogonalize[") == 1
    for found, x in zip(jax.tree.leaves(jax.jit(orthogonalize)(tree)), jax.tree.leaves(tree)):
        assert same_bits(found, orthogonalize(x))
    assert orthogonalize([]) == []


def test_nonfinite():
    x = normal(2, 6, 9).at[1, 2, 3].set(jnp.nan)
    found = np.array(orthogonalize(x))
    assert same_bits(found[0], orthogonalize(x[0])) and np.isnan(found[1]).all()
    assert not np.array(orthogonalize(x, nonfinite="skip"))[1].any()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"element \(1, 2, 3\) .* is nan"):
        jax.block_until_ready(orthogonalize(x, nonfinite="error"))
    assert same_bits(orthogonalize(x[0]), found[0])  # nothing is broken by it


# ---- transformations ----


def test_vmap_is_one_call():
    x = normal(3, 4, 6, 9)
    batched = jax.vmap(jax.vmap(orthogonalize, in_axes=1, out_axes=1))
    program = str(jax.make_jaxpr(batched)(x))
    assert program.count("muonium_orthogonalize[") == 1 and "scan" not in program
    expected = [[orthogonalize(x[i, :, j]) for j in range(6)] for i in range(3)]
    expected = np.moveaxis(np.array(expected), 1, 2)
    assert same_bits(jax.jit(batched)(x), expected)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, 0)], ids=str)
@pytest.mark.parametrize("outer", [(None, None), (0, None), (None, 0), (0, 0)], ids=str)
def test_vmap_with_tables(axes, outer):
    """Matrices and tables of coefficients, each of a batch or one for all, in two levels."""
    tables = jnp.array([[2.0, -1.5, 0.5], [3.4445, -4.775, 2.0315], [1.5, -0.5, 0.0]])
    x, table, both = normal(2, 3, 3, 6), jnp.stack([tables, tables / 1.02]), normal(3, 6, seed=4)
    settings = muonium.jax._prepare((("nonfinite", "propagate"),))[1]

    def one(x, y, table):
        return call([x, y], settings, table.reshape(1, 3))

    x = x if outer[0] == 0 else x[0]
    table = table if outer[1] == 0 else table[0]
    x = x if axes[0] is not None else x[..., 0, :, :]
    table = table if axes[1] is not None else table[..., 0, :]
    if axes[0] is None:
        x = normal(*x.shape[:-2], 3, 6, seed=5)
    function = jax.vmap(one, in_axes=(axes[0], None, axes[1]))
    if outer != (None, None):
        function = jax.vmap(function, in_axes=(outer[0], None, outer[1]))
    found = jax.jit(function)(x, both, table)
    for i in range(2 if outer != (None, None) else 1):
        for j in range(3):
            xi = x[i] if outer[0] == 0 else x
            ti = table[i] if outer[1] == 0 else table
            xj = xi if axes[0] is None else jnp.take(xi, j, axis=axes[0])
            tj = ti if axes[1] is None else ti[j]
            place = (i, j) if outer != (None, None) else (j,)
            for got, expected in zip(found, one(xj, both, tj)):
                # An output that no vmap touches is broadcast to all.
                assert same_bits(got[place], expected)


def test_scan():
    x = normal(5, 6, 9)
    found = jax.jit(lambda x: jax.lax.scan(lambda c, x: (c, orthogonalize(x)), 0, x)[1])(x)
    assert same_bits(found, orthogonalize(x))


def test_shard_map():
    """Each of two devices has half of the batch; both call the library at the same time."""
    run_python("""
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
from muonium.jax import orthogonalize
x = jax.random.normal(jax.random.key(0), (6, 64, 96))
mesh = jax.make_mesh((2,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
for check in (True, False):
    f = jax.jit(jax.shard_map(orthogonalize, mesh=mesh, in_specs=P("batch"), out_specs=P("batch"),
                              check_vma=check))
    text = f.lower(x).compile().as_text()
    assert "f32[3,64,96]" in text and "all-gather" not in text
    for _ in range(20):
        assert np.array_equal(f(x), orthogonalize(x))
y = jax.device_put(x, jax.sharding.NamedSharding(mesh, P("batch")))
assert np.array_equal(jax.jit(orthogonalize)(y), orthogonalize(x))
""", XLA_FLAGS=os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2")


def test_bits_do_not_depend_on_jit():
    x, y = normal(40, 24), normal(3, 24, 24)
    for options in ({}, {"steps": 8}, {"precision": "bf16"}, {"form": "standard"}):
        plain = orthogonalize((x, y), **options)
        jitted = jax.jit(lambda z, options=options: orthogonalize(z, **options))((x, y))
        assert same_bits(plain[0], jitted[0]) and same_bits(plain[1], jitted[1])


TWO_DEVICES = """
import jax, optax
import beside, muonium.optax
cpu, accelerator = jax.devices()
params = jax.device_put({"w": jax.numpy.ones((8, 6)), "b": jax.numpy.ones(6)}, accelerator)
grads = jax.device_put({"w": jax.random.normal(jax.random.key(0), (8, 6)), "b": jax.numpy.ones(6)},
                       accelerator)
optimizer = muonium.optax.muon(0.02)
expected, other = params, optimizer.init(params)
state = optimizer.init(jax.device_put(params, cpu))
update = jax.jit(optimizer.update)
for _ in range(3):
    updates, state = update(jax.device_put(grads, cpu), state, jax.device_put(params, cpu))
    params = optax.apply_updates(params, jax.device_put(updates, accelerator))
    moved, other = update(grads, other, expected)
    expected = optax.apply_updates(expected, moved)
assert all(leaf.devices() == {cpu} for leaf in jax.tree.leaves(state))
assert all(leaf.devices() == {accelerator} for leaf in jax.tree.leaves(params))
assert (params["w"] == expected["w"]).all() and (params["b"] == expected["b"]).all()
try:
    update(jax.device_put(grads, cpu), optimizer.init(params), jax.device_put(params, cpu))
except ValueError as error:
    assert "incompatible devices" in str(error), error
else:
    raise AssertionError("the state must be on the CPU, too")
print("done")
"""


def test_the_update_of_a_model_on_another_device():
    """As docs/jax.md writes it for a GPU."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    assert run_python(TWO_DEVICES, XLA_FLAGS=flags) == "done\n"


def test_donation_works_in_place():
    """No second array: the result is the memory of the argument, and nothing is copied."""
    x = 2 * normal(64, 96)  # memory of XLA, not of NumPy
    expected = np.array(orthogonalize(x))
    compiled = jax.jit(orthogonalize, donate_argnums=0).lower(x).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == x.nbytes and memory.temp_size_in_bytes == 0
    assert " copy(" not in compiled.as_text()
    address = x.unsafe_buffer_pointer()
    found = compiled(x)
    assert x.is_deleted() and found.unsafe_buffer_pointer() == address
    assert same_bits(found, expected)


def test_an_argument_that_is_not_donated_stays():
    x = normal(64, 96)
    before = np.array(x)
    jax.block_until_ready(jax.jit(lambda x: orthogonalize(x) + orthogonalize(2 * x))(x))
    assert same_bits(x, before)


# ---- threads ----


def test_bits_depend_on_no_thread_count():
    tree = [normal(200, 300), normal(5, 40, 30), normal(40, 30), normal(700, 600)]
    function = jax.jit(orthogonalize)
    results = []
    try:
        for threads in (1, 2, 3, 8):
            muonium.set_threads(threads)
            results.append(jax.tree.map(np.array, function(tree)))
    finally:
        muonium.set_threads(0)
    for result in results[1:]:
        assert all(map(same_bits, result, results[0]))


def test_callers_at_the_same_time():
    """Programs on several threads, while another call has the pool: one gets it, the others work
    alone."""
    xs = [normal(150, 200, seed=i) for i in range(4)]
    function = jax.jit(orthogonalize)
    expected = [np.array(function(x)) for x in xs]
    large = np.array(normal(600, 600))

    def often(i):
        if i == len(xs):
            return [muonium.orthogonalize(large) for _ in range(5)] is not None
        return all(same_bits(function(xs[i]), expected[i]) for _ in range(15))

    with concurrent.futures.ThreadPoolExecutor(len(xs) + 1) as pool:
        assert all(pool.map(often, range(len(xs) + 1)))


def test_independent_calls_of_one_program():
    """XLA may run them at the same time."""
    xs = [normal(n, 90) for n in (60, 61, 62, 63)]
    function = jax.jit(lambda xs: [orthogonalize(x) for x in xs])
    expected = [np.array(orthogonalize(x)) for x in xs]
    for _ in range(10):
        assert all(map(same_bits, function(xs), expected))


# ---- errors ----


def test_no_derivative():
    x = normal(4, 6)
    for derive in (jax.grad, jax.jacfwd):
        with pytest.raises(NotImplementedError, match="has no derivative: .*stop_gradient"):
            derive(lambda x: orthogonalize(x).sum())(x)
    constant = jax.grad(lambda x: (x * orthogonalize(jax.lax.stop_gradient(x))).sum())(x)
    assert same_bits(constant, orthogonalize(x))


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
def test_other_platforms(platform):
    traced = jax.jit(orthogonalize).trace(normal(4, 6))
    with pytest.raises(NotImplementedError, match=f"computes on the CPU, .* for {platform}.*"
                                                  "Ways out: .*optax.contrib.muon"):
        traced.lower(lowering_platforms=(platform,))


@pytest.mark.parametrize("kind, x, options, message", [
    (ValueError, np.zeros(3, "f4"), {}, r"x has shape \(3,\)"),
    (TypeError, np.zeros((3, 3), "i4"), {}, "x has elements of type int32: use float32"),
    (TypeError, np.zeros((3, 3), "c8"), {}, "complex64"),
    (ValueError, np.zeros((3, 3), "f4"), {"steps": 65}, "steps is 65"),
    (ValueError, np.zeros((3, 3), "f4"), {"form": "fast"}, "form is 'fast': use one of auto"),
    (ValueError, np.zeros((3, 3), "f4"), {"eps": 0.1}, "without an eps_mode"),
    (ValueError, np.zeros((3, 3), "f4"), {"form": "direct", "steps": 7}, "form is direct"),
    (ValueError, np.zeros((3, 3), "f4"), {"coefficients": "orignal"}, "orignal"),
    (TypeError, np.zeros((3, 3), "f4"), {"coefficients": 3}, "coefficients is 3"),
    ], ids=str)
def test_errors_while_tracing(kind, x, options, message):
    with pytest.raises(kind, match=message):
        jax.jit(lambda x: orthogonalize(x, **options)).trace(x)


def test_traced_coefficients():
    with pytest.raises(TypeError, match="known when the function is traced"):
        jax.jit(lambda c: orthogonalize(jnp.eye(3), coefficients=c))(jnp.ones(3))


def test_every_option_has_its_text():
    """Whatever of the plan differs from the defaults reaches the handler."""
    options = _library.options_of("fp16")
    settings = dict(muonium.jax.settings_of(options))
    assert settings["precision"] == "f16" and settings["eps_mode"] == "add"
    np.testing.assert_allclose(settings["table"], np.array([3.4445, -4.775, 2.0315]) / 1.02,
                               rtol=2 * EPS**2)
    assert muonium.jax.settings_of(_library.options_of()) == ()

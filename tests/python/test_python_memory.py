"""From Python objects to addresses: whatever memory is not there, not lasting or not to be
written is refused by name with nothing changed, and everything else is alive while its address
is used. All of it runs a second time under allocators that poison what is freed.

The library is that of MUONIUM_BUILD_DIR, by default build/ of the source tree.
"""
import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import torch_isa

torch_isa.prepare()
torch = pytest.importorskip("torch")

from package import ROOT

import muonium  # noqa: E402
from muonium.torch import Muon  # noqa: E402

torch.set_num_threads(1)
POISONED = "MUONIUM_TEST_POISONED" in os.environ


def test_all_of_this_under_a_poisoning_allocator():
    if POISONED:
        return  # this is that run
    files = [__file__, str(ROOT / "tests/python/test_python_layouts.py")]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
                          env=dict(os.environ, PYTHONMALLOC="debug", MALLOC_PERTURB_="165",
                                   MUONIUM_TEST_POISONED="1"),
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def churn():
    """Have freed memory used again."""
    gc.collect()
    return [np.full(n, 1e30, "f4") for n in range(1, 200)]


# ---- scalars ----


@pytest.mark.parametrize("kind", ["f4", "f2"])
def test_scalars_are_gradients_as_arrays_are(kind):
    one, other = {"s": np.ones((), kind), "t": np.ones((), kind)}, {"s": np.ones((), kind),
                                                                    "t": np.ones((), kind)}
    left, right = muonium.Optimizer(one, lr=0.1), muonium.Optimizer(other, lr=0.1)
    for step in range(5):
        grads = {"s": np.array([step, 0.5], kind).sum(), "t": np.array([step, -9.5], kind).sum()}
        assert isinstance(grads["s"], np.generic)
        left.step(grads)
        right.step({name: np.array(value) for name, value in grads.items()})
        assert one == other
    assert one["s"] < 1 < one["t"]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_scalars_are_no_parameters(kind):
    with pytest.raises(TypeError, match="gain is a NumPy scalar.*immutable"):
        muonium.Optimizer({"gain": kind(1)})


# ---- arrays that must not be written ----


class Immutable:
    """An array as JAX has them: memory by DLPack that nothing marks as read-only."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __array__(self, dtype=None):
        view = self.values.view()
        view.flags.writeable = False
        return view

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **arguments):
        return torch.from_numpy(self.values).__dlpack__()


class Jax(Immutable):
    def __array__(self, dtype=None):
        return self.values.copy()


Jax.__module__ = "jaxlib.xla_extension"


@pytest.mark.parametrize("kind, error, part", [(Jax, TypeError, "w is an array of JAX.*numpy.array"),
                                               (Immutable, ValueError, "w is read-only.*copy")])
def test_immutable_arrays_are_gradients_but_not_parameters(kind, error, part):
    values = np.full((8, 8), 2, "f4")
    with pytest.raises(error, match=part):
        muonium.Optimizer({"w": kind(values)})
    with pytest.raises(error, match=part.replace("w is", "out is")):
        muonium.orthogonalize(np.eye(8, dtype="f4"), out=kind(values))
    assert (values == 2).all()
    one, other = np.zeros((8, 8), "f4"), np.zeros((8, 8), "f4")
    grad = np.random.default_rng(1).standard_normal((8, 8)).astype("f4")
    muonium.Optimizer({"w": one}).step({"w": kind(grad)})
    muonium.Optimizer({"w": other}).step({"w": grad})
    np.testing.assert_array_equal(one, other)


def test_read_only_from_a_step_on():
    w = np.zeros((8, 8), "f4")
    optimizer = muonium.Optimizer({"w": w})
    w.flags.writeable = False
    with pytest.raises(ValueError, match="w is read-only"):
        optimizer.step({"w": np.ones((8, 8), "f4")})
    assert (w == 0).all()


# ---- memory that does not last ----


class Fleeting:
    """Describes a new array each time, which nothing but the description keeps alive."""

    def __init__(self, values):
        self.values = values

    @property
    def __array_interface__(self):
        copy = self.values.copy()
        return dict(copy.__array_interface__, keeps=copy)


def test_what_a_description_keeps_alive_is_kept():
    w, grad = np.zeros(4096, "f4"), np.linspace(-1, 1, 4096, dtype="f4")
    other = w.copy()
    muonium.Optimizer({"w": w}).step({"w": Fleeting(grad)})
    muonium.Optimizer({"w": other}).step({"w": grad})
    np.testing.assert_array_equal(w, other)
    x = np.random.default_rng(2).standard_normal((64, 80)).astype("f4")
    np.testing.assert_array_equal(muonium.orthogonalize(Fleeting(x)), muonium.orthogonalize(x))


def test_only_the_optimizer_knows_its_parameters():
    """Views without owners, and capsules."""
    kept = np.zeros((3, 8, 8), "f4")
    optimizer = muonium.Optimizer({"a": kept[1].T, "b": torch.zeros(8, 8),
                                   "c": np.zeros((4, 8, 8), "f4")[2]})
    rubbish = churn()
    optimizer.step({name: np.eye(8, dtype="f4") for name in "ac"} | {"b": torch.eye(8)})
    assert kept[1].any() and not kept[0].any() and not kept[2].any()
    assert all((x == np.float32(1e30)).all() for x in rubbish)


def test_state_outlives_its_optimizer():
    p = torch.nn.Parameter(torch.zeros(64, 64))
    optimizer = Muon([p])
    p.grad = torch.eye(64)
    optimizer.step()
    momentum = optimizer.state_dict()["state"][0]["momentum_buffer"]
    before = momentum.clone()
    del optimizer
    churn()
    assert torch.equal(momentum, before)


# ---- arrays that were resized or freed ----


def test_resized_arrays_are_refused():
    for change in (lambda w: w.resize(4, refcheck=False), lambda w: setattr(w, "shape", (8, 32)),
                   lambda w: setattr(w, "dtype", "f2")):
        w = np.zeros((16, 16), "f4")
        optimizer = muonium.Optimizer({"w": w})
        change(w)
        with pytest.raises(ValueError, match=r"w was \(16, 16\) of f32.*make a new optimizer"):
            optimizer.step({"w": np.ones((16, 16), "f4")})
        assert not w.any()


def resize(t, elements):
    storage = t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()
    storage.resize_(elements * (t.element_size() if hasattr(t, "untyped_storage") else 1))


@pytest.mark.parametrize("elements", [0, 7])
def test_freed_storages_are_refused(elements, tmp_path):
    def broken(*shape):
        t = torch.ones(shape)
        resize(t, elements)
        return t

    part = "no memory|beyond its storage"
    with pytest.raises(ValueError, match=f"^'w' .*({part})"):
        Muon([("w", torch.nn.Parameter(broken(64, 64)))])
    with pytest.raises(ValueError, match=f"^w .*({part})"):
        muonium.Optimizer({"w": broken(64, 64)})
    with pytest.raises(ValueError, match=f"^x .*({part})"):
        muonium.orthogonalize(broken(64, 64))
    for route in (True, False):  # a parameter, or its gradient, between steps
        p, q = (torch.nn.Parameter(torch.ones(64, 64)) for _ in range(2))
        optimizer = Muon([{"params": [("p", p), ("q", q)], "use_muon": route}])
        for step in range(2):
            p.grad, q.grad = torch.ones(64, 64), torch.ones(64, 64)
            optimizer.step()
        before, state = p.detach().clone(), optimizer.state_dict()["state"]
        resize(q.grad, elements)
        with pytest.raises(ValueError, match=f"^the gradient of 'q' .*({part})"):
            optimizer.step()
        q.grad = torch.ones(64, 64)
        resize(q.data, elements)
        with pytest.raises(ValueError, match=f"^'q' .*({part})"):
            optimizer.step()
        assert torch.equal(p, before) and optimizer.state_dict()["state"][0]["step"] == 2
        resize(q.data, 64 * 64)  # as sharding does it
        with torch.no_grad():
            q.fill_(1)
        optimizer.step()
        assert optimizer.state_dict()["state"][0]["step"] == 3 and state[0]["step"] == 2
    w = torch.ones(64, 64)
    optimizer = muonium.Optimizer({"w": w})
    resize(w, elements)
    with pytest.raises(ValueError, match=f"^w .*({part})"):
        optimizer.step({"w": np.ones((64, 64), "f4")})


def test_storages_resized_twice_are_refused():
    """The second time they may be given the memory that they had at first."""
    for size in range(1000, 1200):
        for which in ("parameter", "gradient"):
            p = torch.nn.Parameter(torch.ones(size))
            optimizer = Muon([("w", p)])
            p.grad = torch.ones(size)
            optimizer.step()
            t = p.data if which == "parameter" else p.grad
            resize(t, size // 2)
            resize(t, size - 16)  # not quite what it had
            with pytest.raises(ValueError, match="w'.* beyond its storage"):
                optimizer.step()


def test_freed_state_is_refused():
    p = torch.nn.Parameter(torch.zeros(8, 8))
    optimizer = Muon([("w", p)])
    p.grad = torch.eye(8)
    optimizer.step()
    state = optimizer.state_dict()
    for elements in (0, 7):
        broken = torch.ones(8, 8)
        resize(broken, elements)
        entry = {**state["state"][0], "momentum_buffer": broken}
        with pytest.raises(ValueError, match="momentum_buffer of 'w'"):
            optimizer.load_state_dict({**state, "state": {0: entry}})
    assert torch.equal(optimizer.state_dict()["state"][0]["momentum_buffer"], 0.05 * torch.eye(8))


# ---- strides of 0 ----


@pytest.mark.parametrize("shape", [(64, 64), (64,)])
def test_broadcast_parameters_are_refused(shape):
    one = torch.zeros(())
    with pytest.raises(ValueError, match="strides of w: .*overlap.*copy"):
        Muon([("w", one.expand(*shape).detach().requires_grad_())])
    with pytest.raises(ValueError, match="strides of w: .*overlap"):
        muonium.Optimizer({"w": one.expand(*shape)})
    array = np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), shape, (0,) * len(shape))
    with pytest.raises(ValueError, match="strides of w: .*overlap"):
        muonium.Optimizer({"w": array})
    assert one == 0


@pytest.mark.parametrize("use_muon", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_broadcast_gradients_are_read(use_muon, late):
    weights = torch.randn(48, 64)
    left, right = torch.nn.Parameter(weights.clone()), torch.nn.Parameter(weights.clone())
    if not late:  # the first gradient that the optimizer sees
        left.grad = torch.ones(()).expand(48, 64)
    optimizers = [Muon([{"params": [("w", p)], "use_muon": use_muon}]) for p in (left, right)]
    for row in (torch.ones(()), torch.randn(64), torch.randn(48, 1), torch.randn(48, 64)):
        left.grad, right.grad = row.expand(48, 64), row.expand(48, 64).clone()
        for optimizer in optimizers:
            optimizer.step()
        assert torch.equal(left, right)


def test_negative_views_are_read_or_refused():
    source = torch.tensor([1 + 2j])
    p, q = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    grads = source.conj().imag, torch.tensor([-2.0])
    assert grads[0].is_neg()
    for one, grad in zip((p, q), grads):
        optimizer = Muon([one])
        for _ in range(2):
            one.grad = grad
            optimizer.step()
    assert torch.equal(p, q) and p > 0
    with pytest.raises(ValueError, match="'w' is a negative view"):
        Muon([("w", source.conj().imag.requires_grad_())])


# ---- nothing to do ----


def test_steps_without_parameters_or_gradients(tmp_path):
    frozen = torch.nn.Parameter(torch.ones(8, 8), requires_grad=False)
    optimizer = Muon([frozen])
    optimizer.step()
    assert optimizer.step(lambda: 3.0) == 3.0
    trained = torch.nn.Parameter(torch.ones(8, 8))
    optimizer.add_param_group({"params": [trained]})
    optimizer.step()
    assert torch.equal(trained, torch.ones(8, 8)) and not optimizer.state_dict()["state"]
    muonium.Optimizer({}).step({})
    w = np.ones((8, 8), "f4")
    optimizer = muonium.Optimizer({"w": w})
    optimizer.step({})
    optimizer.step({"w": None})
    assert (w == 1).all()


def test_parameters_without_elements(tmp_path):
    shapes = [(0,), (0, 5), (5, 0), (2, 0, 3)]
    named = [(f"e{i}", torch.nn.Parameter(torch.zeros(shape))) for i, shape in enumerate(shapes)]
    w = torch.nn.Parameter(torch.ones(8, 8))
    optimizer = Muon([*named, ("w", w)])
    assert [report.reason for report in optimizer.report()] == ["empty"] * 4 + ["ok"]
    for _ in range(2):
        for _, p in named:
            p.grad = torch.zeros_like(p)
        w.grad = torch.eye(8)
        optimizer.step()
    state = optimizer.state_dict()
    state["state"][0] = {"step": 2, "exp_avg": torch.zeros(0), "exp_avg_sq": torch.zeros(0)}
    optimizer.load_state_dict(state)  # as other optimizers save it
    assert optimizer.state_dict()["state"][0]["exp_avg"].shape == (0,)
    optimizer.step()
    path = tmp_path / "state.safetensors"
    optimizer.save(path)
    optimizer.load(path)
    arrays = {f"e{i}": np.zeros(shape, "f4") for i, shape in enumerate(shapes)}
    optimizer = muonium.Optimizer(arrays)
    optimizer.step(arrays | {"e0": np.zeros((0,), "f4")})
    optimizer.save(path)
    optimizer.load(path)


# ---- numbers and texts that C cannot hold ----


def test_numbers_beyond_their_types():
    w = np.zeros((8, 8), "f4")
    for options in ({"steps": 2**32 + 5}, {"steps": -1}, {"steps": 2**31}, {"min_dim": 2**64 + 1},
                    {"seed": 2**64 + 3}, {"seed": -1}, {"scratch_bytes": 2**64},
                    {"generated_rows": 2**32 + 1}, {"heads": 2**64 + 2}, {"heads": -2},
                    {"row_splits": [2**64 + 8]}, {"row_splits": [16, -8]}, {"lr": 10**400}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} is "):
            muonium.Optimizer({"w": w}, **options)
        with pytest.raises(ValueError, match=f"{next(iter(options))} is "):
            muonium.route({"w": (8, 8)}, **options)
    with pytest.raises(ValueError, match="steps is "):
        Muon([torch.nn.Parameter(torch.zeros(8, 8))], ns_steps=2**32 + 5)
    for call, part in [(lambda: muonium.orthogonalize(w, steps=2**32 + 5), "steps"),
                       (lambda: muonium.polar_express(2**32 + 5), "steps"),
                       (lambda: muonium.polar_cubic(-1), "steps"),
                       (lambda: muonium.set_threads(2**32 + 1), "threads"),
                       (lambda: muonium.set_threads(-1), "threads"),
                       (lambda: muonium.route({"w": (2**64 + 8, 8)}), "shape of w"),
                       (lambda: muonium.route({"w": (-8, 8)}), "shape of w")]:
        with pytest.raises(ValueError, match=f"{part} is "):
            call()


def test_texts_that_would_end_early(tmp_path):
    w = np.zeros((8, 8), "f4")
    optimizer = muonium.Optimizer({"w": w})
    path = str(tmp_path / "state")
    for call, part in [(lambda: muonium.Optimizer({"w\0x": w}), "a name is"),
                       (lambda: Muon([("w\0x", torch.nn.Parameter(torch.zeros(8, 8)))]), "a name is"),
                       (lambda: muonium.Optimizer({"w": w}, "torch\0"), "recipe is"),
                       (lambda: muonium.Optimizer({"w": w}, coefficients="cans\0"), "coefficients is"),
                       (lambda: muonium.Optimizer({"w": w}, direct_set="P12\0"), "direct_set is"),
                       (lambda: muonium.Optimizer({"w": w}, patterns=["a\0b"]), "a pattern is"),
                       (lambda: optimizer.save(path + "\0.old"), "the path is"),
                       (lambda: optimizer.load(os.fsencode(path) + b"\0.old"), "the path is")]:
        with pytest.raises(ValueError, match=f"{part}.*NUL"):
            call()
    with pytest.raises(ValueError, match="a name is .*not Unicode"):
        muonium.Optimizer({"w\udc80": w})
    assert not os.listdir(tmp_path)


# ---- state dicts ----


@pytest.mark.parametrize("step", [-1, -0.5, 2.5, float("nan"), float("inf"), 2**53 + 1, 2**63, 2**64 + 3, 1e30,
                                  "x", None, torch.tensor([1.0, 2.0]), torch.tensor(-3.0)])
def test_absurd_steps_are_refused(step):
    params = [torch.nn.Parameter(torch.ones(8, 8)), torch.nn.Parameter(torch.ones(8))]
    optimizer = Muon([("w", params[0]), ("v", params[1])])
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    before = optimizer.state_dict()
    absurd = optimizer.state_dict()
    absurd["state"][0] = {**absurd["state"][0], "step": 7,
                          "momentum_buffer": torch.ones(8, 8)}
    absurd["state"][1] = {**absurd["state"][1], "step": step}
    for group in ({}, {"recipe": None}):  # ours, and a foreign one
        groups = [{key: value for key, value in g.items() if key not in group}
                  for g in absurd["param_groups"]]
        with pytest.raises(ValueError, match="^step of 'v' is "):
            optimizer.load_state_dict({"state": absurd["state"], "param_groups": groups})
        after = optimizer.state_dict()
        assert after["param_groups"] == before["param_groups"]
        for i in range(2):
            assert all(torch.equal(after["state"][i][key], value)
                       for key, value in before["state"][i].items())


def test_steps_are_counted_exactly():
    p = torch.nn.Parameter(torch.ones(8))
    optimizer = Muon([p])
    p.grad = torch.ones(8)
    optimizer.step()
    state = optimizer.state_dict()
    for count in (2**24 + 1, 2**40 + 1):
        state["state"][0]["step"] = torch.tensor(float(count), dtype=torch.float64)
        optimizer.load_state_dict(state)
        assert int(optimizer.state_dict()["state"][0]["step"]) == count
        optimizer.step()
        assert int(optimizer.state_dict()["state"][0]["step"]) == count + 1

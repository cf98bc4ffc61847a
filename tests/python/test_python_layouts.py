"""Parameters and gradients in every layout that PyTorch and NumPy can give them: a step moves
them as it moves contiguous copies, bit for bit and as torch.optim.AdamW or a plain Muon would,
or refuses them by name with nothing changed. MUONIUM_TEST_SEED repeats a run.

The library is that of MUONIUM_BUILD_DIR, by default build/ of the source tree.
"""
import itertools
import re

import numpy as np
import pytest

import torch_isa

torch_isa.prepare()
torch = pytest.importorskip("torch")

from package import SEED

import muonium  # noqa: E402
from muonium.torch import Muon  # noqa: E402
from plain_muon import PlainMuon  # noqa: E402

torch.set_num_threads(1)
STEPS, LR, CASES = 3, 0.02, 40


@pytest.fixture
def rng(request):
    print(f"MUONIUM_TEST_SEED={SEED}")
    return np.random.default_rng([SEED, *request.node.name.encode()])


def random_shape(rng, matrix):
    return tuple(rng.integers(2, 24, 2 if matrix else rng.integers(1, 4)).tolist())


def guarded(shape, dtype):
    """Memory around an array, all of it 7, and where in each dimension the array lies."""
    around = np.full([2 * n + 3 for n in shape], 7, dtype)
    return around, (..., *[slice(1, 2 * n + 1, 2) for n in shape])


# ---- NumPy ----
#
# A layout takes values and returns an array of these values, or of some that can be had so, and
# memory around it that must stay 7.


def contiguous(rng, values):
    return values.copy(), None


def permuted(rng, values):
    order = rng.permutation(values.ndim)
    return np.array(values.transpose(order), order="C").transpose(np.argsort(order)), None


def sliced(rng, values):
    around, inside = guarded(values.shape, values.dtype)
    around[inside] = values
    return around[inside], (around, inside)


def backwards(rng, values):
    around, inside = guarded(values.shape, values.dtype)
    turned = (..., *[slice(None, None, -1 if rng.integers(2) else 1) for _ in values.shape])
    around[inside] = values[turned]
    return around[inside][turned], (around, inside)


def broadcast(rng, values):
    row = values[:1].copy() if values.ndim else values.copy()
    return np.lib.stride_tricks.as_strided(row, values.shape, (0, *row.strides[1:])), None


def unaligned(rng, values):
    memory = np.zeros(values.nbytes + 8, "u1")
    start = next(k for k in range(1, 8) if (memory.ctypes.data + k) % values.itemsize)
    found = np.frombuffer(memory.data, values.dtype, values.size, start).reshape(values.shape)
    found[...] = values
    return found, None


def swapped(rng, values):
    return values.astype(values.dtype.newbyteorder()), None


def read_only(rng, values):
    found = values.copy()
    found.flags.writeable = False
    return found, None


def by_dlpack(rng, values):
    return torch.from_numpy(values.copy()), None


def by_dlpack_sliced(rng, values):
    around, inside = guarded(values.shape, values.dtype)
    around[inside] = values
    return torch.from_numpy(around[inside]), (around, inside)


def freed_storage(rng, values):
    found = torch.zeros(values.shape, dtype=torch.from_numpy(values).dtype)
    storage = found.untyped_storage() if hasattr(found, "untyped_storage") else found.storage()
    storage.resize_(0)
    return found, None


# What is refused as a parameter, and what as a gradient; None: nothing is.
NUMPY_LAYOUTS = {
    contiguous: (None, None), permuted: (None, None), sliced: (None, None),
    backwards: (None, None), broadcast: ("overlap", None), unaligned: ("aligned", None),
    swapped: ("byte order", "byte order"), read_only: ("read-only", None),
    by_dlpack: (None, None), by_dlpack_sliced: (None, "contiguous"),
    freed_storage: ("freed", "freed"),
}


def frame_is_whole(frame):
    if frame is None:
        return True
    around, inside = frame[0].copy(), frame[1]
    around[inside] = 7
    return (around == 7).all()


def applies(layout, shape):
    """An array of one element has no strides to speak of."""
    return layout is not broadcast or (shape and shape[0] > 1)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("use_muon", [True, False])
@pytest.mark.parametrize("layout", NUMPY_LAYOUTS)
def test_arrays(rng, layout, use_muon, dtype):
    kinds = itertools.cycle(rng.permutation(list(NUMPY_LAYOUTS)))
    for case in range(CASES // 4):
        shape = random_shape(rng, use_muon)
        if not use_muon and case == 0 and layout is not broadcast:
            shape = ()
        if not use_muon and case == 1 and layout is not freed_storage:
            shape = (0, 5)
        if not applies(layout, shape):
            continue
        w, frame = layout(rng, np.array(rng.standard_normal(shape), dtype))
        each = {"w": {"use_muon": use_muon}}
        of_memory = layout in (broadcast, unaligned)  # which no elements do not have
        if NUMPY_LAYOUTS[layout][0] and not (of_memory and 0 in shape):
            with pytest.raises((ValueError, TypeError), match=f"w\\b.*{NUMPY_LAYOUTS[layout][0]}"):
                muonium.Optimizer({"w": w}, each=each)
            continue
        twin = np.array(w)
        optimizer = muonium.Optimizer({"w": w}, each=each, lr=LR)
        other = muonium.Optimizer({"w": twin}, each=each, lr=LR)
        for _ in range(STEPS):
            values = np.array(rng.standard_normal(shape), dtype)
            kind = next(kinds)
            kind = contiguous if not applies(kind, shape) or 0 in shape else kind
            grad, grad_frame = kind(rng, values)
            if NUMPY_LAYOUTS[kind][1] and (shape or kind is not by_dlpack_sliced):
                with pytest.raises((ValueError, TypeError),
                                   match=f"gradient of w .*{NUMPY_LAYOUTS[kind][1]}"):
                    optimizer.step({"w": grad})
                continue
            before = np.array(grad)
            optimizer.step({"w": grad})
            other.step({"w": np.array(grad, order="C")})
            np.testing.assert_array_equal(np.array(w), twin)
            np.testing.assert_array_equal(np.array(grad), before)
            assert frame_is_whole(frame) and frame_is_whole(grad_frame)


def test_scalars(rng):
    w, twin = np.ones((), "f4"), np.ones((), "f4")
    optimizer, other = muonium.Optimizer({"w": w}), muonium.Optimizer({"w": twin})
    for _ in range(STEPS):
        grad = np.float32(rng.standard_normal())
        optimizer.step({"w": grad})
        other.step({"w": np.array(grad)})
        assert w == twin != 1


# ---- PyTorch ----


def t_contiguous(rng, values):
    return values.clone(), None


def t_permuted(rng, values):
    order = rng.permutation(values.ndim).tolist()
    return values.permute(order).contiguous().permute(np.argsort(order).tolist()), None


def t_sliced(rng, values):
    around, inside = guarded(values.shape, "f4")
    around = torch.from_numpy(around)
    around[inside] = values
    return around[inside], (around, inside)


def t_offset(rng, values):
    flat = torch.full((values.numel() + 9,), 7, dtype=values.dtype)
    inside = (slice(5, 5 + values.numel()),)
    flat[inside] = values.reshape(-1)
    return flat[inside].view(values.shape), (flat, inside)


def t_expanded(rng, values):
    row = values[:1] if rng.integers(2) else values.reshape(-1)[0]
    return row.clone().expand(values.shape), None


def t_unaligned(rng, values):
    memory = bytearray(values.numel() * values.element_size() + 1)
    found = torch.frombuffer(memory, dtype=values.dtype, offset=1).view(values.shape)
    return found.copy_(values), None


def t_freed(rng, values):
    found = values.clone()
    storage = found.untyped_storage() if hasattr(found, "untyped_storage") else found.storage()
    storage.resize_(0)
    return found, None


def t_shrunk(rng, values):
    found = values.clone()
    storage = found.untyped_storage() if hasattr(found, "untyped_storage") else found.storage()
    storage.resize_(1)
    return found, None


def t_negative(rng, values):
    around = torch.full((*values.shape, 2), 7, dtype=torch.float32)
    around[..., 1] = -values
    return torch.view_as_complex(around).conj().imag, None


TORCH_LAYOUTS = {
    t_contiguous: (None, None), t_permuted: (None, None), t_sliced: (None, None),
    t_offset: (None, None), t_expanded: ("overlap", None),
    t_unaligned: ("must be aligned", None),  # a gradient: unless its strides fit
    t_freed: ("storage", "storage"), t_shrunk: ("storage", "storage"),
    t_negative: ("negative view", None),
}


def t_frame_is_whole(frame):
    if frame is None:
        return True
    around = frame[0].clone()
    around[frame[1]] = 7
    return bool((around == 7).all())


def reference(kind, twin):
    if kind == "muon":
        return PlainMuon([("w", twin)], "torch", lambda name, p: True, lr=LR)
    return torch.optim.AdamW([twin], lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def allowed(kind, shape, largest):
    """What rounding makes of STEPS steps. AdamW: some ten operations on numbers up to `largest`
    in f32. Muon: the five quintics multiply what is lost in small singular values by up to
    3.4445^5, over sums of at most 24 terms."""
    eps = 2.0**-24
    if kind == "adam":
        return STEPS * 10 * eps * (largest + LR)
    scale = max(1, shape[0] / (np.prod(shape[1:]))) ** 0.5
    return STEPS * (LR * scale * 3.4445**5 * 24**0.5 * eps * 2 + 4 * eps * largest)


@pytest.mark.parametrize("kind", ["muon", "adam"])
@pytest.mark.parametrize("layout", TORCH_LAYOUTS)
def test_tensors(rng, layout, kind):
    choices, seen = itertools.cycle(rng.permutation(list(TORCH_LAYOUTS))), set()
    for case in range(CASES):
        shape = random_shape(rng, kind == "muon")
        if kind == "adam" and case < 2 and layout in (t_contiguous, t_offset):
            shape = [(), (0, 5)][case]
        w, frame = layout(rng, torch.from_numpy(np.array(rng.standard_normal(shape), "f4")))
        group = {"params": [("w", torch.nn.Parameter(w))], "use_muon": kind == "muon"}
        p = group["params"][0][1]
        options = dict(lr=LR, precision="f32", form="quintic")
        if TORCH_LAYOUTS[layout][0]:
            with pytest.raises(ValueError, match=f"\\bw\\b.*{TORCH_LAYOUTS[layout][0]}"):
                Muon([group], **options)
            continue
        same, twin = (torch.nn.Parameter(w.clone(memory_format=torch.contiguous_format))
                      for _ in range(2))
        optimizer = Muon([group], **options)
        other = Muon([{"params": [("w", same)], "use_muon": kind == "muon"}], **options)
        plain = reference(kind, twin)
        for _ in range(STEPS):
            values = torch.from_numpy(np.array(rng.standard_normal(shape), "f4"))
            choice = next(choices)
            choice = t_contiguous if 0 in shape or shape == () else choice
            grad, grad_frame = choice(rng, values)
            p.grad = grad
            seen.add(choice)
            before, refused = p.detach().clone(), TORCH_LAYOUTS[choice][1]
            try:
                optimizer.step()
                assert refused is None
            except ValueError as error:
                part = refused or "must be aligned"
                assert refused or choice is t_unaligned
                assert re.search(f"\\bw\\b.*{part}", str(error))
                assert torch.equal(p, before)
                continue
            same.grad = grad.clone(memory_format=torch.contiguous_format)
            twin.grad = grad.clone(memory_format=torch.contiguous_format)
            other.step()
            plain.step()
            assert torch.equal(p, same) and (choice is t_expanded or torch.equal(grad, values))
            assert t_frame_is_whole(frame) and t_frame_is_whole(grad_frame)
            if choice is not t_expanded or kind == "adam":  # of rank 1: the plain one loses itself
                limit = allowed(kind, shape, float(twin.detach().abs().max()) if p.numel() else 0)
                assert p.numel() == 0 or float((p - twin).abs().max()) <= limit
            with torch.no_grad():
                twin.copy_(p)
    assert seen == set(TORCH_LAYOUTS) or TORCH_LAYOUTS[layout][0]

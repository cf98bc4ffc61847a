"""The newer members of the family: steps written out from their rules, beside the reference."""
import numpy as np
import pytest

from reference.checks import fresh_rng
from reference.coefficients import PRESETS
from reference.optimizer import (Optimizer, adamuon, equilibrated, normuon, on_sphere, renormalized,
                                 select)
from reference.recipes import EXACT, recipe

POLAR_EXPRESS = [(8.156554524902461, -22.48329292557795, 15.878769915207462),
                 (4.042929935166739, -2.808917465908714, 0.5000178451051316),
                 (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
                 (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
                 (2.3465413258596377, -1.7097828382687081, 0.42323551169305323)]
STEPS = 50


def polar(x, table, margin, eps):
    """Iterations on X X^T or X^T X, whichever is smaller."""
    x = x / (np.linalg.norm(x) * margin + eps)
    for a, b, c in table:
        if x.shape[0] > x.shape[1]:
            gram = x.T @ x
            x = a * x + x @ (b * gram + c * gram @ gram)
        else:
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def nanochat(w, g, s, lr, momentum=0.95, beta2=0.9, decay=0.0):
    """muon_step_fused of nanochat, with sqrt(max(1, rows / cols)) as its caller has it."""
    m = s["m"] = s.get("m", 0 * g) + (1 - momentum) * (g - s.get("m", 0 * g))
    x = g + momentum * (m - g)
    target = np.linalg.norm(x) / x.shape[0] ** 0.5
    x = x * (target / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6))
    x = polar(x, POLAR_EXPRESS, 1.01, 1e-6)
    x = x * (min(x.shape) ** 0.5 / max(np.linalg.norm(x), 1e-6))
    axis = 1 if x.shape[0] >= x.shape[1] else 0
    size = x.shape[axis]
    mean = np.mean(x**2, axis=axis, keepdims=True)
    v = s.setdefault("v", np.zeros_like(mean))
    v += (1 - beta2) * (mean - v)
    scale = 1 / np.sqrt(np.maximum(v, 1e-10))
    before = np.sqrt(np.sum(mean) * size)
    after = np.sqrt(np.sum(mean * size * scale**2))
    x = x * (scale * (before / max(after, 1e-10)))
    lr = lr * max(1, w.shape[0] / w.shape[1]) ** 0.5
    return w - lr * x - lr * decay * w * (x * w >= 0)


def dion2(w, g, s, lr, rows=None, normalized=False, fraction=0.25, ef_decay=0.95, decay=0.01):
    """dion2.py on one device, and nordion2.py."""
    m = s["m"] = s.get("m", 0 * g) + g
    if rows is None:
        rows = m.shape[0] <= m.shape[1]
    sums = [np.abs(x).sum() for x in (m if rows else m.T)]
    count = max(1, int(np.ceil(fraction * len(sums))))
    order = sorted(range(len(sums)), key=lambda i: (-sums[i], i))
    chosen = sorted(order[:count])
    u = polar(m[chosen] if rows else m[:, chosen], POLAR_EXPRESS, 1.02, 1e-8)
    if normalized:
        v = s.setdefault("v", np.zeros(len(m)))
        v[chosen] += 0.05 * (np.mean(u * u, axis=1) - v[chosen])
        normed = u / (np.sqrt(v[chosen]) + 1e-8)[:, None]
        u = normed * np.linalg.norm(u) / np.linalg.norm(normed)
    w = w * (1 - lr * decay)
    size = lr * np.sqrt(w.shape[0] / w.shape[1])
    if rows:
        m[chosen] *= ef_decay
        w[chosen] -= size * u
    else:
        m[:, chosen] *= ef_decay
        w[:, chosen] -= size * u
    return w


def timm_adamuon(w, g, s, lr, scale="match_rms_adamw", momentum=0.95, beta2=0.95, eps=1e-7):
    s["t"] = s.get("t", 0) + 1
    m = s["m"] = momentum * s.get("m", 0 * g) + (1 - momentum) * g
    x = m / max(np.linalg.norm(m), eps)
    for a, b, c in PRESETS["quintic"]:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    v = s["v"] = beta2 * s.get("v", 0 * g) + (1 - beta2) * x * x
    if scale == "match_rms_adamw":
        x = x / (np.sqrt(v) + eps)
        return w - lr * 0.2 * np.sqrt(x.size) * x / (np.linalg.norm(x) + eps)
    x = x / (np.sqrt(v / (1 - beta2**s["t"])) + eps)
    size = {"rms_to_rms": (w.shape[0] / w.shape[1]) ** 0.5, "rsqrt_in": w.shape[1] ** -0.5}[scale]
    return w - lr * size * x


def muonh(w, g, s, lr, momentum=0.95):
    radius = s.setdefault("radius", np.linalg.norm(w))
    m = s["m"] = momentum * s.get("m", 0 * g) + (1 - momentum) * g
    x = polar((1 - momentum) * g + momentum * m, POLAR_EXPRESS, 1, 0)
    moved = w - lr * radius * x / np.linalg.norm(x)
    return radius * moved / np.linalg.norm(moved)


STEPPERS = [("nanochat", {}, nanochat), ("nanochat", dict(weight_decay=0.2), nanochat),
            ("dion2", {}, dion2), ("nordion2", {}, dion2),
            ("adamuon", {}, timm_adamuon), ("adamuon", dict(scale="rms_to_rms"), timm_adamuon),
            ("adamuon", dict(scale="rsqrt_in"), timm_adamuon),
            ("muonh", dict(coefficients="polar_express_5"), muonh)]


@pytest.mark.parametrize("shape", [(8, 20), (20, 8), (12, 12)])
@pytest.mark.parametrize("name, fields, step", STEPPERS)
def test_fifty_steps_by_the_rules(name, fields, step, shape):
    rng = fresh_rng()
    plain, state, lr = rng.standard_normal(shape), {}, 0.02
    opt = Optimizer(recipe(name, lr=lr, **EXACT, **fields))
    p = opt.add("w", plain, "f64")
    own = {"decay": fields["weight_decay"]} if "weight_decay" in fields else {}
    own.update({"scale": fields["scale"]} if "scale" in fields else {})
    own.update(dict(rows=True, normalized=True) if name == "nordion2" else {})
    silent = 1 if name == "nanochat" else None  # a row without gradients still decays
    for _ in range(STEPS):
        g = rng.standard_normal(shape)
        g[:silent if silent else 0] = 0
        opt.step([g])
        plain = step(plain, g, state, lr, **own)
    np.testing.assert_allclose(p.data, plain, rtol=0, atol=1e-9)


def test_pieces_by_hand():
    d = np.array([[3.0, 4.0], [0.0, 0.5]])  # norms 5 and 0.5, in all sqrt(25.25)
    target = np.sqrt(25.25 / 2)
    np.testing.assert_allclose(equilibrated(d, 0), [[0.6 * target, 0.8 * target], [0, target]])
    np.testing.assert_allclose(equilibrated(d, 1.0)[1], [0, 0.5 * target])
    assert not equilibrated(np.zeros((2, 2)), 0).any()
    np.testing.assert_allclose(renormalized(d, 0), d * np.sqrt(2 / 25.25))
    np.testing.assert_allclose(renormalized(d, 10), d * np.sqrt(2) / 10)
    result, v = normuon(d, np.zeros(2), 0.75, 1.0, axis=0, form="clamp")
    np.testing.assert_allclose(v, [0.25 * 4.5, 0.25 * 8.125])
    np.testing.assert_allclose(np.linalg.norm(result), np.sqrt(25.25))
    np.testing.assert_allclose(result[0, 0] / result[0, 1], 3 / 4 * np.sqrt(8.125 / 4.5))
    (found,), _ = adamuon([d], [np.zeros((2, 2))], 1, 0.75, 0.0, False)
    np.testing.assert_allclose(found, [[1, 1], [0, 1]])  # a first step is the sign
    w = on_sphere(np.array([[3.0, 4.0]]), np.array([[0.0, 2.0]]), 0.5, 5.0)
    np.testing.assert_allclose(w, 5 * np.array([[3, 1.5]]) / np.hypot(3, 1.5))


def test_selection_takes_the_first_of_equal_slices():
    m = np.array([[1.0, -1, 0], [0, 2, 0], [-3, 0, 0], [0, 0, 2]])
    assert list(select(m, 0.5, "rows")[0]) == [0, 2]  # of sums 2, 2, 3, 2
    assert list(select(m.T, 0.5, "shorter")[0]) == [0, 1]  # sums 4, 3, 2
    assert list(select(m, 0.01, "shorter")[1]) == [0]

"""The optimizer: pure functions for each formula, then the step that chains them.

Arithmetic is double throughout; what an optimizer keeps between steps
(parameters, momentum, moments) is rounded to its storage type once per step.
"""
import numpy as np

from . import layouts
from .coefficients import choose
from .orthogonalize import orthogonalize
from .recipes import default_layout, override, route, scale
from .rounding import round_to

# ---- formulas -------------------------------------------------------------


def update_momentum(m, g, mu, form):
    return mu * m + (g if form == "sum" else (1 - mu) * g)


def direction(m, g, t, mu, form, nesterov, nesterov_form="auto"):
    """What is orthogonalised at step t (from 1); `m` is the momentum after this gradient."""
    if form == "ema_corrected":
        if nesterov and nesterov_form == "auto":
            return mu * m / (1 - mu ** (t + 1)) + (1 - mu) * g / (1 - mu**t)
        m = m / (1 - mu**t)
    if not nesterov:
        return m
    summed = nesterov_form == "sum" or (nesterov_form == "auto" and form == "sum")
    return mu * m + (g if summed else (1 - mu) * g)


def convert_momentum(m, mu, old_form, new_form):
    """The momentum of one convention as another keeps it."""
    weight = {"lerp": 1 - mu, "ema_corrected": 1 - mu, "sum": 1.0}
    return m * (weight[new_form] / weight[old_form])


def normuon(o, v, beta2, eps):
    """Rows of `o` divided by the root of their running mean square `v`, norm kept."""
    v = beta2 * v + (1 - beta2) * np.mean(o * o, axis=1)
    denominator = (np.sqrt(v) + eps)[:, None]
    scaled = np.divide(o, denominator, out=np.zeros_like(o), where=denominator > 0)
    norm = np.linalg.norm(scaled)
    return (scaled * (np.linalg.norm(o) / norm) if norm > 0 else scaled), v


def decayed(w, o, lr, weight_decay, kind):
    if kind == "independent":
        return (1 - weight_decay) * w
    if kind == "cautious":
        return np.where(o * w > 0, (1 - lr * weight_decay) * w, w)
    return (1 - lr * weight_decay) * w


def adam_moments(m, v, g, betas):
    return betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g


def adam_step(w, m, v, g, t, lr, weight_decay, betas, eps, nadamw_form=None, eps_root=0.0):
    """AdamW, or NAdamW in one of its forms; `m` and `v` include this gradient, t from 1."""
    b1, b2 = betas
    if nadamw_form is None:
        first = m / (1 - b1**t)
    elif nadamw_form == "lookahead":
        first = (b1 * m + (1 - b1) * g) / (1 - b1 ** (t + 1))
    elif nadamw_form == "timm":
        first = (b1 * m + (1 - b1) * g) / (1 - b1**t)
    else:
        first = b1 * m / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
    denominator = np.sqrt(v / (1 - b2**t) + eps_root) + eps
    update = np.divide(first, denominator, out=np.zeros_like(first), where=denominator != 0)
    return (1 - lr * weight_decay) * w - lr * update


def global_norm(gradients):
    return float(np.sqrt(sum(np.sum(np.square(g, dtype=np.float64)) for g in gradients)))


def clip_factor(gradients, max_norm):
    total = global_norm(gradients)
    return 1.0 if total <= max_norm else max_norm / total


def scale_heads(w, factors):
    """Consecutive equal blocks of rows of `w`, one per factor, each times its factor."""
    blocks = np.reshape(w, (len(factors), -1) + np.shape(w)[1:])
    return (blocks * np.reshape(factors, (-1,) + (1,) * (blocks.ndim - 1))).reshape(np.shape(w))


def qk_clip(w_q, w_k, max_logits, threshold, alpha=0.5):
    """QK-clip: a query head h whose largest logit exceeds the threshold is scaled by
    gamma = threshold / max_logit, of which queries take gamma^alpha and keys the rest.
    Keys shared by several query heads stay as they are; the queries take all of it."""
    max_logits = np.asarray(max_logits, dtype=np.float64)
    gamma = np.where(max_logits > threshold, threshold / np.maximum(max_logits, threshold), 1.0)
    if np.shape(w_k)[0] < np.shape(w_q)[0]:
        return scale_heads(w_q, gamma), np.array(w_k)
    return scale_heads(w_q, gamma**alpha), scale_heads(w_k, gamma ** (1 - alpha))


# ---- the step -------------------------------------------------------------


class Parameter:
    """One tensor with its route and state. `data` is what the storage type holds."""

    def __init__(self, name, data, dtype, options, layout, use_muon, use_fallback):
        self.name, self.dtype, self.options = name, dtype, options
        self.data = round_to(dtype, np.array(data, dtype=np.float64))
        self.muon, self.reason = route(name, self.data.shape, options, layout, use_muon,
                                       use_fallback)
        self.layout = layout or default_layout(self.data.shape, options, name)
        self.state_dtype = options.state_dtype or ("f64" if dtype == "f64" else "f32")
        self.master = self.data.copy() if options.master and dtype in ("bf16", "f16") else None
        self.t = self.skipped = 0
        self.state = {}
        names = ("momentum",) if self.muon else ("exp_avg", "exp_avg_sq")
        for key in names:
            self.state[key] = np.zeros_like(self.data)
        if self.muon and options.normuon:
            self.state["row_square"] = [np.zeros(out) for out, _ in self.matrix_shapes()]

    def matrix_shapes(self):
        return layouts.matrix_shapes(self.data.shape, self.layout)

    def store(self, w):
        if self.master is not None:
            self.master = w = round_to("f32", w)
        self.data = round_to(self.dtype, w)

    def weights(self):
        return self.data if self.master is None else self.master

    def remember(self, key, value):
        self.state[key] = round_to(self.state_dtype, value)
        return self.state[key]


class Optimizer:
    """`orthogonalizer(matrix, options)` may replace the iteration, for tests."""

    def __init__(self, options, orthogonalizer=None):
        self.options = options
        self.parameters = []
        self.orthogonalizer = orthogonalizer or self.newton_schulz

    @staticmethod
    def newton_schulz(matrix, o):
        return orthogonalize(matrix, choose(o.coefficients, o.steps),
                             normalization=o.normalization, eps_mode=o.eps_mode, eps=o.eps,
                             safety_factor=o.safety_factor, precision=o.precision,
                             rounding=o.rounding)

    def add(self, name, data, dtype="f32", layout=None, use_muon=None, use_fallback=False,
            **group):
        """Add a tensor; `group` overrides options for it alone."""
        self.parameters.append(Parameter(name, data, dtype, override(self.options, **group),
                                         layout, use_muon, use_fallback))
        return self.parameters[-1]

    def set_lr(self, lr):
        """Muon's rate for every parameter; Adam's own rate keeps its ratio to it."""
        for p in self.parameters:
            fields = dict(lr=lr)
            if p.options.adam_lr is not None:
                if p.options.lr == 0:
                    raise ValueError(f"{p.name}: adam_lr cannot follow lr from 0")
                fields["adam_lr"] = p.options.adam_lr * lr / p.options.lr
            p.options = override(p.options, **fields)

    def step(self, gradients):
        """One step with a gradient (or None) per parameter, in the order of addition. Gradients
        are read in the storage type of their parameter."""
        work = []
        for p, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is None:
                continue
            g = round_to(p.dtype, gradient)
            bad = np.flatnonzero(~np.isfinite(g))
            if len(bad) and p.options.nonfinite == "error":
                raise ValueError(f"{p.name}: the gradient has {g.flat[bad[0]]} at {bad[0]}")
            work.append((p, g, len(bad) > 0 and p.options.nonfinite == "skip"))
        factor = 1.0
        if self.options.clip_norm is not None:
            factor = clip_factor([g for _, g, skip in work if not skip], self.options.clip_norm)
        for p, g, skip in work:
            if skip:
                p.skipped += 1
                continue
            p.t += 1
            sign = -1.0 if p.options.maximize else 1.0
            (self.muon_step if p.muon else self.fallback_step)(p, sign * factor * g)

    def muon_step(self, p, g):
        o, w = p.options, p.weights()
        m = p.remember("momentum", update_momentum(p.state["momentum"], g, o.momentum,
                                                   o.momentum_form))
        d = direction(m, g, p.t, o.momentum, o.momentum_form, o.nesterov, o.nesterov_form)
        matrices = [self.orthogonalizer(x, o) for x in layouts.split(d, p.layout)]
        dual = sum(float(np.sum(x * y)) for x, y in zip(layouts.split(d, p.layout), matrices))
        if o.normuon:
            rows = p.state["row_square"]
            for i, x in enumerate(matrices):
                matrices[i], v = normuon(x, rows[i], o.normuon_beta2, o.normuon_eps)
                rows[i] = round_to(p.state_dtype, v)
        factor = o.scale_factor * (dual if o.adaptive else 1.0)
        if o.normalize_spatial:
            factor *= layouts.positions(w.shape, p.layout) ** -0.5
        steps = [x * (factor * scale(o.scale, *x.shape)) for x in matrices]
        update = layouts.join(steps, w.shape, p.layout)
        p.store(decayed(w, update, o.lr, o.weight_decay, o.decay) - o.lr * update)

    def fallback_step(self, p, g):
        o = p.options
        m, v = adam_moments(p.state["exp_avg"], p.state["exp_avg_sq"], g, o.adam_betas)
        m, v = p.remember("exp_avg", m), p.remember("exp_avg_sq", v)
        nesterov = o.adam == "nadamw" or (o.adam == "by_nesterov" and o.nesterov)
        lr = o.lr * o.adam_lr_scale if o.adam_lr is None else o.adam_lr
        weight_decay = o.weight_decay if o.adam_weight_decay is None else o.adam_weight_decay
        eps = o.eps if o.adam_eps is None else o.adam_eps
        p.store(adam_step(p.weights(), m, v, g, p.t, lr, weight_decay, o.adam_betas, eps,
                          o.nadamw_form if nesterov else None, o.adam_eps_root))

    def routing_summary(self):
        """("N Muon, M AdamW", {reason: up to ten shapes}, {reason: count})."""
        muon = sum(p.muon for p in self.parameters)
        shapes, counts = {}, {}
        for p in self.parameters:
            counts[p.reason] = counts.get(p.reason, 0) + 1
            if len(shapes.setdefault(p.reason, [])) < 10:
                shapes[p.reason].append(p.data.shape)
        return f"{muon} Muon, {len(self.parameters) - muon} AdamW", shapes, counts

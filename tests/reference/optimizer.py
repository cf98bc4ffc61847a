"""The optimizer: pure functions for each formula, then the step that chains them.

Arithmetic is double throughout; what an optimizer keeps between steps
(parameters, momentum, moments) is rounded to its storage type once per step.
"""
import numpy as np

from . import layouts
from .coefficients import choose
from .orthogonalize import orthogonalize
from .recipes import default_layout, override, route, scale
from .rounding import decayed_integers, quantized, round_to

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


def normuon(o, v, beta2, eps, axis=1, form="add"):
    """Rows of `o` (columns for axis 0) divided by the root of their running mean square `v`, norm
    kept."""
    v = beta2 * v + (1 - beta2) * np.mean(o * o, axis=axis)
    root = np.sqrt(v) + eps if form == "add" else np.sqrt(np.maximum(v, eps))
    denominator = np.expand_dims(root, axis)
    scaled = np.divide(o, denominator, out=np.zeros_like(o), where=denominator > 0)
    norm = np.linalg.norm(scaled)
    return (scaled * (np.linalg.norm(o) / norm) if norm > 0 else scaled), v


def normuon_axis(options, shape):
    """The axis over which means are taken: 1 for a mean per row."""
    by_shape = 1 if shape[0] >= shape[1] else 0
    return {"rows": 1, "columns": 0, "shape": by_shape}[options.normuon_axis]


def equilibrated(d, eps):
    """Rows scaled to the root mean square of their norms."""
    norms = np.maximum(np.linalg.norm(d, axis=1, keepdims=True), eps)
    target = np.linalg.norm(d) / np.sqrt(len(d))
    return d * np.divide(target, norms, out=np.ones_like(norms), where=norms > 0)


def renormalized(o, eps):
    norm = max(np.linalg.norm(o), eps)
    return o * (np.sqrt(min(o.shape)) / norm) if norm > 0 else o


def adamuon(matrices, v, t, beta2, eps, normalized):
    """Matrices divided by the root of the running mean of their squares. `normalized`: scaled to
    norm 1 together; else the mean is corrected for its start from zero."""
    v = [beta2 * x + (1 - beta2) * o * o for x, o in zip(v, matrices)]
    correction = 1.0 if normalized else 1 - beta2**t
    divisors = [np.sqrt(x / correction) + eps for x in v]
    found = [np.divide(o, d, out=np.zeros_like(o), where=d != 0)
             for o, d in zip(matrices, divisors)]
    if normalized:
        norm = np.sqrt(sum(np.sum(x * x) for x in found)) + eps
        found = [x / norm if norm > 0 else 0 * x for x in found]
    return found, v


def on_sphere(w, o, lr, radius):
    """A step of length lr * radius along `o`, and back to the norm `radius`."""
    norm = np.linalg.norm(o)
    moved = w - (lr * radius / norm * o if norm > 0 else 0)
    length = np.linalg.norm(moved)
    return moved * (radius / length) if length > 0 else moved


def select(m, fraction, selection):
    """An index of the slices with the largest sums of magnitudes: the first of equal ones."""
    rows = selection == "rows" or m.shape[0] <= m.shape[1]
    sums = np.abs(m).sum(axis=1 if rows else 0)
    count = min(int(np.ceil(fraction * len(sums))), len(sums))
    chosen = np.sort(np.argsort(-sums, kind="stable")[:count])
    return (chosen, slice(None)) if rows else (slice(None), chosen)


def decayed(w, o, lr, weight_decay, kind):
    if kind == "independent":
        return (1 - weight_decay) * w
    if kind == "cautious":
        return np.where(o * w > 0, (1 - lr * weight_decay) * w, w)
    if kind == "cautious_scaled":
        return np.where(np.sign(o) * np.sign(w) >= 0, (1 - lr * weight_decay) * w, w)
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
        self.wide_dtype = "f64" if dtype == "f64" else "f32"
        momentum = options.state_dtype or self.wide_dtype
        # Rules keep means of squares, which are never int8.
        self.state_dtype = self.wide_dtype if momentum == "int8" else momentum
        self.dtypes = {"momentum": momentum,
                       "exp_avg": options.adam_state_dtype or self.state_dtype}
        self.master = self.data.copy() if options.master and dtype in ("bf16", "f16") else None
        self.t = self.skipped = 0
        self.state = {}
        names = ("momentum",) if self.muon else ("exp_avg", "exp_avg_sq")
        for key in names:
            self.state[key] = np.zeros_like(self.data)
        if self.muon and options.normuon:
            self.state["row_square"] = [np.zeros(shape[1 - normuon_axis(options, shape)])
                                        for shape in self.matrix_shapes()]
        if self.muon and options.adamuon:
            self.state["square"] = [np.zeros(shape) for shape in self.matrix_shapes()]
        if self.muon and options.hyperball:
            self.state["radius"] = [np.linalg.norm(x)
                                    for x in layouts.split(self.data, self.layout)]

    def matrix_shapes(self):
        return layouts.matrix_shapes(self.data.shape, self.layout)

    def store(self, w):
        if self.master is not None:
            self.master = w = round_to("f32", w)
        self.data = round_to(self.dtype, w)

    def weights(self):
        return self.data if self.master is None else self.master

    def remember(self, key, value):
        self.state[key] = round_to(self.dtypes.get(key, self.state_dtype), value)
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
        if o.fraction < 1:
            self.selected_step(p, g)
            return
        m = p.remember("momentum", update_momentum(p.state["momentum"], g, o.momentum,
                                                   o.momentum_form))
        d = direction(m, g, p.t, o.momentum, o.momentum_form, o.nesterov, o.nesterov_form)
        matrices = [self.orthogonalize(x, o) for x in layouts.split(d, p.layout)]
        dual = sum(float(np.sum(x * y)) for x, y in zip(layouts.split(d, p.layout), matrices))
        if o.adamuon:
            matrices = self.adamuon(p, matrices)
        if o.normuon:
            matrices = [self.normuon(p, i, x) for i, x in enumerate(matrices)]
        if o.hyperball:
            lr = o.lr * o.scale_factor
            if o.normalize_spatial:
                lr *= layouts.positions(w.shape, p.layout) ** -0.5
            parts = zip(layouts.split(w, p.layout), matrices, p.state["radius"])
            moved = [on_sphere(x, y, lr * scale(o.scale, *x.shape), radius)
                     for x, y, radius in parts]
            p.store(layouts.join(moved, w.shape, p.layout))
            return
        factor = o.scale_factor * (dual if o.adaptive else 1.0)
        if o.normalize_spatial:
            factor *= layouts.positions(w.shape, p.layout) ** -0.5
        elements = sum(x.size for x in matrices) if len(set(p.matrix_shapes())) == 1 else 0
        together = layouts.positions(w.shape, p.layout) > 1
        steps, rates = [], []
        for x in matrices:
            size = scale(o.scale, *x.shape)
            if o.adamuon and o.scale == "match_rms_adamw":
                size = 0.2 * np.sqrt(elements if together else x.size)
            steps.append(x * (factor * size))
            rates.append(np.full(x.shape, o.lr * factor * size))
        update = layouts.join(steps, w.shape, p.layout)
        scaled = o.decay == "cautious_scaled"
        rate = layouts.join(rates, w.shape, p.layout) if scaled else o.lr
        p.store(decayed(w, update, rate, o.weight_decay, o.decay) - o.lr * update)

    def orthogonalize(self, d, o):
        if o.equilibrate:
            d = equilibrated(d, o.equilibrate_eps)
        x = self.orthogonalizer(d, o)
        return renormalized(x, o.renormalize_eps) if o.renormalize else x

    def adamuon(self, p, matrices):
        """All positions of a convolution share one norm; other matrices have their own."""
        o = p.options
        eps = o.eps if o.adamuon_eps is None else o.adamuon_eps
        normalized = o.scale == "match_rms_adamw"
        together = layouts.positions(p.data.shape, p.layout) > 1
        sets = [range(len(matrices))] if together else [[i] for i in range(len(matrices))]
        for members in sets:
            found, squares = adamuon([matrices[i] for i in members],
                                     [p.state["square"][i] for i in members], p.t,
                                     o.adamuon_beta2, eps, normalized)
            for i, x, v in zip(members, found, squares):
                matrices[i], p.state["square"][i] = x, round_to(p.state_dtype, v)
        return matrices

    def normuon(self, p, i, x, which=slice(None)):
        """Matrix i of the parameter, of which only the rows `which` are there."""
        o, rows = p.options, p.state["row_square"]
        x, v = normuon(x, rows[i][which], o.normuon_beta2, o.normuon_eps,
                       normuon_axis(o, x.shape), o.normuon_form)
        rows[i][which] = round_to(p.state_dtype, v)
        return x

    def selected_step(self, p, g):
        """Dion2: the momentum is a sum, of which the largest slices are applied."""
        o, w = p.options, p.weights()
        summed = round_to(p.dtypes["momentum"], p.state["momentum"] + g)
        integers = p.dtypes["momentum"] == "int8"
        momenta, updates, chosen = layouts.split(summed, p.layout), [], []
        for i, m in enumerate(momenta):
            index = select(m, o.fraction, o.selection)
            x = self.orthogonalize(m[index], o)
            if o.normuon:
                x = self.normuon(p, i, x, index[0])
            update = np.zeros_like(m)
            update[index] = x
            factor = o.scale_factor
            if o.normalize_spatial:
                factor *= layouts.positions(w.shape, p.layout) ** -0.5
            updates.append(update * (factor * scale(o.scale, *m.shape)))
            chosen.append(np.zeros(m.shape))
            chosen[i][index] = 1
            m = np.array(m)
            m[index] *= o.ef_decay
            momenta[i] = m
        if integers:  # which decay; their scales stay
            less = decayed_integers(summed, quantized(p.state["momentum"] + g)[1], o.ef_decay)
            p.state["momentum"] = np.where(layouts.join(chosen, w.shape, p.layout), less, summed)
        else:
            p.remember("momentum", layouts.join(momenta, w.shape, p.layout))
        update = layouts.join(updates, w.shape, p.layout)
        p.store(decayed(w, update, o.lr, o.weight_decay, o.decay) - o.lr * update)

    def fallback_step(self, p, g):
        o = p.options
        m, v = adam_moments(p.state["exp_avg"], p.state["exp_avg_sq"], g, o.adam_betas)
        kept, v = p.remember("exp_avg", m), p.remember("exp_avg_sq", v)
        m = m if p.dtypes["exp_avg"] == "int8" else kept  # the step comes before the rounding
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

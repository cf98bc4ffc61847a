"""Muon for Optax, computed by Muonium on the CPU.

    optimizer = muonium.optax.muon(learning_rate=0.02)

takes the place of optax.contrib.muon: the same arguments, the same state, the same semantics. All
matrices of an update are orthogonalised in one call of the library.
"""

import functools
import inspect
import math
from typing import Any, NamedTuple, Optional

from . import jax as _jax
from ._functions import polar_express, presets
from ._library import OPTIONS, missing, options_of
from ._options import CHOICES, make_options
from ._types import Dtype, Normalization

try:
    import optax
    from optax.contrib import MuonDimensionNumbers, MuonState
except ModuleNotFoundError as error:
    if error.name != "optax":
        raise
    raise missing("muonium.optax", "Optax", "jax") from None
import jax
import jax.numpy as jnp
import numpy

__all__ = ["MuonDimensionNumbers", "MuonState", "muon", "orthogonalize_via_newton_schulz",
           "scale_by_muon", "scale_by_shape"]

_PRECONDITIONINGS = ("frobenius", "spectral", "aol", "schatten")
_ORIGINAL = (3.4445, -4.7750, 2.0315)
_NAMED = {"standard": _ORIGINAL, "dion": "quintic"}  # optax's names, and Muonium's tables
_CLAMP = 1e-8  # optax holds the squared divisors of AOL and Schatten to it, whatever eps is


# ---- arrays as matrices ----


def _is_numbers(x):
    return isinstance(x, MuonDimensionNumbers)


class _Axes(NamedTuple):
    """The axes of an array: those of the batch, of the rows (reduced) and of the columns."""

    batch: tuple
    rows: tuple
    cols: tuple

    def sizes(self, x):
        return tuple(math.prod(x.shape[axis] for axis in group) for group in self)

    def order(self):
        return self.batch + self.rows + self.cols


def _axes_of(x, numbers):
    if x.ndim < 2:
        raise ValueError("Muon optimized parameters must have rank >= 2, got "
                         f"x.ndim={x.ndim}: give this one the dimension numbers None, and it gets "
                         "Adam")
    rows, cols = (tuple(axis % x.ndim for axis in ([axes] if isinstance(axes, int) else axes))
                  for axes in (numbers.reduction_axis, numbers.output_axis))
    if set(rows) & set(cols):
        raise ValueError(f"the reduction axes {numbers.reduction_axis} and the output axes "
                         f"{numbers.output_axis} of an array of shape {x.shape} overlap")
    return _Axes(tuple(a for a in range(x.ndim) if a not in rows + cols), rows, cols)


def _compute_muon_reshape(x, dim_nums):
    """Functions that make an array a batch of matrices, and back."""
    axes = _axes_of(x, dim_nums)
    order = axes.order()
    back = tuple(order.index(axis) for axis in range(x.ndim))
    return (lambda y: y.transpose(order).reshape(axes.sizes(x)),
            lambda y: y.reshape([x.shape[axis] for axis in order]).transpose(back))


def _numbers_by_leaf(numbers, tree):
    """The dimension numbers of each leaf; None: all are plain matrices."""
    if callable(numbers):
        numbers = numbers(tree)
    leaves, structure = jax.tree.flatten(tree)
    if numbers is None or _is_numbers(numbers):
        return [numbers or MuonDimensionNumbers()] * len(leaves)
    return structure.flatten_up_to(numbers)


# ---- the orthogonalisation ----


class _Iteration(NamedTuple):
    """How a batch of matrices is orthogonalised, apart from the coefficients."""

    recipe: str
    given: tuple  # options over the recipe's, as pairs
    eps: Any

    def options(self, **more):
        return make_options(self.recipe, {**dict(self.given), **more})

    @property
    def precision(self):
        """What was asked for; None: the type of the arrays decides."""
        given = dict(self.given).get("precision")
        named = CHOICES["precision"][options_of(self.recipe).plan.precision]
        return named if given is None and named not in ("f32", "auto") else given

    @property
    def normalization(self):
        given = dict(self.given).get("normalization")
        return given or CHOICES["normalization"][self.options().plan.normalization]


def _divided(x, normalization, eps):
    """x divided as optax does it: where the library cannot, for complex numbers and for an eps
    that is known only when the program runs."""
    if normalization == "frobenius":
        return x / (jnp.linalg.norm(x, axis=(-2, -1), keepdims=True) + eps)
    if normalization == "spectral":
        return x / (jnp.linalg.norm(x, ord=2, axis=(-2, -1), keepdims=True) + eps)
    tall = x.shape[-2] > x.shape[-1]
    y = x.mT if tall else x
    gram = jnp.abs(y @ y.mT.conj())
    if normalization == "aol":
        square = jnp.sum(gram, axis=-1, keepdims=True)
    else:
        square = jnp.linalg.norm(gram, axis=(-2, -1), keepdims=True)
    y = y * jax.lax.rsqrt(jnp.maximum(square, _CLAMP))
    return y.mT if tall else y


def _as_real(x):
    """A complex matrix as a real one of twice the size, on which an odd polynomial acts alike."""
    return jnp.concatenate([jnp.concatenate([x.real, -x.imag], -1),
                            jnp.concatenate([x.imag, x.real], -1)], -2)


def _as_complex(x):
    rows, cols = x.shape[-2] // 2, x.shape[-1] // 2
    return jax.lax.complex(x[..., :rows, :cols], x[..., rows:, :cols])


def _is_static(number):
    return not isinstance(number, jax.core.Tracer)


def _orthogonalize(arrays, axes, iteration, coefficients, steps):
    """Each array as matrices, orthogonalised: one call for those of a precision. `coefficients`
    is an array, or None for those of the recipe."""
    def settings_for(x, divided):
        more = {}
        if x.dtype in (jnp.float64, jnp.complex128) and iteration.precision is None:
            more["precision"] = "f64"
        if divided:
            more.update(normalization="none", eps_mode="none")
        elif _is_static(iteration.eps) and iteration.eps is not None:
            more["eps"] = float(iteration.eps)
        if coefficients is not None:
            more["steps"] = steps
            # A table forbids the direct form; say what `auto` comes to.
            more["coefficients"], more["form"] = "generated", "quintic"
        return _jax.settings_of(iteration.options(nonfinite="propagate", **more))

    calls = {}  # settings: what to undo afterwards, and the matrices
    for place, (x, a) in enumerate(zip(arrays, axes)):
        to_matrices, back = _compute_muon_reshape(x, MuonDimensionNumbers(a.rows, a.cols))
        y, is_complex = to_matrices(x), jnp.iscomplexobj(x)
        divided = is_complex or not (iteration.eps is None or _is_static(iteration.eps))
        if divided:
            eps = iteration.options().plan.eps if iteration.eps is None else iteration.eps
            y = _divided(y, iteration.normalization, eps)
        settings = settings_for(x, divided)
        calls.setdefault(settings, []).append((place, is_complex, back,
                                               _as_real(y) if is_complex else y))
    results = list(arrays)
    for settings, members in calls.items():
        found = _jax.call([member[3] for member in members], settings, coefficients)
        for (place, is_complex, back, _), y in zip(members, found):
            results[place] = back(_as_complex(y) if is_complex else y)
    return results


def _rows_of(coefficients):
    """Coefficients of the shape (3,) or (rows, 3) as a table; and the number of iterations that
    they ask for, None if any."""
    if coefficients.ndim > 2 or coefficients.shape[-1] != 3:
        raise ValueError("Newton-Schulz coefficients must have shape (3,) or (n, 3), got "
                         f"{coefficients.shape}")
    if coefficients.dtype not in (jnp.float32, jnp.float64):
        coefficients = coefficients.astype(jnp.float32)
    if coefficients.ndim == 1:
        return coefficients.reshape(1, 3), None
    return coefficients, coefficients.shape[0]


def _static_steps(steps):
    if not _is_static(steps):
        raise TypeError("ns_steps is known only when the program runs: pass a Python number "
                        "(optax.inject_hyperparams: static_args=\"ns_steps\")")
    return int(steps)


def _check_preconditioning(name):
    if name not in _PRECONDITIONINGS:
        raise ValueError(f"Unknown preconditioning {name}: use one of "
                         f"{', '.join(_PRECONDITIONINGS)}")
    return name


def orthogonalize_via_newton_schulz(
        x: Any, ns_coeffs: Any, ns_steps: Any = 5,
        preconditioning: Normalization = "frobenius", eps: Any = 1e-8,
        dimension_numbers: Optional[MuonDimensionNumbers] = None, *,
        precision: Optional[Dtype] = None) -> Any:
    """One array, orthogonalised as optax does it. The arguments are those of the function of the
    same name in optax; `precision` is that of `muon`."""
    if x.ndim != 2 and not _is_numbers(dimension_numbers):
        raise ValueError("Input must have shape (m, n) or weight dimension numbers must be "
                         f"provided. Got shape={x.shape} and {dimension_numbers=}.")
    numbers = MuonDimensionNumbers() if x.ndim == 2 else dimension_numbers
    table, rows = _rows_of(jnp.asarray(ns_coeffs))
    iteration = _Iteration("optax", (("normalization", _check_preconditioning(preconditioning)),
                                     ("precision", precision)), eps)
    return _orthogonalize([x], [_axes_of(x, numbers)], iteration, table,
                          rows or _static_steps(ns_steps))[0]


# ---- recipes ----


def _explicit(function):
    """Pass the names of the arguments that the caller gave, as _given: a recipe decides about
    the others."""
    signature = inspect.signature(function)
    shown = signature.replace(parameters=[p for p in signature.parameters.values()
                                          if p.name != "_given"])

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        given = frozenset(shown.bind(*args, **kwargs).arguments)
        return function(*args, **kwargs, _given=given)
    wrapper.__signature__ = shown
    return wrapper


# What a recipe decides here; and what concerns routing, layouts and memory, which are optax's.
_OBEYED = {"lr", "weight_decay", "momentum", "adam_lr", "adam_lr_scale", "adam_weight_decay",
           "momentum_form", "nesterov", "nesterov_form", "scale", "scale_factor", "adam",
           "nadamw_form", "adam_beta1", "adam_beta2", "adam_eps", "adam_eps_root"}
_LEFT_TO_OPTAX = {"state_dtype", "adam_state_dtype", "state_stochastic", "master",
                  "stochastic_rounding", "seed", "spatial_normalize", "routing", "patterns",
                  "only_patterns", "split_fused", "min_dim", "max_aspect", "only_2d", "kernels_in_out", "layout_3d", "scratch_bytes", "log"}


def _options_of(recipe):
    """The options of a recipe. Refuse one that has more than a transformation of optax does."""
    options = options_of(recipe)
    more = [name for name, option in OPTIONS.items()
            if not option.plan and name not in _OBEYED | _LEFT_TO_OPTAX
            and _jax.text_of(options, name) != _jax.text_of(None, name)]
    scale = CHOICES["scale"][options.scale]
    if scale not in _SCALES:
        more.append(f"scale={scale}")
    if more:
        raise ValueError(f"recipe is {recipe!r}, which sets {', '.join(more)}: muonium.optax does "
                         "not have that. Use muonium.Optimizer, or another recipe")
    return options


def _table_of(options):
    """The coefficients of a recipe, for the state."""
    plan = options.plan
    if plan.table:
        rows = [tuple(plan.table[i]) for i in range(plan.table_rows)]
    elif plan.coefficients:
        rows = presets()[plan.coefficients.decode()]
    else:
        rows = polar_express(plan.generated_rows or plan.steps, plan.lower, plan.safety,
                             plan.cushion)
    return rows[:plan.steps] + rows[-1:] * (plan.steps - len(rows))


def _momentum_of(options, beta, nesterov):
    """A function of gradients, momentum and the number of steps so far that returns the momentum
    and the direction, both before any rounding to mu_dtype."""
    form = CHOICES["momentum_form"][options.momentum_form]
    lookahead = CHOICES["nesterov_form"][options.nesterov_form]
    lookahead = {"auto": form}.get(lookahead, lookahead)

    def corrected(updates, mu, count):
        mu = optax.tree.update_moment(updates, mu, beta, 1)
        if not nesterov:
            return mu, optax.tree.bias_correction(mu, beta, count)
        return mu, jax.tree.map(
            lambda m, g: beta * m + (1 - beta) * g,
            optax.tree.bias_correction(mu, beta, optax.safe_increment(count)),
            optax.tree.bias_correction(updates, beta, count))

    def plain(updates, mu, count):
        share = 1 if form == "sum" else 1 - beta
        mu = jax.tree.map(lambda g, m: beta * m + share * g, updates, mu)
        if not nesterov:
            return mu, mu
        share = 1 if lookahead == "sum" else 1 - beta
        return mu, jax.tree.map(lambda g, m: beta * m + share * g, updates, mu)

    return corrected if form == "ema_corrected" else plain


@_explicit
def scale_by_muon(ns_coeffs: Any = _ORIGINAL, ns_steps: Any = 5, beta: Any = 0.95,
                  eps: Any = 1e-8, mu_dtype: Any = None, *, nesterov: bool = True,
                  adaptive: bool = False, preconditioning: Normalization = "frobenius",
                  weight_dimension_numbers: Any = None, recipe: Optional[str] = None,
                  precision: Optional[Dtype] = None,
                  _given: frozenset = frozenset()) -> optax.GradientTransformation:
    """Momentum, orthogonalised: the part of `muon` before scale and learning rate.

    The arguments are those of optax.contrib.scale_by_muon, and so is the state, a MuonState.

    recipe     None: optax's. Else a recipe of Muonium (see muonium.recipes()), which decides
               about momentum, look-ahead, coefficients, norm and precision; arguments that you
               give take precedence.
    precision  of the iteration: "f32" (float64 matrices: "f64"), "bf16", "f16", "fixed23" or
               "fixed15", as in muonium.orthogonalize
    """
    options = _options_of(recipe or "optax")
    if recipe is not None:
        beta = beta if "beta" in _given else options.momentum
        nesterov = nesterov if "nesterov" in _given else bool(options.nesterov)
        ns_steps = ns_steps if "ns_steps" in _given else options.plan.steps
    own_table = recipe is None or "ns_coeffs" in _given
    steps = _static_steps(ns_steps)
    over = [("precision", precision)]
    if recipe is None or "preconditioning" in _given:
        over.append(("normalization", _check_preconditioning(preconditioning)))
    if not own_table:
        over.append(("steps", steps))
    iteration = _Iteration(recipe or "optax", tuple(over),
                           eps if recipe is None or "eps" in _given else None)
    checked = iteration.options(steps=steps)
    if own_table and _is_static(ns_coeffs):
        rows = numpy.asarray(ns_coeffs, float)
        if rows.ndim <= 2 and rows.shape[-1:] == (3,):  # other shapes are refused by init
            checked = iteration.options(steps=steps, coefficients=rows.tolist(), form="quintic")
    _jax.check_plan(checked, [(2, 2)])
    momentum = _momentum_of(options, beta, nesterov)
    if mu_dtype is not None:
        mu_dtype = jax.dtypes.canonicalize_dtype(mu_dtype)

    def init(params):
        table = jnp.asarray(ns_coeffs if own_table else _table_of(checked))
        _rows_of(table)
        if table.ndim == 2:
            if table.shape[0] > steps:
                raise ValueError(f"Not enough coeffs to perform {steps} steps: ns_coeffs has "
                                 f"{table.shape[0]} rows, one for each step")
            table = table[-steps:]
        return MuonState(count=jnp.zeros([], jnp.int32),
                         mu=optax.tree.zeros_like(params, dtype=mu_dtype), ns_coeffs=table)

    def update(updates, state, params=None):
        del params
        count = optax.safe_increment(state.count)
        mu, direction = momentum(updates, state.mu, count)
        leaves, structure = jax.tree.flatten(direction)
        axes = [_axes_of(x, numbers) for x, numbers
                in zip(leaves, _numbers_by_leaf(weight_dimension_numbers, updates))]
        table, rows = _rows_of(state.ns_coeffs) if own_table else (None, None)
        results = _orthogonalize(leaves, axes, iteration, table, rows or steps)
        if adaptive:
            results = [jnp.sum(x.conj() * y) * y for x, y in zip(leaves, results)]
        return jax.tree.unflatten(structure, results), MuonState(
            count=count, mu=optax.tree.cast(mu, mu_dtype), ns_coeffs=state.ns_coeffs)

    return optax.GradientTransformation(init, update)


# ---- scale ----

_SCALES = {  # by the numbers of rows (reduced) and columns (output) of a matrix
    "original": lambda rows, cols: math.sqrt(max(1, cols / rows)),
    "match_rms_adamw": lambda rows, cols: 0.2 * math.sqrt(max(rows, cols)),
    "rms_to_rms": lambda rows, cols: math.sqrt(cols / rows),
    "none": lambda rows, cols: 1.0,
}


def _scaled(factor, numbers):
    """A transformation that multiplies each array by factor(rows, columns)."""
    def update(updates, state, params=None):
        del params
        leaves, structure = jax.tree.flatten(updates)
        scaled = [x * factor(*_axes_of(x, n).sizes(x)[1:])
                  for x, n in zip(leaves, _numbers_by_leaf(numbers, updates))]
        return jax.tree.unflatten(structure, scaled), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def scale_by_shape(weight_dimension_numbers: Any = None,
                   consistent_rms: Any = None) -> optax.GradientTransformation:
    """Scale by sqrt(max(1, out / in)), or by consistent_rms * sqrt(max(in, out))."""
    if consistent_rms is None:
        return _scaled(_SCALES["original"], weight_dimension_numbers)
    return _scaled(lambda rows, cols: math.sqrt(max(rows, cols)) * consistent_rms,
                   weight_dimension_numbers)


# ---- the optimizer ----


def _labels(numbers):
    """A function of parameters that says which of them get Muon."""
    if numbers is None:
        return lambda params: jax.tree.map(lambda x: "muon" if x.ndim == 2 else "adam", params)

    def labels(params):
        found = numbers(params) if callable(numbers) else numbers
        return jax.tree.map(
            lambda n, part: jax.tree.map(lambda _: "adam" if n is None else "muon", part),
            found, params, is_leaf=lambda n: n is None or _is_numbers(n))
    return labels


def _masked_numbers(numbers):
    """A function of masked parameters that returns their dimension numbers in their structure."""
    if numbers is None:
        return MuonDimensionNumbers()

    def is_leaf(n):
        return n is None or _is_numbers(n) or isinstance(n, optax.MaskedNode)

    def masked(params):
        found = numbers(params) if callable(numbers) else numbers
        return jax.tree.map(
            lambda n, part: jax.tree.map(
                lambda x: x if n is None or isinstance(x, optax.MaskedNode) else n, part,
                is_leaf=lambda x: isinstance(x, optax.MaskedNode)),
            found, params, is_leaf=is_leaf)
    return masked


def _adam_of(options, learning_rate, given, arguments):
    """The keywords of optax.adamw that a recipe asks for, where the caller did not."""
    kind = CHOICES["adam"][options.adam]
    nadam = kind == "nadamw" or kind == "by_nesterov" and arguments["nesterov"]
    if nadam and CHOICES["nadamw_form"][options.nadamw_form] != "optax":
        raise ValueError("this recipe has NAdamW in a form that optax lacks: pass nesterov=False, "
                         "or use recipe=\"optax\"")
    rate = arguments["adam_learning_rate"]
    if rate is None and options.adam_lr >= 0:
        rate = options.adam_lr
    elif rate is None:
        rate = learning_rate
        if callable(rate) and options.adam_lr_scale != 1:
            rate = lambda count: options.adam_lr_scale * learning_rate(count)  # noqa: E731
        elif options.adam_lr_scale != 1:
            rate = options.adam_lr_scale * learning_rate
    decay, eps = options.adam_weight_decay, options.adam_eps
    values = {"adam_b1": options.adam_beta1, "adam_b2": options.adam_beta2,
              "eps": arguments["eps"] if eps < 0 else eps, "adam_eps_root": options.adam_eps_root,
              "adam_weight_decay": arguments["weight_decay"] if decay < 0 else decay}
    values.update((name, arguments[name]) for name in values if name in given)
    return {"learning_rate": rate, "nesterov": nadam,
            **{name.replace("adam_", ""): value for name, value in values.items()}}


@_explicit
def muon(learning_rate: Any, ns_coeffs: Any = _ORIGINAL, ns_steps: Any = 5, beta: Any = 0.95,
         eps: Any = 1e-8, weight_decay: Any = 0.0, weight_decay_mask: Any = None,
         mu_dtype: Any = None, *, nesterov: bool = True, adaptive: bool = False,
         preconditioning: Normalization = "frobenius", adam_b1: Any = 0.9, adam_b2: Any = 0.999,
         adam_eps_root: Any = 0.0, adam_weight_decay: Any = 0.0, adam_learning_rate: Any = None,
         muon_weight_dimension_numbers: Any = None, consistent_rms: Any = None,
         recipe: Optional[str] = None, precision: Optional[Dtype] = None,
         _given: frozenset = frozenset()) -> optax.GradientTransformation:
    """Muon for matrices, Adam for all other parameters, as optax.contrib.muon.

    The arguments, the defaults and the state are those of optax.contrib.muon, so that a
    checkpoint of either is one of the other. Two arguments more:

    recipe     None: optax's. Else a recipe of Muonium (see muonium.recipes()), which decides
               about all that you do not give: momentum, look-ahead, coefficients, norm,
               precision, scale, weight decay and Adam. The learning rate is always yours. Which
               parameters get Muon is always optax's rule: 2-D arrays, or those with dimension
               numbers.
    precision  of the iteration: "f32" (float64 matrices: "f64"), "bf16", "f16", "fixed23" or
               "fixed15", as in muonium.orthogonalize
    """
    arguments = dict(locals())
    if isinstance(ns_coeffs, str):
        if ns_coeffs not in _NAMED:
            raise ValueError(f"Unknown ns_coeff preset string: {ns_coeffs}; use one of "
                             f"{', '.join(_NAMED)}")
        ns_coeffs = _NAMED[ns_coeffs]
        ns_coeffs = presets()[ns_coeffs] if isinstance(ns_coeffs, str) else ns_coeffs
    own = {"ns_coeffs": ns_coeffs, "ns_steps": ns_steps, "beta": beta, "eps": eps,
           "nesterov": nesterov, "adaptive": adaptive, "preconditioning": preconditioning}
    numbers = _masked_numbers(muon_weight_dimension_numbers)
    scale = scale_by_shape(numbers, consistent_rms)
    adam = {"learning_rate": learning_rate if adam_learning_rate is None else adam_learning_rate,
            "b1": adam_b1, "b2": adam_b2, "eps": eps, "eps_root": adam_eps_root,
            "weight_decay": adam_weight_decay, "nesterov": nesterov}
    if recipe is not None:
        options = _options_of(recipe)
        own = {name: value for name, value in own.items() if name in _given}
        for name, value in (("weight_decay", options.weight_decay), ("eps", options.plan.eps),
                            ("nesterov", bool(options.nesterov))):
            if name not in _given:
                arguments[name] = value
        if consistent_rms is None:
            shape = _SCALES[CHOICES["scale"][options.scale]]
            scale = _scaled(lambda rows, cols: options.scale_factor * shape(rows, cols), numbers)
        adam = _adam_of(options, learning_rate, _given, arguments)
    return optax.partition({
        "muon": optax.chain(
            scale_by_muon(**own, mu_dtype=mu_dtype, weight_dimension_numbers=numbers,
                          recipe=recipe, precision=precision),
            scale, optax.add_decayed_weights(arguments["weight_decay"], weight_decay_mask),
            optax.scale_by_learning_rate(learning_rate)),
        "adam": optax.adamw(mu_dtype=mu_dtype, **adam),
    }, _labels(muon_weight_dimension_numbers))

"""Muonium as functions of JAX, on the CPU.

    o = muonium.jax.orthogonalize(x)

XLA calls the library within a compiled program: no copy to NumPy, no callback into Python.
muonium.optax has the optimizer.
"""

import ctypes
import functools
from typing import Any, Mapping, Optional, Sequence, Tuple

from . import _library
from ._library import OPTIONS, missing
from ._options import set_option
from ._types import (Coefficients, Dtype, EpsMode, Form, Nonfinite, Normalization, Rounding)

try:
    import jax
    import jax.extend.core
    import jax.numpy as jnp
    import numpy
except ModuleNotFoundError as error:
    if error.name not in ("jax", "numpy"):
        raise
    raise missing("muonium.jax", "JAX", "jax") from None
from jax.interpreters import ad, batching, mlir

__all__ = ["orthogonalize"]

if not hasattr(jax, "ffi"):
    raise ImportError(f"muonium.jax needs JAX 0.6 or newer, and this is {jax.__version__}: "
                      "pip install -U jax")

# ---- options as the handler takes them: src/xla/xla.h ----

# A text for each option that differs from the default, and a table of coefficients as numbers.
Settings = Tuple[Tuple[str, Any], ...]


def text_of(options: Optional[_library.Options], name: str) -> str:
    """The value of an option as text; without options, its default."""
    text = ctypes.create_string_buffer(64)
    place = None if options is None else ctypes.byref(options)
    _library.library.muonium_option_get(place, name.encode(), text, len(text))
    return text.value.decode()


_TEXTS = [name for name, option in OPTIONS.items()
          if option.plan and option.type in ("number", "integer", "switch", "choice", "name")]
_DEFAULTS = {name: text_of(None, name) for name in _TEXTS}


def settings_of(options: _library.Options) -> Settings:
    """The options of the iteration, in a form that can be a key and an attribute of a call."""
    texts = {name: text_of(options, name) for name in _TEXTS}
    found = [(name, text) for name, text in texts.items() if text != _DEFAULTS[name]]
    plan = options.plan
    if plan.table:
        # An iteration beyond the table repeats its last row, and one row is none too few.
        rows = plan.table[:min(plan.table_rows, plan.steps)]
        found.append(("table", tuple(number for row in rows for number in row)))
    return tuple(found)


def check_plan(options: _library.Options, shapes: Sequence[Tuple[int, ...]]) -> None:
    """Refuse what the library would refuse when the program runs."""
    plan = ctypes.c_void_p()
    for shape in set(shapes):
        if 0 not in shape:
            _library.library.muonium_plan_create(_library.Shape(1, *shape), options.plan, plan)
            _library.library.muonium_plan_destroy(plan)


@functools.lru_cache(maxsize=256)
def _prepare(given):
    """The options of a call, and as settings."""
    options = _library.options_of()
    for name, value in given:
        if value is not None:
            set_option(options, name, value)
    return options, settings_of(options)


# ---- the primitive: matrices, then perhaps a table of coefficients for them ----

TARGET = "muonium_orthogonalize"
jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(_library.library.muonium_xla_orthogonalize),
                            platform="cpu")
_primitive = jax.extend.core.Primitive(TARGET)
_primitive.multiple_results = True


def _result_types(*operands, count, settings):
    return [operand.update(weak_type=False) for operand in operands[:count]]


def _attribute(value):
    return numpy.array(value, numpy.float64) if isinstance(value, tuple) else value


def _lower(context, *operands, count, settings):
    """A call of the handler that works in place, where XLA may: elsewhere it makes a copy."""
    rule = jax.ffi.ffi_lowering(TARGET, operand_output_aliases={i: i for i in range(count)})
    return rule(context, *operands, **{name: _attribute(value) for name, value in settings})


def _refuse_platform(context, *operands, count, settings):
    platforms = ", ".join(getattr(context, "platforms", None) or context.module_context.platforms)
    raise NotImplementedError(
        f"Muonium computes on the CPU, and this program is compiled for {platforms}. Ways out: run "
        "the update on the CPU, jax.jit(update) with arguments that "
        "jax.device_put(tree, jax.devices(\"cpu\")[0]) placed there; or use optax.contrib.muon on "
        "this device")


def _differentiate(primals, tangents, *, count, settings):
    raise NotImplementedError(
        "muonium.jax.orthogonalize has no derivative: it belongs behind the gradient, in the "
        "optimizer. To treat its result as a constant, pass jax.lax.stop_gradient(x)")


def _batch(operands, axes, *, count, settings):
    """One call for the whole batch: further axes lead. A table is one for all matrices, or has
    their leading axes."""
    size = next(operand.shape[axis] for operand, axis in zip(operands, axes)
                if axis is not batching.not_mapped)

    def led(operand, axis):
        if axis is batching.not_mapped:
            return jnp.broadcast_to(operand, (size, *operand.shape))
        return jnp.moveaxis(operand, axis, 0)

    matrices, table = operands[:count], operands[count:]
    tables = bool(table) and (axes[count] is not batching.not_mapped or table[0].ndim > 2)
    mapped = [tables or axis is not batching.not_mapped for axis in axes[:count]]
    moved = [led(operand, axis) if led_too else operand
             for operand, axis, led_too in zip(matrices, axes, mapped)]
    if tables:
        table = [led(table[0], axes[count])]
    out = _primitive.bind(*moved, *table, count=count, settings=settings)
    return out, [0 if led_too else batching.not_mapped for led_too in mapped]


@functools.partial(jax.jit, static_argnames=("count", "settings"), inline=True)
def _call(operands, count, settings):
    return _primitive.bind(*operands, count=count, settings=settings)


_primitive.def_impl(lambda *operands, **parameters: _call(operands, **parameters))
_primitive.def_abstract_eval(_result_types)
mlir.register_lowering(_primitive, _refuse_platform)
mlir.register_lowering(_primitive, _lower, platform="cpu")
batching.primitive_batchers[_primitive] = _batch
ad.primitive_jvps[_primitive] = _differentiate


def call(matrices: Sequence[Any], settings: Settings, table: Any = None) -> Any:
    """The results for arrays of matrices, by one call of the library; `table`, an array of the
    shape (rows, 3), may have the coefficients."""
    operands = tuple(matrices) if table is None else (*matrices, table)
    return _call(operands, count=len(matrices), settings=settings) if matrices else []


# ---- the function ----

_TYPES = ("float32", "bfloat16", "float16", "float64")


def _matrices(leaf):
    array = jnp.asarray(leaf)
    if array.dtype.name not in _TYPES:
        raise TypeError(f"x has elements of type {array.dtype.name}: use {', '.join(_TYPES)}")
    if array.ndim < 2:
        raise ValueError(f"x has shape {array.shape}: a matrix has two dimensions, a batch more")
    return array


def _hashable(coefficients):
    if coefficients is None or isinstance(coefficients, str):
        return coefficients
    try:
        return tuple(tuple(map(float, row)) if hasattr(row, "__len__") else float(row)
                     for row in coefficients)
    except (TypeError, ValueError):
        raise TypeError(f"coefficients is {coefficients!r}: use the name of a preset, (a, b, c), or "
                        "a list of those, known when the function is traced") from None


def orthogonalize(x: Any, *, steps: int = 5, coefficients: Coefficients = None,
                  normalize: Optional[Normalization] = None, eps: Optional[float] = None,
                  eps_mode: Optional[EpsMode] = None, safety_factor: float = 1.0,
                  precision: Optional[Dtype] = None, rounding: Rounding = "stored",
                  form: Form = "auto", direct_set: Optional[str] = None,
                  lower: Optional[float] = None, safety: Optional[float] = None,
                  cushion: Optional[float] = None, nonfinite: Nonfinite = "propagate") -> Any:
    """x, or each matrix of x, orthogonalised as Muon does it.

    x is an array of two or more dimensions, the last two of which are matrices, or a tree of such
    arrays: the library then gets them all in one call and spreads matrices of equal shape over
    its threads. Types are float32, bfloat16, float16 and float64; results have the types and
    shapes of x.

    It works under jit, vmap (one call for the whole batch), scan and shard_map, and in place if
    x is donated. Results are the same bits with and without jit, and for every number of threads.
    It has no derivative.

    The options are those of muonium.orthogonalize, with two other defaults: precision is "f64"
    for float64 and "auto" for other types; and with nonfinite="propagate" a matrix with NaN or
    infinity becomes NaN, as in other functions of JAX. With "error" the program fails when it
    runs; with "skip" such a matrix becomes zero.
    """
    if eps is not None and eps_mode is None:
        raise ValueError(f"eps is {eps} without an eps_mode: say whether to \"clamp\" or to \"add\"")
    leaves, tree = jax.tree.flatten(x)
    arrays = [_matrices(leaf) for leaf in leaves]
    given = {"steps": steps, "coefficients": _hashable(coefficients), "normalization": normalize,
             "eps": eps, "eps_mode": eps_mode, "safety_factor": safety_factor,
             "precision": precision, "rounding": rounding, "form": form, "direct_set": direct_set,
             "lower": lower, "safety": safety, "cushion": cushion, "nonfinite": nonfinite}
    return jax.tree.unflatten(tree, by_precision(arrays, given))


def by_precision(arrays: Sequence[Any], given: Mapping[str, Any]) -> Sequence[Any]:
    """The results, by one call for all arrays; where no precision is given, by one for float64
    and one for the others."""
    results = list(arrays)
    for double in (False, True):
        places = [i for i, array in enumerate(arrays) if (array.dtype == jnp.float64) == double]
        chosen = dict(given)
        if chosen.get("precision") is None:
            chosen["precision"] = "f64" if double else "auto"
        options, settings = _prepare(tuple(chosen.items()))
        check_plan(options, [arrays[i].shape[-2:] for i in places])
        for place, result in zip(places, call([arrays[i] for i in places], settings)):
            results[place] = result
    return results

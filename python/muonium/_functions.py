"""Functions of arrays and of shapes: orthogonalize, polar_express, presets, info, route."""

from __future__ import annotations

import ctypes
import math
from typing import (TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, TypeVar,
                    Union, overload)

from . import _library
from ._arrays import F32, Array, array_of, dense_strides, refuse_immutable
from ._handle import Handle, Report
from ._library import OUTCOMES, Shape, View, library, numpy_for, shown
from ._options import make_options, refuse_unknown, require_names, set_option, whole
from ._types import (Coefficients, Dtype, EpsMode, Form, IterationOptions, Literal, Nonfinite,
                     Normalization, Options, Rounding, Triple, Unpack)

if TYPE_CHECKING:
    import numpy
    import numpy.typing

_Out = TypeVar("_Out")


class Certificate(NamedTuple):
    """A statement about one result that needs no reference to check."""

    outcome: str      #: "orthogonalized", "zero", "skipped", "propagated" or "diverged"
    rescued: int      #: how often the blow-up guard rescaled
    divisor: float    #: what the matrix was divided by
    deviation: float  #: ||I - X X^T||_F before the last step
    bound: float      #: an upper bound, up to rounding, on that of the result
    #: ||I - Y Y^T||_F, measured on the result Y; NaN without exact_certificate
    orthogonality_error: float = math.nan
    sigma_min: float = math.nan  #: smallest and largest singular value of Y, estimated from
    sigma_max: float = math.nan  #: within by 24 Lanczos iterations; NaN without exact_certificate


# ---- orthogonalisation ----


def _walk(x, what, writable=False):
    """(array, shape, strides) of x as one batch of matrices; None where the library cannot
    walk a NumPy array as it lies, so that it must be copied."""
    try:
        array = array_of(x, what, writable)
    except (TypeError, ValueError):
        dtype, flags = getattr(x, "dtype", None), getattr(x, "flags", None)
        # Only its order or alignment; and no memory that must not be written, or is not there.
        odd = flags is not None and getattr(dtype, "kind", "") == "f" and dtype.itemsize <= 8
        if odd and (flags.writeable or not writable):
            return None
        raise
    if len(array.shape) < 2:
        raise ValueError(f"{what} has shape {array.shape}: a matrix has two dimensions, a batch "
                         "more")
    batch, stride = 1, 0
    for size, step in zip(reversed(array.shape[:-2]), reversed(array.strides[:-2])):
        if size != 1 and batch > 1 and step != stride * batch:
            if hasattr(x, "__array_interface__"):
                return None
            raise ValueError(f"{what} has strides {array.strides}: make it contiguous")
        if size != 1:
            stride = step if batch == 1 else stride
            batch *= size
    return array, (batch, *array.shape[-2:]), (stride, *array.strides[-2:])


def _overlap(a, b):
    """Whether arrays may share memory without being the same. Others than NumPy's are left
    to the library to tell."""
    import numpy

    if not (isinstance(a, numpy.ndarray) and isinstance(b, numpy.ndarray)):
        return False
    same = (a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
            and a.strides == b.strides and a.dtype == b.dtype)
    return numpy.may_share_memory(a, b) and not same


def _packed(x):
    import numpy

    return numpy.array(x, dtype=x.dtype.newbyteorder("="), order="C")


_Certificates = Union["Certificate", List["Certificate"]]


@overload
def orthogonalize(x: Any, *, out: None = None, return_certificate: Literal[False] = False,
                  **options: Unpack[IterationOptions]) -> numpy.typing.NDArray[Any]: ...
@overload
def orthogonalize(x: Any, *, out: None = None, return_certificate: Literal[True],
                  **options: Unpack[IterationOptions]
                  ) -> Tuple[numpy.typing.NDArray[Any], _Certificates]: ...
@overload
def orthogonalize(x: Any, *, out: _Out, return_certificate: Literal[False] = False,
                  **options: Unpack[IterationOptions]) -> _Out: ...
@overload
def orthogonalize(x: Any, *, out: _Out, return_certificate: Literal[True],
                  **options: Unpack[IterationOptions]) -> Tuple[_Out, _Certificates]: ...
@overload
def orthogonalize(x: Any, *, out: Any = None, return_certificate: bool,
                  **options: Unpack[IterationOptions]) -> Any: ...


def orthogonalize(x: Any, *, steps: int = 5, coefficients: Coefficients = None,
                  normalize: Optional[Normalization] = None, eps: Optional[float] = None,
                  eps_mode: Optional[EpsMode] = None, safety_factor: float = 1.0,
                  precision: Dtype = "auto", rounding: Rounding = "stored", form: Form = "auto",
                  direct_set: Optional[str] = None, lower: Optional[float] = None,
                  safety: Optional[float] = None, cushion: Optional[float] = None,
                  nonfinite: Nonfinite = "error", out: Any = None,
                  return_certificate: bool = False, exact_certificate: bool = False) -> Any:
    """x, or each matrix of a batch, orthogonalised as Muon does it.

    The result approximates the polar factor U V^T of x = U S V^T, the nearest matrix with
    orthonormal rows or columns. By default it has the same singular vectors, and singular
    values between about 0.86 and 1.14: some 7 % away from the polar factor, which is all that
    Muon needs. steps=8 gives the polar factor itself, to 1.4e-6 in f32. Singular values below
    1e-3 of the norm of x stay smaller than that; steps=12, lower=1e-5 brings them to 1 too.

    x has two or more dimensions, the last two of which are matrices, and elements of
    type float16, float32 or float64 (bfloat16 by DLPack); any strides. Shape and type of
    the result are those of x.

    steps          of the iteration, 1 to 64
    coefficients   name of a preset (see presets), (a, b, c), or a list of those, the last
                   repeated; None: Polar Express for so many steps with `lower`, `safety`
                   and `cushion`, as polar_express
    normalize      "frobenius" (default), "schatten", "aol", "spectral" or "none"
    eps, eps_mode  "clamp" or "add" eps to the norm; by default neither, so that the result
                   does not depend on the scale of x
    safety_factor  times the norm
    precision      of intermediates: "f32", "f64", "bf16", "f16"; or of integer products that
                   give the same bits on every CPU: "fixed23" (as accurate as f32), "fixed15";
                   "auto": on CPUs with AMX f32 or fixed23, whichever is faster, else f32
    rounding       which of them "bf16" and "f16" round: "stored", those that are stored here, or
                   like another implementation: "torch" (timm too), "keller", "motif" or "fp16"
    form           "standard" or "gram", two ways to evaluate the steps, or "quintic", the
                   cheaper of these; "direct", other polynomials with fewer products; "auto",
                   the cheapest, which is direct where the steps are the default ones
    direct_set     the direct form's polynomial, one of direct_sets(); default "P12", for
                   "auto" the fastest
    nonfinite      for matrices with NaN or infinity: "error" raises NonFiniteError and
                   writes nothing; "skip" leaves zeros, or what out holds; "propagate" NaN
    out            where the result goes, an array of the same shape; may be x itself

    With return_certificate, a pair of the result and a Certificate, or a list of those for
    a batch. With exact_certificate it says what was measured on the result, its distance from
    orthogonality and the range of its singular values, for one more product.
    """
    numpy = numpy_for("muonium.orthogonalize")
    if not hasattr(x, "__array_interface__") and not hasattr(x, "__dlpack__"):
        x = numpy.asarray(x)
    if eps is not None and eps_mode is None:
        raise ValueError(f"eps is {eps} without an eps_mode: say whether to \"clamp\" or to \"add\"")
    options = _library.plan_options()
    for name, value in (("steps", steps), ("coefficients", coefficients),
                        ("normalization", normalize), ("eps", eps), ("eps_mode", eps_mode),
                        ("safety_factor", safety_factor), ("precision", precision),
                        ("rounding", rounding),
                        ("form", form), ("lower", lower), ("safety", safety),
                        ("cushion", cushion), ("nonfinite", nonfinite),
                        ("direct_set", direct_set)):
        if value is not None:
            set_option(options, name, value)
    options.exact_certificate = bool(exact_certificate)
    source = _walk(x, "x")
    if source is None:
        x = _packed(x)
        source = _walk(x, "x")
    array, sizes, _ = source
    if out is not None and tuple(out.shape) != array.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}, x has {array.shape}: they must be "
                         "equal")
    target = out
    if out is not None:
        refuse_immutable(out, "out")
    else:
        target = numpy.zeros(array.shape, ("f4", "f8", "f4", "f2")[array.dtype])
    place = _walk(target, "out", writable=True)
    if place is None or _overlap(x, target):
        target = _packed(target)
        place = _walk(target, "out")
    certificates = (_library.Certificate * sizes[0])()
    if 0 not in sizes:
        views = [View(a.address, a.dtype, *strides) for a, _, strides in (source, place)]
        library.muonium_orthogonalize_sized(Shape(*sizes), options, *views, certificates,
                                            ctypes.sizeof(_library.Certificate))
    if out is not None and target is not out:
        out[...] = target
    result = target if out is None else out
    if not return_certificate:
        return result
    made = [Certificate(OUTCOMES[c.outcome], c.rescued, c.divisor, c.deviation, c.bound,
                        c.orthogonality_error, c.sigma_min, c.sigma_max) for c in certificates]
    return result, made[0] if len(array.shape) == 2 else made


# ---- coefficients ----


def _rows(steps, fill):
    if not 1 <= whole("steps", steps, ctypes.c_int) <= 64:
        raise ValueError(f"steps is {steps}: use 1 to 64")
    table = (ctypes.c_double * 3 * steps)()
    fill(table)
    return [tuple(row) for row in table]


def polar_express(steps: int, lower: float = 1e-3, safety: float = 1e-2,
                  cushion: float = 0.02) -> List[Triple]:
    """The `steps` quintics a s + b s^3 + c s^5, each optimal after the ones before, that
    bring [lower, 1] closest to 1 (Polar Express, arXiv 2505.16932).

    safety leaves room above 1 in every step but the last; cushion keeps early steps from
    amplifying rounding. Right to 1e-12 relative.

    The defaults are the paper's. `orthogonalize` and the optimizer leave more room for
    rounding, safety 0.02: their table is polar_express(5, safety=0.02), which is the preset
    "polar_express_5".
    """
    return _rows(steps, lambda table: library.muonium_polar_express(steps, lower, safety, cushion,
                                                                    table))


def polar_cubic(steps: int, lower: float = 1e-3, safety: float = 1e-2) -> List[Triple]:
    """The same with the optimal cubics (c = 0): one product less per step."""
    return _rows(steps, lambda table: library.muonium_polar_cubic(steps, lower, safety, table))


def presets() -> Dict[str, List[Triple]]:
    """The published tables of coefficients by name; the last row repeats."""
    tables = {}
    for index, name in enumerate(_library.strings(library.muonium_preset_name)):
        rows = library.muonium_preset_rows(index)
        tables[name] = _rows(rows, lambda table, name=name, rows=rows: (
            library.muonium_coefficients(name.encode(), rows, table)))
    return tables


def direct_sets() -> List[str]:
    """The names of the direct form's polynomials."""
    return list(_library.strings(library.muonium_direct_set_name))


def recipes() -> List[str]:
    """The names of the recipes, the default one first."""
    return list(_library.strings(library.muonium_recipe_name))


# ---- the machine ----


def info() -> Dict[str, Any]:
    """Version and path of the library, its threads, and the kernels that it chose and why."""
    cpu = _library.CpuInfo()
    library.muonium_cpu_sized(cpu, ctypes.sizeof(cpu))
    return {"version": library.muonium_version().decode(), "library": _library.library_path,
            "threads": library.muonium_threads(),
            **{name: getattr(cpu, name).decode() for name, *_ in cpu._fields_[1:]}}


def set_threads(threads: int) -> None:
    """Use so many threads from now on; 0 goes back to the default. Results do not change."""
    library.muonium_set_threads(whole("threads", threads, ctypes.c_int))


def threads() -> int:
    """The number of threads that the next call may use."""
    return library.muonium_threads()


# ---- routing ----


def route(shapes: Mapping[str, Any], recipe: Optional[str] = None,
          **options: Unpack[Options]) -> List[Report]:
    """What parameters of these names and shapes would get, and why: a dry run.

    shapes maps names to shapes, or to arrays or tensors, of which only the shape is looked
    at. Options are those of Optimizer.
    """
    require_names(shapes, "shapes", "shapes or arrays")
    refuse_unknown(options)
    reports = []
    for name, shape in shapes.items():
        # One at a time. Memory that no step touches may be anywhere.
        handle = Handle(make_options(recipe, options), library.muonium_create_description)
        shape = tuple(whole(f"shape of {shown(name)}", size, ctypes.c_size_t)
                      for size in getattr(shape, "shape", shape))
        handle.add(name, Array(4096, F32, shape, dense_strides(shape), None), options)
        reports.append(handle.report(0))
    return reports

"""The shared library: where it is found, its structures and functions, its errors.

Everything here mirrors muonium.h, field by field and name by name.
"""

import ctypes
import ctypes.util
import os
import pathlib
import sys
from ctypes import POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_size_t, c_void_p

HEADER_VERSION = "0.2.0"  # of the muonium.h that this file mirrors

# ---- errors ----


class NonFiniteError(ArithmeticError):
    """A NaN or infinity where the options ask for an error; nothing was changed."""


class LibraryError(ImportError):
    """The shared library cannot be used: not found, not loadable, or of another version."""


def shown(text):
    """A name or path for a message, with escapes in place of what a terminal would not show."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def missing(what, package, name):
    """The error for a package that only some functions need."""
    return ModuleNotFoundError(f"{what} needs {package}, which is not installed: "
                               f'pip install "muonium[{name}]"', name=name)


def numpy_for(what):
    """NumPy, which `what` needs."""
    try:
        import numpy
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise missing(what, "NumPy", "numpy") from None
    return numpy


EXCEPTIONS = {
    1: ValueError,       # MUONIUM_INVALID
    2: MemoryError,      # MUONIUM_NO_MEMORY
    3: NonFiniteError,   # MUONIUM_NON_FINITE
    4: ArithmeticError,  # MUONIUM_NOT_CONVERGED
    5: OSError,          # MUONIUM_IO
    6: ValueError,       # MUONIUM_FORMAT
    7: RuntimeError,     # MUONIUM_PEER
}


def _check(status, function, arguments):
    if status != 0:
        message = library.muonium_last_error().decode("utf-8", "replace")
        raise EXCEPTIONS.get(status, RuntimeError)(message)
    return status


# ---- structures ----

_table = POINTER(c_double * 3)


class CpuInfo(Structure):
    _fields_ = [("struct_size", c_size_t)]
    _fields_ += [(name, c_char_p) for name in ("isa", "kernel", "reason", "features",
                                             "bf16_kernel", "bf16_reason")]


class Shape(Structure):
    _fields_ = [(name, c_size_t) for name in ("batch", "rows", "cols")]


class View(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("batch_stride", ctypes.c_ssize_t),
                ("row_stride", ctypes.c_ssize_t), ("col_stride", ctypes.c_ssize_t)]


class Certificate(Structure):
    _fields_ = [("struct_size", c_size_t), ("outcome", c_int), ("rescued", c_int), ("divisor", c_double),
                ("deviation", c_double), ("bound", c_double), ("orthogonality_error", c_double),
                ("sigma_min", c_double), ("sigma_max", c_double)]


class Option(Structure):
    """What the library tells of one of its options."""

    _fields_ = [("c_name", c_char_p), ("c_help", c_char_p), ("c_type", c_int), ("plan", c_bool),
                ("saved", c_bool), ("c_enum", c_char_p), ("c_range", c_char_p),
                ("least", c_double), ("most", c_double), ("offset", c_size_t), ("size", c_size_t)]


MAX_DIMS = 8
_Sizes = c_size_t * MAX_DIMS
_strides = POINTER(ctypes.c_ssize_t)


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("ndim", c_size_t), ("shape", _Sizes),
                ("data", c_void_p), ("grad", c_void_p), ("f32_grad", c_bool),
                ("strides", _strides), ("grad_strides", _strides), ("layout", c_int),
                ("out_axes", ctypes.c_uint32), ("in_axes", ctypes.c_uint32),
                ("row_splits", POINTER(c_size_t)), ("row_split_count", c_size_t),
                ("heads", c_size_t), ("route", c_int), ("half_grad", c_int), ("copy", c_void_p),
                ("copy_dtype", c_int)]


class ParameterReport(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("muon", c_bool), ("reason", c_char_p),
                ("matrices", c_size_t), ("rows", c_size_t), ("cols", c_size_t), ("form", c_int),
                ("restarts", c_int), ("direct_set", c_char_p), ("flops", c_double),
                ("state_bytes", c_size_t), ("step_rms", c_double), ("lr", c_double), ("steps", ctypes.c_uint64),
                ("precision", c_int)]


class Counters(Structure):
    _fields_ = [("struct_size", c_size_t)]
    _fields_ += [(name, ctypes.c_uint64)
                for name in ("steps", "matrices", "skipped", "rescued", "zero")]
    _fields_ += [(name, c_size_t) for name in ("muon", "adam", "state_bytes", "scratch_bytes")]
    _fields_ += [("flops", c_double), ("teams", c_size_t), ("team_width", c_size_t)]


class State(Structure):
    _fields_ = [("struct_size", c_size_t), ("steps", ctypes.c_uint64), ("elements", c_size_t), ("momentum", c_void_p),
                ("momentum_dtype", c_int), ("exp_avg", c_void_p), ("exp_avg_sq", c_void_p),
                ("normuon", c_void_p), ("rows", c_size_t), ("master", c_void_p),
                ("adamuon", c_void_p), ("radius", c_void_p), ("matrices", c_size_t),
                ("momentum_scale", c_void_p), ("exp_avg_dtype", c_int), ("exp_avg_scale", c_void_p),
                ("blocks", c_size_t)]


class QK(Structure):
    _fields_ = [(name, c_size_t) for name in ("query", "key", "query_row", "key_row", "heads",
                                              "key_heads", "head_dim")]
    _fields_ += [("max_logits", POINTER(ctypes.c_float)), ("threshold", c_double)]


# ---- functions ----

_optimizer, _group, _out = c_void_p, c_void_p, POINTER(c_void_p)
Sink = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p, c_size_t)  # takes bytes in order

# Those that return a status, which becomes an exception; and the others.
_FALLIBLE = {
    "set_threads": [c_int],
    "cpu_sized": [POINTER(CpuInfo), c_size_t],
    "polar_express": [c_int, c_double, c_double, c_double, _table],
    "polar_cubic": [c_int, c_double, c_double, _table],
    "coefficients": [c_char_p, c_int, _table],
    "orthogonalize_sized": [Shape, c_void_p, POINTER(View), POINTER(View),
                            POINTER(Certificate), c_size_t],
    "plan_create": [Shape, c_void_p, _out],
    "option_get": [c_void_p, c_char_p, c_char_p, c_size_t],
    "options_init_sized": [c_void_p, c_size_t, c_size_t, c_char_p],
    "create": [c_void_p, _out],
    "create_description": [c_void_p, _out],
    "add_group": [_optimizer, c_void_p, _out],
    "add_sized": [_optimizer, POINTER(Tensor), c_size_t, _group],
    "set_lr": [_optimizer, _group, c_double],
    "set_weight_decay": [_optimizer, _group, c_double],
    "set_momentum": [_optimizer, _group, c_double],
    "set_grad_scale": [_optimizer, c_double],
    "grad_norm": [_optimizer, c_bool, POINTER(c_double)],
    "step_at": [_optimizer, c_void_p, c_void_p, c_size_t],
    "report_sized": [_optimizer, c_size_t, POINTER(ParameterReport), c_size_t],
    "count_sized": [_optimizer, POINTER(Counters), c_size_t],
    "state_of_sized": [_optimizer, c_size_t, POINTER(State), c_size_t],
    "set_state_sized": [_optimizer, c_size_t, POINTER(State), c_size_t],
    "save": [_optimizer, c_char_p],
    "save_to": [_optimizer, Sink, c_void_p],
    "load": [_optimizer, c_char_p],
    "load_reader_sized": [_optimizer, c_void_p, c_void_p, c_void_p, c_size_t],
    "reader_open_memory": [c_char_p, c_size_t, _out],
}
_OTHERS = {
    "option_at": (POINTER(Option), [c_int]),
    "option_choice": (c_char_p, [POINTER(Option), c_int]),
    "enum_name": (c_char_p, [c_char_p, c_int]),
    "version": (c_char_p, []),
    "last_error": (c_char_p, []),
    "threads": (c_int, []),
    "direct_set_name": (c_char_p, [c_int]),
    "preset_name": (c_char_p, [c_int]),
    "preset_rows": (c_int, [c_int]),
    "recipe_name": (c_char_p, [c_int]),
    "plan_options_init_sized": (None, [c_void_p, c_size_t]),
    "plan_destroy": (None, [c_void_p]),
    "xla_orthogonalize": (c_void_p, [c_void_p]),
    "destroy": (None, [_optimizer]),
    "reader_close": (None, [c_void_p]),
}

# ---- finding and loading ----

_FILE = "libmuonium.dylib" if sys.platform == "darwin" else "libmuonium.so"


def _candidates():
    """Where the library may be, best first: pairs of a path and what it is."""
    package = pathlib.Path(__file__).resolve().parent
    yield package / _FILE, "inside the package"
    checkout = package.parent.parent
    if (checkout / "include" / "muonium.h").is_file():
        yield checkout / "build" / _FILE, "built in the checkout (make python)"
    found = ctypes.util.find_library("muonium")
    if found:
        yield pathlib.Path(found), "the system's"


def _open():
    """The library, loaded, and its path."""
    chosen = os.environ.get("MUONIUM_LIBRARY")
    if chosen:
        try:
            return ctypes.CDLL(chosen), chosen
        except OSError as error:
            raise LibraryError(f"MUONIUM_LIBRARY is {chosen!r}, which cannot be loaded: "
                               f"{shown(error)}; set it to the path of libmuonium, or unset "
                               "it") from error
    looked = []
    for path, what in _candidates():
        if path.is_absolute() and not path.is_file():
            looked.append(f"  {shown(path)} ({what}): no such file")
            continue
        try:
            return ctypes.CDLL(str(path)), str(path)
        except OSError as error:
            looked.append(f"  {shown(path)} ({what}): {shown(error)}")
    raise LibraryError("\n".join([
        "the shared library of Muonium was not found. Looked at:",
        "  the environment variable MUONIUM_LIBRARY: not set", *looked,
        "  the system's libraries (ldconfig): no libmuonium that loads",
        "Run `make python` in the checkout, `pip install .`, or set MUONIUM_LIBRARY to its path."]))


def _require_version(found, path):
    """Before 1.0 a minor version may change the interface; from then on a major one."""
    ours, theirs = HEADER_VERSION.split("."), found.split(".")
    kept = 2 if ours[0] == "0" else 1
    if theirs[:kept] != ours[:kept]:
        raise LibraryError(f"{shown(path)} is Muonium {found}; this package needs {HEADER_VERSION} "
                           f"(any {'.'.join(ours[:kept])}.x): install both from one source")


def _load():
    loaded, path = _open()
    try:
        loaded.muonium_version.restype = c_char_p
        _require_version(loaded.muonium_version().decode(), path)
        for name, arguments in _FALLIBLE.items():
            function = getattr(loaded, "muonium_" + name)
            function.restype, function.argtypes, function.errcheck = c_int, arguments, _check
        for name, (result, arguments) in _OTHERS.items():
            function = getattr(loaded, "muonium_" + name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise LibraryError(f"{shown(path)} is not the library that this package was made for: "
                           f"{shown(error)}; build both from one source") from error
    return loaded, path


library, library_path = _load()


def strings(function):
    """The strings that a function of the library returns by index."""
    index = 0
    while (text := function(index)) is not None:
        yield text.decode()
        index += 1


# ---- enums: names in the order of their values ----


def names_of(enum):
    return tuple(strings(lambda value: library.muonium_enum_name(enum.encode(), value)))


DTYPES = names_of("muonium_dtype")
OUTCOMES = names_of("muonium_outcome")
FORMS = names_of("muonium_form")

# ---- options: the library has the list of them ----


def _options():
    index = 0
    while option := library.muonium_option_at(index):
        info = option.contents
        info.name, info.help = info.c_name.decode(), info.c_help.decode()
        info.type = names_of("muonium_option_type")[info.c_type]
        info.enum = info.c_enum.decode() if info.c_enum else None
        info.range = info.c_range.decode() if info.c_range else None
        info.choices = tuple(strings(lambda i, o=option: library.muonium_option_choice(o, i)))
        yield info
        index += 1


OPTIONS = {info.name: info for info in _options()}


def _fields(plan):
    """The fields of one of the two structs, after its size."""
    kinds = {"number": c_double, "switch": c_bool, "choice": c_int, "name": c_char_p,
             "table": _table, "list": POINTER(c_char_p), "callback": c_void_p}
    second = {"table": ("table_rows", c_size_t), "patterns": ("pattern_count", c_size_t),
              "log": ("log_context", c_void_p)}
    for info in sorted(OPTIONS.values(), key=lambda info: info.offset):
        if info.plan == plan:
            whole = c_int if info.size == ctypes.sizeof(c_int) else ctypes.c_uint64
            yield info.name, kinds.get(info.type, whole)
            if info.name in second:
                yield second[info.name]


class PlanOptions(Structure):
    _fields_ = [("struct_size", c_size_t), *_fields(True)]


class Options(Structure):
    _fields_ = [("struct_size", c_size_t), ("plan", PlanOptions), *_fields(False)]


for _function, _place, _struct in (("orthogonalize_sized", 1, PlanOptions),
                                   ("plan_create", 1, PlanOptions), ("create", 0, Options),
                                   ("create_description", 0, Options), ("add_group", 1, Options)):
    _FALLIBLE[_function][_place] = POINTER(_struct)
    getattr(library, "muonium_" + _function).argtypes = _FALLIBLE[_function]

for _info in OPTIONS.values():
    if getattr(PlanOptions if _info.plan else Options, _info.name).offset != _info.offset:
        raise LibraryError(f"{shown(library_path)} has its option {_info.name} at an unexpected "
                           "place: install package and library from one source")


def c_text(what, text):
    """A text for the library, which would end it at its first NUL."""
    try:
        encoded = text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} is {text!r}, which is not Unicode text: {error.reason}") from None
    if b"\0" in encoded:
        raise ValueError(f"{what} is {text!r}: it must not contain a NUL character")
    return encoded


def plan_options():
    """The library's own defaults."""
    options = PlanOptions()
    library.muonium_plan_options_init_sized(ctypes.byref(options), ctypes.sizeof(options))
    return options


def options_of(recipe=None):
    """The options of a recipe, by name."""
    if recipe is not None and not isinstance(recipe, str):
        raise TypeError(f"recipe is {recipe!r}: use a name")
    name = None if recipe is None else c_text("recipe", recipe)
    options = Options()
    library.muonium_options_init_sized(ctypes.byref(options), ctypes.sizeof(options),
                                       ctypes.sizeof(PlanOptions), name)
    return options

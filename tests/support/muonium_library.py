"""The library by ctypes, for tests: the structs of muonium.h and a thin optimizer over them.

Options and layouts go by the names that the reference uses, so that one description of a run
drives both. Arrays of bf16 are NumPy arrays of uint16.
"""
import ctypes
from ctypes import (c_bool, c_char_p, c_double, c_float, c_int, c_size_t, c_uint64, c_void_p)

import numpy as np

from reference.coefficients import Generated
from reference.rounding import bf16_bits, bf16_values

from package import BUILD

from muonium._library import (DTYPES, MAX_DIMS, OPTIONS, OUTCOMES, QK, Certificate,  # noqa: E402
                              Counters, Options, PlanOptions, Tensor, names_of,
                              ParameterReport as Report)

# The values of the enums of muonium.h, by the names of the options.
ENUMS = {name: names_of(option.enum) for name, option in OPTIONS.items() if option.enum}
LAYOUTS = names_of("muonium_layout")

Table = c_double * 3
LogFunction = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)
LossFunction = ctypes.CFUNCTYPE(c_double, c_void_p)


class MuoniumError(Exception):
    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status


def _declare(library):
    pointer = ctypes.POINTER
    library.muonium_last_error.restype = c_char_p
    library.muonium_recipe_name.restype = c_char_p
    library.muonium_status_name.restype = c_char_p
    library.muonium_destroy.restype = None
    library.muonium_destroy.argtypes = [c_void_p]
    library.muonium_parameter_count.restype = c_size_t
    library.muonium_parameter_count.argtypes = [c_void_p]
    for name, *arguments in (
            ("options_init_sized", pointer(Options), c_size_t, c_size_t, c_char_p),
            ("create", pointer(Options), pointer(c_void_p)),
            ("add_group", c_void_p, pointer(Options), pointer(c_void_p)),
            ("add_sized", c_void_p, pointer(Tensor), c_size_t, c_void_p),
            ("find", c_void_p, c_char_p, pointer(c_size_t)),
            ("set_data", c_void_p, c_size_t, c_void_p),
            ("set_grad", c_void_p, c_size_t, c_void_p),
            ("set_lr", c_void_p, c_void_p, c_double),
            ("set_weight_decay", c_void_p, c_void_p, c_double),
            ("set_momentum", c_void_p, c_void_p, c_double),
            ("step", c_void_p),
            ("step_with", c_void_p, LossFunction, c_void_p, pointer(c_double)),
            ("grad_norm", c_void_p, c_bool, pointer(c_double)),
            ("clip_grads", c_void_p, c_double, c_bool, pointer(c_double), pointer(c_double)),
            ("zero_grads", c_void_p),
            ("qk_clip_sized", c_void_p, pointer(QK), c_size_t, pointer(c_size_t)),
            ("report_sized", c_void_p, c_size_t, pointer(Report), c_size_t),
            ("count_sized", c_void_p, pointer(Counters), c_size_t),
            ("certificates_sized", c_void_p, c_size_t, pointer(Certificate), c_size_t, c_size_t,
             pointer(c_size_t)),
            ("set_threads", c_int)):
        function = getattr(library, "muonium_" + name)
        function.restype, function.argtypes = c_int, arguments
    return library


LIBRARY = _declare(ctypes.CDLL(str(BUILD / "libmuonium.so")))


def call(name, *arguments):
    """Call muonium_<name>; a failure is raised with its message."""
    status = getattr(LIBRARY, "muonium_" + name)(*arguments)
    if status != 0:
        raise MuoniumError(LIBRARY.muonium_status_name(status).decode(),
                           LIBRARY.muonium_last_error().decode())


# ---- numbers ----------------------------------------------------------------

def store(dtype, values):
    """A new array of the type, of `values` rounded to it."""
    if dtype == "bf16":
        return bf16_bits(values).reshape(np.shape(values))
    return np.array(values, dtype={"f32": np.float32, "f16": np.float16}[dtype])


def load(dtype, array):
    """The values as a new float64 array."""
    if dtype == "bf16":
        return bf16_values(np.ravel(array)).reshape(np.shape(array))
    return np.array(array, dtype=np.float64)


# ---- options ------------------------------------------------------------------

def _set_coefficients(options, value, kept):
    plan = options.plan
    plan.table, plan.table_rows, plan.coefficients, plan.generated_rows = None, 0, None, 0
    if isinstance(value, Generated):
        plan.lower, plan.safety, plan.cushion = value.lower, value.safety, value.cushion
        plan.generated_rows = value.rows or 0
    elif isinstance(value, str):
        plan.coefficients = value.encode()
    else:
        rows = [value] if np.ndim(value) == 1 else list(value)
        kept.append((Table * len(rows))(*[Table(*row) for row in rows]))
        plan.table, plan.table_rows = kept[-1], len(rows)


def make_options(recipe=None, **fields):
    """The options of a recipe with fields of the reference changed. What they point to lives as
    long as they do."""
    options = Options()
    call("options_init_sized", ctypes.byref(options), ctypes.sizeof(Options), ctypes.sizeof(PlanOptions),
         recipe.encode() if recipe else None)
    options.plan.form = ENUMS["form"].index("quintic")  # what the reference has unless told
    options.kept = kept = []
    for name, value in fields.items():
        if name == "coefficients":
            _set_coefficients(options, value, kept)
        elif name == "patterns":
            kept.append((c_char_p * max(len(value), 1))(*[p.encode() for p in value]))
            options.patterns, options.pattern_count = kept[-1], len(value)
            options.only_patterns = True  # as in the reference
        elif name == "adam_betas":
            options.adam_beta1, options.adam_beta2 = value
        elif name == "normalize_spatial":
            options.spatial_normalize = value
        elif name == "log":
            kept.append(LogFunction(lambda _, line: value(line.decode())))
            options.log = ctypes.cast(kept[-1], c_void_p)
        elif name in ("adam_lr", "adam_eps", "adam_weight_decay") and value is None:
            setattr(options, name, -1.0)
        else:
            part = options.plan if hasattr(options.plan, name) else options
            assert hasattr(part, name), name
            named = name in ENUMS and isinstance(value, str)
            setattr(part, name, ENUMS[name].index(value) if named else value)
    return options


# ---- the optimizer --------------------------------------------------------------

def _set_layout(tensor, layout, ndim, kept):
    """`layout` is one of reference.layouts, or None for that of the options."""
    if layout is None:
        return
    if layout.kind == "fan":
        tensor.layout = LAYOUTS.index("fan")
        tensor.out_axes = sum(1 << axis % ndim for axis in layout.out_axes)
        tensor.in_axes = sum(1 << axis % ndim for axis in layout.in_axes)
    elif layout.kind == "rows":
        # The layout of which they are the blocks is told by its axes.
        tensor.layout = LAYOUTS.index("experts" if layout.out_axes == (-2,) else "flatten")
    else:
        tensor.layout = LAYOUTS.index(layout.kind)
    if layout.rows:
        kept.append((c_size_t * len(layout.rows))(*layout.rows))
        tensor.row_splits, tensor.row_split_count = kept[-1], len(layout.rows)
    tensor.heads = layout.heads or 0


def address(array):
    return None if array is None else array.__array_interface__["data"][0]


class Optimizer:
    """Arrays given to it are used in place and kept alive by it."""

    def __init__(self, options):
        self.handle = c_void_p()
        self.arrays, self.kept = {}, [options]
        call("create", ctypes.byref(options), ctypes.byref(self.handle))

    def __del__(self):
        LIBRARY.muonium_destroy(self.handle)

    def add_group(self, options):
        group = c_void_p()
        call("add_group", self.handle, ctypes.byref(options), ctypes.byref(group))
        return group

    def add(self, name, data, dtype="f32", layout=None, grad=None, f32_grad=False, group=None,
            route="auto", strided=False):
        """Returns the number of the parameter. `strided`: take the strides of the arrays, instead
        of demanding dense ones."""
        tensor, kept = Tensor(), []
        tensor.name = name.encode() if name is not None else None
        tensor.dtype, tensor.ndim = DTYPES.index(dtype), data.ndim
        tensor.shape[:data.ndim] = data.shape
        tensor.f32_grad, tensor.route = f32_grad, ENUMS["route"].index(route)
        for array, field in ((data, "strides"), (grad, "grad_strides")):
            if array is not None and strided:
                steps = [step // array.itemsize for step in array.strides]
                setattr(tensor, field, (ctypes.c_ssize_t * MAX_DIMS)(*steps))
            assert array is None or strided or array.flags.c_contiguous
        tensor.data, tensor.grad = address(data), address(grad)
        _set_layout(tensor, layout, data.ndim, kept)
        call("add_sized", self.handle, ctypes.byref(tensor), ctypes.sizeof(tensor), group)
        index = LIBRARY.muonium_parameter_count(self.handle) - 1
        self.arrays[index] = [data, grad]
        return index

    def set_data(self, index, data):
        call("set_data", self.handle, index, address(data))
        self.arrays[index][0] = data

    def set_grad(self, index, grad):
        call("set_grad", self.handle, index, address(grad))
        self.arrays[index][1] = grad

    def set_lr(self, lr, group=None):
        call("set_lr", self.handle, group, lr)

    def set_weight_decay(self, weight_decay, group=None):
        call("set_weight_decay", self.handle, group, weight_decay)

    def set_momentum(self, momentum, group=None):
        call("set_momentum", self.handle, group, momentum)

    def step(self):
        call("step", self.handle)

    def step_with(self, loss):
        value = c_double()
        call("step_with", self.handle, LossFunction(lambda _: loss()), None, ctypes.byref(value))
        return value.value

    def grad_norm(self, adam_only=False):
        norm = c_double()
        call("grad_norm", self.handle, adam_only, ctypes.byref(norm))
        return norm.value

    def clip_grads(self, max_norm, adam_only=False):
        """(norm found, factor)."""
        norm, factor = c_double(), c_double()
        call("clip_grads", self.handle, max_norm, adam_only, ctypes.byref(norm),
             ctypes.byref(factor))
        return norm.value, factor.value

    def zero_grads(self):
        call("zero_grads", self.handle)

    def qk_clip(self, max_logits, **fields):
        logits = (c_float * len(max_logits))(*max_logits)
        clipped = c_size_t()
        qk = QK(max_logits=logits, heads=len(max_logits), **fields)
        call("qk_clip_sized", self.handle, ctypes.byref(qk), ctypes.sizeof(qk),
             ctypes.byref(clipped))
        return clipped.value

    def find(self, name):
        index = c_size_t()
        call("find", self.handle, name.encode(), ctypes.byref(index))
        return index.value

    def report(self, index):
        report = Report()
        call("report_sized", self.handle, index, ctypes.byref(report), ctypes.sizeof(report))
        return report

    def count(self):
        counters = Counters()
        call("count_sized", self.handle, ctypes.byref(counters), ctypes.sizeof(counters))
        return counters

    def certificates(self, index):
        count = c_size_t()
        size = ctypes.sizeof(Certificate)
        call("certificates_sized", self.handle, index, None, size, 0, ctypes.byref(count))
        found = (Certificate * max(count.value, 1))()
        call("certificates_sized", self.handle, index, found, size, count.value,
             ctypes.byref(count))
        return list(found[:count.value])

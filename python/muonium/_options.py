"""Options by keyword: the names of muonium.h, with strings for its enums.

The keywords of torch.optim.Muon and of timm's Muon that mean the same are understood
under their own names.
"""

import ctypes
import difflib
import operator
from collections.abc import Mapping

from ._library import OPTIONS, Options, c_text, library, names_of, options_of

# The names that an option may have; and the layout of a tensor, which is none.
CHOICES = {name: option.choices for name, option in OPTIONS.items() if option.type == "choice"}
CHOICES["layout"] = names_of("muonium_layout")

# What others call these.
ALIASES = {
    "ns_steps": "steps",
    "ns_coefficients": "coefficients",
    "adjust_lr_fn": "scale",
    "normalize": "normalization",
    "normalize_spatial": "spatial_normalize",
    "adamw_lr": "adam_lr",
    "fallback_lr_scale": "adam_lr_scale",
    "conv_mode": "layout",
    "ns_iters": "steps",
    "beta": "momentum",
    "preconditioning": "normalization",
    "adam_learning_rate": "adam_lr",
    "adam_b1": "adam_beta1",
    "adam_b2": "adam_beta2",
}
CONV_MODES = {"flatten": "flatten", "batched": "spatial"}
SCALE_ALIASES = {"spectral_unclamped": "rms_to_rms"}  # of adjust_lr_fn

# Options of a parameter, not of a group.
OF_TENSORS = {"layout", "out_axes", "in_axes", "row_splits", "heads", "use_muon", "use_fallback"}

# Keywords elsewhere that ask for nothing different here, unless set to something else.
IMMATERIAL = {"use_addmm": (True, False), "verbose": (True, False), "capturable": (True, False),
              "foreach": (None, True, False), "fused": (None, True, False),
              "differentiable": (False,), "amsgrad": (False,),
              "scale_eps": (False,), "grouped_ns": (True, False)}
ALGORITHMS = {"muon": False, "adamuon": True}  # of timm: whether adamuon is on

# Those that are keywords: all but those that have another keyword or a call of their own.
KEYWORDS = {name for name, option in OPTIONS.items()
            if option.type not in ("table", "callback") and name != "exact_certificate"}
KNOWN = {*KEYWORDS, *ALIASES, *OF_TENSORS, *IMMATERIAL, "betas", "algo"}

# Names that other libraries use and that are not understood here, with the one that is meant.
SYNONYMS = {
    "learning_rate": "lr", "rate": "lr", "alpha": "lr", "muon_lr": "lr", "max_lr": "lr",
    "adamw_learning_rate": "adam_lr",
    "wd": "weight_decay", "decay_rate": "weight_decay", "l2": "weight_decay",
    "adam_wd": "adam_weight_decay", "adamw_wd": "adam_weight_decay",
    "adamw_weight_decay": "adam_weight_decay",
    "mu": "momentum", "muon_momentum": "momentum",
    "nesterov_momentum": "nesterov",
    "adam_betas": "betas", "adamw_betas": "betas", "beta1": "adam_beta1", "beta2": "adam_beta2",
    "b1": "adam_beta1", "b2": "adam_beta2",
    "epsilon": "eps", "adamw_eps": "adam_eps", "adam_epsilon": "adam_eps",
    "iterations": "steps", "num_steps": "steps", "num_iterations": "steps",
    "backend_steps": "steps", "newton_schulz_steps": "steps", "coeffs": "coefficients",
    "ns_coeffs": "coefficients", "preset": "coefficients", "norm": "normalization",
    "dtype": "precision", "ns_dtype": "precision", "momentum_dtype": "state_dtype",
    "mu_dtype": "state_dtype", "exclude": "patterns", "exclude_patterns": "patterns",
    "adam_patterns": "patterns", "num_heads": "heads", "n_heads": "heads", "n_head": "heads",
    "splits": "row_splits", "split": "row_splits", "rms_scale": "scale", "scaling": "scale",
    "cautious": "decay", "cautious_wd": "decay", "master_weights": "master", "nan": "nonfinite",
}


def choice(name, value):
    """The number of a named choice."""
    names = CHOICES[name]
    if isinstance(value, str) and value in names:
        return names_of(OPTIONS[name].enum if name in OPTIONS else "muonium_layout").index(value)
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"{name} is {value!r}: use one of {', '.join(names)}")


def number(name, value, kind=float):
    """A real or whole number, and nothing that only looks like one."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return operator.index(value) if kind is int else float(value)
    except (TypeError, ValueError):
        what = "a whole number" if kind is int else "a number"
        raise TypeError(f"{name} is {value!r}: use {what}") from None
    except OverflowError:
        raise ValueError(f"{name} is {value!r}: that is too large") from None


def whole(name, value, kind):
    """A whole number from 0 on that a C type can hold: ctypes would cut off what it cannot."""
    found = number(name, value, int)
    bits = 8 * ctypes.sizeof(kind) - (kind(-1).value < 0)
    if not 0 <= found < 2**bits:
        raise ValueError(f"{name} is {found}: use 0 to {2**bits - 1}")
    return found


def set_coefficients(options, value):
    """The name of a preset, "generated", one (a, b, c) for all steps, or one for each."""
    options.table, options.table_rows, options.coefficients = None, 0, None
    if isinstance(value, str):
        options.coefficients = None if value == "generated" else c_text("coefficients", value)
        return
    try:
        rows = list(value)
        rows = [rows] if rows and not hasattr(rows[0], "__len__") else rows
        options.table = (ctypes.c_double * 3 * len(rows))(*[_triple(*row) for row in rows])
        options.table_rows = len(rows)
    except (TypeError, ValueError):
        raise TypeError(f"coefficients is {value!r}: use the name of a preset, (a, b, c), or a "
                        "list of those") from None


def _triple(a, b, c):
    return float(a), float(b), float(c)


def set_patterns(options, value):
    if isinstance(value, str):
        raise TypeError(f"patterns is {value!r}: use a list of patterns")
    patterns = [c_text("a pattern", str(pattern)) for pattern in value]
    options.patterns = (ctypes.c_char_p * max(1, len(patterns)))(*patterns)
    options.pattern_count = len(patterns)


def set_option(options, name, value):
    """Set one field of a C structure of options, of either kind."""
    option = OPTIONS[name]
    if isinstance(options, Options) and option.plan:
        options = options.plan
    if name == "coefficients":
        set_coefficients(options, value)
    elif name == "patterns":
        set_patterns(options, value)
    elif option.type == "choice":
        setattr(options, name, choice(name, value))
    elif option.type == "name":
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r}: use a name")
        setattr(options, name, c_text(name, value))
    elif option.type == "number":
        setattr(options, name, number(name, value))
    elif option.type == "switch":
        if value not in (True, False):
            raise TypeError(f"{name} is {value!r}: use True or False")
        setattr(options, name, bool(value))
    else:
        setattr(options, name, whole(name, value, dict(options._fields_)[name]))


def refuse_unknown(names):
    for name in names:
        if name not in KNOWN:
            given = str(name).lower()
            close = ([SYNONYMS[given]] if given in SYNONYMS
                     else difflib.get_close_matches(given, sorted(KNOWN), 1))
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(KNOWN))}"
            raise TypeError(f"unknown option {name!r}: {hint}")


def refuse_of_group(parameter, given):
    """Refuse what cannot be an option of a single parameter."""
    refuse_unknown(given)
    for name in given:
        if name not in OF_TENSORS and name not in ("route", "conv_mode"):
            raise ValueError(f"each gives {parameter!r} the option {name!r}, which is one of the "
                             f"whole optimizer: of a parameter are {', '.join(sorted(OF_TENSORS))}")


def require_names(given, what, of):
    """Refuse what has no names, which decide with the shapes who gets Muon."""
    if isinstance(given, Mapping):
        return
    if hasattr(given, "named_parameters"):
        raise TypeError(f"{what} is a module of PyTorch: use muonium.torch.Muon, or a dict, "
                        "dict(model.named_parameters())")
    raise TypeError(f"{what} is of type {type(given).__name__}: use a dict of names to {of}, as "
                    '{"mlp.w": w, "mlp.b": b}. The names tell embeddings, heads and norms, which '
                    "go to AdamW, from the matrices between them; dict(pairs) makes one of "
                    "(name, array) pairs")


def make_options(recipe, given):
    """The C structure for a recipe and options over it. None leaves the recipe's value.
    What concerns single parameters is left to tensor_options."""
    options = options_of(recipe)
    for name, value in given.items():
        if name in IMMATERIAL:
            if value not in IMMATERIAL[name]:
                why = (", since eps would depend on the shape of each matrix: use "
                       "eps_mode=\"add\", the same for square ones" if name == "scale_eps" else "")
                raise ValueError(f"{name} is {value!r}: Muonium does not offer that{why}")
        elif name == "betas" and value is not None:
            first, second = value
            options.adam_beta1, options.adam_beta2 = number("betas", first), number("betas", second)
            if (("algo" in given or options.adamuon or given.get("adamuon"))
                    and given.get("adamuon_beta2") is None):  # betas are AdaMuon's too, as in timm
                options.adamuon_beta2 = options.adam_beta2
        elif name == "algo":
            if value not in ALGORITHMS:
                raise ValueError(f"algo is {value!r}: use one of {', '.join(ALGORITHMS)}")
            options.adamuon = ALGORITHMS[value]
            options.adamuon_eps = -1  # eps, as in timm
        elif name == "conv_mode" and value is not None and value not in CONV_MODES:
            raise ValueError(f"conv_mode is {value!r}: use one of {', '.join(CONV_MODES)}")
        elif name == "adjust_lr_fn" and value is not None:
            value = SCALE_ALIASES.get(value, value)
            if value not in CHOICES["scale"]:
                raise ValueError(f"Adjust learning rate function {value} is not supported: use one "
                                 f"of {', '.join((*CHOICES['scale'], *SCALE_ALIASES))}")
            set_option(options, "scale", value)
        elif value is not None and name not in OF_TENSORS and ALIASES.get(name) != "layout":
            set_option(options, ALIASES.get(name, name), value)
    return options


def route_of(given):
    """What use_muon and use_fallback ask for."""
    if given.get("use_fallback"):
        return "adam"
    use_muon = given.get("use_muon")
    return given.get("route") or ("auto" if use_muon is None else "muon" if use_muon else "adam")


def _mask(name, axes, ndim):
    mask = 0
    axes = () if axes is None else axes
    for axis in [axes] if isinstance(axes, int) else axes:
        if not -ndim <= axis < ndim:
            raise ValueError(f"{name} is {axes!r}: the parameter has {ndim} dimensions")
        mask |= 1 << axis % ndim
    return mask


def tensor_options(tensor, given):
    """Set what concerns a single parameter in its C structure."""
    tensor.route = choice("route", route_of(given))
    layout = given.get("layout")
    if layout is None:
        layout = given.get("conv_mode")
        layout = CONV_MODES.get(layout, layout)
    if tensor.ndim >= 3 or given.get("layout") is not None:  # conv_mode is for convolutions
        tensor.layout = choice("layout", layout or "auto")
    tensor.heads = whole("heads", given.get("heads") or 0, ctypes.c_size_t)
    tensor.out_axes = _mask("out_axes", given.get("out_axes"), tensor.ndim)
    tensor.in_axes = _mask("in_axes", given.get("in_axes"), tensor.ndim)
    splits = [whole("row_splits", size, ctypes.c_size_t) for size in given.get("row_splits") or ()]
    if splits:
        tensor.row_splits = (ctypes.c_size_t * len(splits))(*splits)
        tensor.row_split_count = len(splits)


def defaults_of(options):
    """The options that torch.optim.Muon knows, as a recipe has them."""
    plan = options.plan
    coefficients = plan.coefficients.decode() if plan.coefficients else None
    if coefficients is not None:
        table = (ctypes.c_double * 3 * 2)()
        library.muonium_coefficients(plan.coefficients, 2, table)
        if list(table[0]) == list(table[1]):  # one for all steps, as torch has it
            coefficients = tuple(table[0])
    return {"lr": options.lr, "weight_decay": options.weight_decay, "momentum": options.momentum,
            "nesterov": options.nesterov, "ns_coefficients": coefficients, "eps": plan.eps,
            "ns_steps": plan.steps}

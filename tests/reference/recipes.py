"""Options, the named recipes, validation, scale and routing.

Where a formula leaves a choice, this reference decides as follows. After the
semicolon: what named implementations do, if that differs or decided it; "(no)"
marks a difference that the recipe does not reproduce.

Orthogonalisation
  divisor in half modes   of the rounded matrix, itself not rounded; torch, keller, timm and
                          moonlight round the norm to bf16, up to 0.4 % (no)
  b A + c A A, half modes A A rounded, then the sum rounded once; torch and keller, unfused, round
                          c A, (c A) A, b A and the sum, timm only the fused sum (no)
  safety_factor and eps   norm x factor first, then clamp or add; timm the same
  aol, schatten with eps  eps acts on each row's divisor, on the Schatten-4 norm; optax holds the
                          squares of these to 1e-8 or more, and so does its recipe
  spectral                exact largest singular value, without a margin
Momentum
  half state              Nesterov's direction uses the stored, rounded M; torch and timm the same
  ema_corrected           off: m / (1 - mu^t), t from 1; optax the same. An explicit nesterov_form
                          takes that for M
Layout and scale
  matrices                (out, in), always of the matrix orthogonalised; optax reads 2-D arrays
                          as (in, out), and so does its recipe; keller takes the last two
                          axes of the gradient, so square convolution kernels get 1 (no)
  3-D without a layout    flatten; experts in motif and keller (which batches over the first axis)
  not 2-D, no layout      AdamW, reason not_2d, in torch (which refuses) and optax (Adam)
  rows, spatial           scale of the single block or position; spatial also x positions^-1/2
                          unless normalize_spatial is off; timm the same
Decay and options after O
  cautious                where O W > 0, strictly; published with >=: differs where O is exactly 0
  AdamW                   always decoupled, also under cautious and independent
  rounding                once per step, after decay and update; torch twice for half types (no)
  NorMuon                 rows of the (out, in) matrix, before the scale; beta2 0.95, eps 1e-10, no
                          bias correction; norm restored per matrix; its authors add 1e-10 to the
                          new norm (no)
Everything else
  NAdamW                  (b1 m + (1-b1) g) / (1 - b1^(t+1)); timm divides by 1 - b1^t, optax has
                          b1 m / (1 - b1^(t+1)) + (1-b1) g / (1 - b1^t), and so their recipes
  nesterov                also of NAdamW in timm and optax, as there
  eps                     added to the corrected sqrt(v); moonlight adds it before the correction
                          (no). Follows Muon's eps in timm and optax, as there
  decay                   follows weight_decay; its own, 0, in keller and optax, as there
  set_lr                  keeps the ratio adam_lr / lr; timm the same
  clipping                gradients x min(1, max_norm / total); torch has total + 1e-6 (no)
Routing
  order                   use_fallback, use_muon, name, shape; timm the same without names. Alike
                          in all recipes; torch, keller, moonlight leave the choice to the user
  shape under a layout    flatten, spatial: the flattened shape; timm the same. experts, rows, fan:
                          every matrix must pass, and leading units are allowed
"""
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import isfinite, prod, sqrt
import re

from . import layouts
from .coefficients import Generated, PRESETS, choose
from .orthogonalize import EPS_MODES, NORMALIZATIONS
from .rounding import DTYPES

# One pattern is compared with each component of a name such as h.0.ln_1.weight.
DEFAULT_PATTERNS = (
    "*embed*", "wte", "wpe", "lm_head", "head", "*norm*", "ln_*", "bias", "*_bias", "*router*",
    "*gain*",
)

CHOICES = {
    "momentum_form": ("lerp", "sum", "ema_corrected"),
    "nesterov_form": ("auto", "lerp", "sum"),
    "normalization": NORMALIZATIONS,
    "eps_mode": EPS_MODES,
    "precision": DTYPES,
    "scale": ("original", "match_rms_adamw", "rms_to_rms", "none"),
    "decay": ("decoupled", "cautious", "independent"),
    "adam": ("adamw", "nadamw", "by_nesterov"),
    "nadamw_form": ("lookahead", "timm", "optax"),
    "nonfinite": ("error", "skip", "propagate"),
    "layout_3d": ("flatten", "experts"),
    "state_dtype": DTYPES + (None,),
}


@dataclass(frozen=True)
class Options:
    # Muon
    lr: float = 0.02
    weight_decay: float = 0.01
    momentum: float = 0.95
    momentum_form: str = "lerp"
    nesterov: bool = True
    nesterov_form: str = "auto"            # that of momentum_form
    coefficients: object = Generated(safety=2e-2)
    steps: int = 5
    normalization: str = "frobenius"
    eps_mode: str = "none"
    eps: float = 1e-7
    safety_factor: float = 1.0
    precision: str = "f32"
    scale: str = "match_rms_adamw"
    scale_factor: float = 1.0
    normalize_spatial: bool = True
    maximize: bool = False
    decay: str = "decoupled"
    normuon: bool = False
    normuon_beta2: float = 0.95
    normuon_eps: float = 1e-10
    # everything else
    adam: str = "adamw"
    nadamw_form: str = "lookahead"
    adam_lr: float = None                  # None: adam_lr_scale * lr
    adam_lr_scale: float = 1.0
    adam_betas: tuple = (0.9, 0.95)
    adam_eps: float = 1e-8                 # None: eps
    adam_eps_root: float = 0.0             # under the root
    adam_weight_decay: float = None        # None: weight_decay
    # routing
    patterns: tuple = DEFAULT_PATTERNS
    only_2d: bool = False
    kernels_in_out: bool = False
    layout_3d: str = "flatten"
    min_dim: int = 4
    max_aspect: float = 128.0
    # storage and faults
    state_dtype: str = None                # None: f64 for f64 parameters, f32 for all others
    master: bool = False                   # keep half parameters in f32 too, and step those
    clip_norm: float = None                # None: no clipping; one value for the optimizer
    nonfinite: str = "error"


# What makes a run the exact one, whatever the recipe: to be combined with f64 parameters.
EXACT = dict(precision="f64", state_dtype="f64")

_ORIGINAL = PRESETS["original"][0]
_KELLER_NORM = dict(eps_mode="add", eps=1e-7, coefficients="original")

RECIPES = {
    "muonium": {},
    "motif": dict(eps_mode="add", eps=1e-7, coefficients=Generated(rows=10), precision="bf16",
                  weight_decay=0.0, layout_3d="experts"),
    "fp16": dict(momentum_form="sum", eps_mode="add", eps=1e-7,
                 coefficients=tuple(x / 1.02 for x in _ORIGINAL), precision="f16", lr=3e-4),
    "fp32": dict(momentum_form="sum", eps_mode="add", eps=1e-7, coefficients="original",
                 precision="f32", lr=3e-4),
    "timm": dict(nesterov=False, eps_mode="clamp", eps=1e-7, coefficients="quintic",
                 precision="bf16", weight_decay=0.0, adam="by_nesterov",
                 nadamw_form="timm", adam_eps=None),
    "optax": dict(momentum_form="ema_corrected", eps_mode="optax", eps=1e-8,
                  coefficients="original", scale="original", lr=None, weight_decay=0.0,
                  adam="by_nesterov", nadamw_form="optax", adam_betas=(0.9, 0.999), adam_eps=None,
                  adam_weight_decay=0.0, only_2d=True, kernels_in_out=True),
    "torch": dict(eps_mode="clamp", eps=1e-7, coefficients="original", scale="original",
                  precision="bf16", lr=1e-3, weight_decay=0.1, only_2d=True),
    "keller": dict(**_KELLER_NORM, scale="original", precision="bf16", weight_decay=0.0,
                   adam_lr=3e-4, adam_eps=1e-10, adam_weight_decay=0.0, layout_3d="experts"),
    "moonlight": dict(**_KELLER_NORM, momentum_form="sum", precision="bf16", lr=1e-3,
                      weight_decay=0.1),
}


def recipe(name="muonium", **overrides):
    """The options of a recipe, with any field overridden, validated."""
    if name not in RECIPES:
        raise ValueError(f"recipe is {name!r}: use one of {', '.join(RECIPES)}")
    return override(Options(**RECIPES[name]), **overrides)


def override(options, **fields):
    unknown = set(fields) - set(Options.__dataclass_fields__)
    if unknown:
        raise ValueError(f"unknown option {sorted(unknown)[0]!r}")
    options = replace(options, **fields)
    validate(options)
    return options


def _check(field, value, low, high=None):
    """`low` <= value, and value < `high` where given."""
    if value is None or not (isfinite(value) and low <= value and (high is None or value < high)):
        bound = f"in [{low}, {high})" if high is not None else f"finite and at least {low}"
        raise ValueError(f"{field} is {value}: it must be {bound}")


def validate(o):
    for field, values in CHOICES.items():
        if getattr(o, field) not in values:
            raise ValueError(f"{field} is {getattr(o, field)!r}: use one of {values}")
    for field in ("lr", "weight_decay", "eps", "normuon_eps", "scale_factor", "adam_lr_scale",
                  "adam_eps_root"):
        _check(field, getattr(o, field), 0)
    for field in ("adam_lr", "adam_eps", "adam_weight_decay", "clip_norm"):
        if getattr(o, field) is not None:
            _check(field, getattr(o, field), 0)
    for field in ("momentum", "normuon_beta2"):
        _check(field, getattr(o, field), 0, 1)
    for index in (0, 1):
        _check(f"adam_betas[{index}]", o.adam_betas[index], 0, 1)
    if not (isfinite(o.safety_factor) and o.safety_factor > 0):
        raise ValueError(f"safety_factor is {o.safety_factor}: it must be finite and above 0")
    if o.coefficients == "aol" and o.normalization != "aol":
        raise ValueError("coefficients is 'aol': it goes with normalization 'aol' only")
    choose(o.coefficients, o.steps)


def scale(name, out, columns):
    """The factor on the orthogonalised (out, in) matrix."""
    if name == "original":
        return sqrt(max(1.0, out / columns))
    if name == "match_rms_adamw":
        return 0.2 * sqrt(max(out, columns))
    if name == "rms_to_rms":
        return sqrt(out / columns)
    if name == "none":
        return 1.0
    raise ValueError(f"scale is {name!r}: use one of {CHOICES['scale']}")


def default_layout(shape, options):
    if len(shape) == 2 and options.kernels_in_out:
        return layouts.fan(out_axes=(1,), in_axes=(0,))
    if len(shape) == 3 and options.layout_3d == "experts":
        return layouts.experts()
    return layouts.flatten(len(shape))


def shape_reason(shape, layout, options):
    """'ok', or why the shape is not for Muon."""
    if len(shape) < 2 or sum(size > 1 for size in shape) < 2:
        return "insufficient_dims"
    if layout.kind in ("flatten", "spatial"):
        if shape[0] == 1 or shape[1] == 1:
            return "leading_unit_dims"
        matrices = [(shape[0], prod(shape[1:]))]
    else:
        matrices = layouts.matrix_shapes(shape, layout)
    for small, large in map(sorted, matrices):
        if small < options.min_dim:
            return f"min_dim_too_small:{small}"
        if large / small > options.max_aspect:
            return f"extreme_aspect_ratio:{large / small:.1f}"
    return "ok"


def matching_pattern(name, patterns):
    components = [part for part in re.split(r"[./]", name.lower()) if part]
    return next((pattern for pattern in patterns
                 if any(fnmatchcase(part, pattern) for part in components)), None)


def route(name, shape, options, layout=None, use_muon=None, use_fallback=False):
    """(True for Muon, reason). The flags come first, then the name, then the shape."""
    shape = tuple(shape)
    if use_fallback:
        return False, "use_fallback_flag"
    if use_muon is not None:
        if use_muon and len(shape) < 2:
            raise ValueError(f"{name}: use_muon is set, but the shape is {shape}")
        return use_muon, "use_muon_flag"
    pattern = matching_pattern(name or "", options.patterns)
    if pattern:
        return False, f"name_pattern:{pattern}"
    if len(shape) >= 2 and layout is None:
        if options.only_2d and len(shape) != 2:
            return False, "not_2d"
        layout = default_layout(shape, options)
    reason = shape_reason(shape, layout, options)
    return reason == "ok", reason

"""Options, the named recipes, validation, scale and routing.

Where a formula leaves a choice, this reference decides as follows. After the
semicolon: what named implementations do, if that differs or decided it; "(no)"
marks a difference that the recipe does not reproduce.

Orthogonalisation
  divisor in half modes   of the rounded matrix, and rounded, but for the rounding "stored"
  b A + c A A, half modes torch and timm (addmm) round only the sum; keller and moonlight c A,
                          (c A) A and b A too; motif A A and b A; fp16 A A, c (A A) and b A, but
                          not the divisor. moonlight is compiled, which leaves out some (no)
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
from .orthogonalize import EPS_MODES, NORMALIZATIONS, ROUNDINGS
from .rounding import DTYPES

# Patterns and what they are compared with: see muonium_default_pattern.
DEFAULT_PATTERNS = (
    ("*embed*", "word"), ("*emb", "word"), ("wte", "part"), ("wpe", "part"), ("shared", "module"),
    ("lm_head", "part"), ("head", "part"), ("*_head", "outside"), ("head_dist", "outside"),
    ("classifier", "outside"), ("output_projection", "outside"), ("qa_outputs", "outside"), ("output", "top"),
    ("score", "top"), ("proj_out", "top"), ("fc", "top"), ("decoder", "module"),
    ("logits", "word"), ("vocab", "word"), ("*norm", "word"), ("*norms", "word"),
    ("*normalization", "word"), ("ln_*", "part"), ("ln", "word"), ("bias", "word"),
    ("biases", "word"), ("router", "word"), ("gate", "router"), ("smear", "word"),
    ("gain", "word"), ("gains", "word"), ("a_log", "part"),
)

# Routing rules: patterns, whether only 2-D tensors get Muon, whether shapes have limits.
ROUTING = {
    "muonium": (DEFAULT_PATTERNS, False, True),
    "timm": ((), False, True),
    "torch": ((), True, False),
    "wrapper": (tuple((f"*{word}*", "part") for word in ("router", "embed", "norm", "smear")),
                True, False),
    "keller": ((), False, False),
    "moonlight": ((("*embed_tokens*", "part"), ("*lm_head*", "part")), False, False),
    "motif": (tuple((part, "part") for part in ("embed_tokens", "lm_head", "tok_embeddings",
                                                "output")), False, False),
}

CHOICES = {
    "momentum_form": ("lerp", "sum", "ema_corrected"),
    "nesterov_form": ("auto", "lerp", "sum"),
    "normalization": NORMALIZATIONS,
    "eps_mode": EPS_MODES,
    "precision": DTYPES,
    "rounding": tuple(ROUNDINGS),
    "scale": ("original", "match_rms_adamw", "rms_to_rms", "none", "rsqrt_in"),
    "normuon_axis": ("rows", "columns", "shape"),
    "normuon_form": ("add", "clamp"),
    "selection": ("shorter", "rows"),
    "decay": ("decoupled", "cautious", "independent", "cautious_scaled"),
    "adam": ("adamw", "nadamw", "by_nesterov"),
    "nadamw_form": ("lookahead", "timm", "optax"),
    "nonfinite": ("error", "skip", "propagate"),
    "layout_3d": ("auto", "flatten", "experts"),
    "routing": tuple(ROUTING),
    "state_dtype": DTYPES + ("int8", None),
    "adam_state_dtype": ("f64", "f32", "int8", None),
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
    rounding: str = "stored"
    scale: str = "match_rms_adamw"
    scale_factor: float = 1.0
    normalize_spatial: bool = True
    maximize: bool = False
    decay: str = "decoupled"
    adaptive: bool = False
    normuon: bool = False
    normuon_beta2: float = 0.95
    normuon_eps: float = 1e-10
    normuon_axis: str = "rows"
    normuon_form: str = "add"
    equilibrate: bool = False
    equilibrate_eps: float = 0.0
    renormalize: bool = False
    renormalize_eps: float = 0.0
    adamuon: bool = False
    adamuon_beta2: float = 0.95
    adamuon_eps: float = 1e-8              # None: eps
    hyperball: bool = False
    fraction: float = 1.0
    ef_decay: float = 0.95
    selection: str = "shorter"
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
    routing: str = "muonium"
    patterns: tuple = None                 # None: those of the rule; else in their place
    only_2d: bool = False
    kernels_in_out: bool = False
    layout_3d: str = "auto"
    min_dim: int = 4
    max_aspect: float = 128.0
    # storage and faults
    state_dtype: str = None                # None: f64 for f64 parameters, f32 for all others
    adam_state_dtype: str = None           # of exp_avg; None: as state_dtype
    master: bool = False                   # keep half parameters in f32 too, and step those
    clip_norm: float = None                # None: no clipping; one value for the optimizer
    nonfinite: str = "error"


# What makes a run the exact one, whatever the recipe: to be combined with f64 parameters.
EXACT = dict(precision="f64", state_dtype="f64", adam_state_dtype="f64")

_ORIGINAL = PRESETS["original"][0]
_DION2 = dict(lr=0.01, momentum_form="sum", nesterov=False, eps_mode="add", eps=1e-8,
              safety_factor=1.02, coefficients="polar_express_5", scale="rms_to_rms",
              fraction=0.25, layout_3d="experts")
_KELLER_NORM = dict(eps_mode="add", eps=1e-7, coefficients="original")

RECIPES = {
    "muonium": {},
    "motif": dict(eps_mode="add", eps=1e-7, coefficients=Generated(rows=10), precision="bf16",
                  rounding="motif", weight_decay=0.0, layout_3d="experts", routing="motif"),
    "fp16": dict(momentum_form="sum", eps_mode="add", eps=1e-7,
                 coefficients=tuple(x / 1.02 for x in _ORIGINAL), precision="f16", rounding="fp16",
                 lr=3e-4, layout_3d="flatten", routing="wrapper"),
    "fp32": dict(momentum_form="sum", eps_mode="add", eps=1e-7, coefficients="original",
                 precision="f32", lr=3e-4, layout_3d="flatten", routing="wrapper"),
    "timm": dict(nesterov=False, eps_mode="clamp", eps=1e-7, coefficients="quintic",
                 precision="bf16", rounding="torch", weight_decay=0.0, adam="by_nesterov",
                 nadamw_form="timm", adam_eps=None, layout_3d="flatten", routing="timm"),
    "optax": dict(momentum_form="ema_corrected", eps_mode="optax", eps=1e-8,
                  coefficients="original", scale="original", lr=None, weight_decay=0.0,
                  adam="by_nesterov", nadamw_form="optax", adam_betas=(0.9, 0.999), adam_eps=None,
                  adam_weight_decay=0.0, kernels_in_out=True, layout_3d="flatten",
                  routing="torch"),
    "torch": dict(eps_mode="clamp", eps=1e-7, coefficients="original", scale="original",
                  precision="bf16", rounding="torch", lr=1e-3, weight_decay=0.1,
                  layout_3d="flatten", routing="torch"),
    "keller": dict(**_KELLER_NORM, scale="original", precision="bf16", rounding="keller",
                   weight_decay=0.0, adam_lr=3e-4, adam_eps=1e-10, adam_weight_decay=0.0,
                   layout_3d="experts", routing="keller"),
    "moonlight": dict(**_KELLER_NORM, momentum_form="sum", precision="bf16", rounding="keller",
                      lr=1e-3, weight_decay=0.1, layout_3d="flatten", routing="moonlight"),
    "nanochat": dict(eps_mode="add", eps=1e-6, safety_factor=1.01, coefficients="polar_express_5",
                     scale="original", decay="cautious_scaled", weight_decay=0.0, equilibrate=True,
                     equilibrate_eps=1e-6, renormalize=True, renormalize_eps=1e-6, normuon=True,
                     normuon_axis="shape", normuon_form="clamp", normuon_beta2=0.9,
                     adam_betas=(0.8, 0.95), adam_eps=1e-10, layout_3d="experts"),
    "dion2": _DION2,
    "nordion2": dict(_DION2, selection="rows", normuon=True, normuon_eps=1e-8),
    "adamuon": dict(nesterov=False, eps_mode="clamp", eps=1e-7, coefficients="quintic",
                    precision="bf16", rounding="torch", weight_decay=0.0, adam="by_nesterov",
                    nadamw_form="timm", adam_eps=None, layout_3d="flatten", routing="timm",
                    adamuon=True, adamuon_eps=None),
    "muonh": dict(scale="none", weight_decay=0.0, hyperball=True),
}

# Recipes whose steps do more than orthogonalise and apply.
FAMILY = ("nanochat", "dion2", "nordion2", "adamuon", "muonh")


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
                  "adam_eps_root", "equilibrate_eps", "renormalize_eps"):
        _check(field, getattr(o, field), 0)
    for field in ("adam_lr", "adam_eps", "adamuon_eps", "adam_weight_decay", "clip_norm"):
        if getattr(o, field) is not None:
            _check(field, getattr(o, field), 0)
    for field in ("momentum", "normuon_beta2", "adamuon_beta2", "ef_decay"):
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
    if name == "rsqrt_in":
        return 1 / sqrt(columns)
    raise ValueError(f"scale is {name!r}: use one of {CHOICES['scale']}")


def is_experts(name):
    """Whether a 3-D tensor of this name holds the weights of experts."""
    return (bool({"expert", "experts", "moe"} & set(words(name)))
            or module_of(name) in ("w1", "w2", "w3", "w13", "gate_proj", "up_proj", "down_proj",
                                   "gate_up_proj"))


def default_layout(shape, options, name=None):
    if len(shape) == 2 and options.kernels_in_out:
        return layouts.fan(out_axes=(1,), in_axes=(0,))
    if len(shape) == 3 and (options.layout_3d == "experts" or options.layout_3d == "auto"
                            and not options.only_2d and not ROUTING[options.routing][1]
                            and is_experts(name or "")):
        return layouts.experts()
    return layouts.flatten(len(shape))


def shape_reason(shape, layout, options):
    """'ok', or why the shape is not for Muon."""
    if not ROUTING[options.routing][2]:
        return "ok" if len(shape) >= 2 else "insufficient_dims"
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


def parts_of(name):
    return [part for part in re.split(r"[./]", name.lower()) if part]


def words(name):
    return [word for word in re.split(r"[./_0-9-]", name.lower()) if word]


def module_of(name):
    """The last part, or the one before if the last only says which tensor of a module it is."""
    parts = parts_of(name)
    leaf = len(parts) > 1 and parts[-1] in ("weight", "weights", "kernel", "w", "bias", "b")
    return parts[-2] if leaf else parts[-1] if parts else ""


def candidates(name, place, shape):
    """What a pattern of this place is compared with."""
    parts = parts_of(name)
    numbers = [i for i, part in enumerate(parts) if re.fullmatch("[0-9]+", part)]
    if place == "word":
        return words(name)
    if place == "outside":
        return parts[:numbers[0]] if numbers else parts
    if place == "module" or place == "top":
        module = module_of(name)
        inside = numbers and numbers[0] < len(parts) - 1 - parts[::-1].index(module)
        return [module] if module and not (inside and place == "top") else []
    if place == "router" and (len(shape) != 2 or shape[0] >= shape[1]
                              or {"expert", "experts"} & set(words(name))):
        return []
    return parts


def matching_pattern(name, patterns, shape=()):
    """The first of (pattern, place) that the name matches."""
    return next((pattern for pattern, place in patterns
                 if any(fnmatchcase(part, pattern.lower())
                        for part in candidates(name, place, shape))), None)


def route(name, shape, options, layout=None, use_muon=None, use_fallback=False):
    """(True for Muon, reason). The flags come first, then the name, then the shape."""
    shape = tuple(shape)
    if use_fallback:
        return False, "use_fallback_flag"
    if use_muon is not None:
        if use_muon and len(shape) < 2:
            raise ValueError(f"{name}: use_muon is set, but the shape is {shape}")
        return use_muon, "use_muon_flag"
    patterns, only_2d, _ = ROUTING[options.routing]
    if options.patterns is not None:
        patterns = [(pattern, "part") for pattern in options.patterns]
    pattern = matching_pattern(name or "", patterns, shape)
    if pattern:
        return False, f"name_pattern:{pattern}"
    if len(shape) >= 2 and layout is None:
        if (options.only_2d or only_2d) and len(shape) != 2:
            return False, "not_2d"
        layout = default_layout(shape, options, name)
    reason = shape_reason(shape, layout, options)
    return reason == "ok", reason

"""The keyword arguments as type checkers see them. At run time _options.py decides; a test
compares the two."""

import sys
from typing import TYPE_CHECKING, Optional, Sequence, Tuple, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import Literal, Unpack
else:
    from typing import Literal

    if sys.version_info >= (3, 11):
        from typing import Unpack
    else:
        Unpack = Union  # of one type: that type itself

Triple = Tuple[float, float, float]
Coefficients = Union[None, str, Triple, Sequence[Triple]]

ConvMode = Literal["flatten", "batched"]
AdjustLr = Literal["original", "match_rms_adamw", "rms_to_rms", "none", "rsqrt_in",
                   "spectral_unclamped"]
Axes = Union[int, Sequence[int]]

# ---- made by tools/make-option-lists ----

AdamKind = Literal["adamw", "nadamw", "by_nesterov"]
Decay = Literal["decoupled", "cautious", "independent", "cautious_scaled"]
Dtype = Literal["f32", "f64", "bf16", "f16", "fixed23", "fixed15", "auto", "int8"]
EpsMode = Literal["none", "clamp", "add", "optax"]
Form = Literal["auto", "standard", "gram", "direct", "quintic"]
Layout = Literal["auto", "flatten", "spatial", "experts", "fan"]
MomentumForm = Literal["lerp", "sum", "ema_corrected"]
NadamwForm = Literal["lookahead", "timm", "optax"]
NesterovForm = Literal["auto", "lerp", "sum"]
Nonfinite = Literal["error", "skip", "propagate"]
Normalization = Literal["frobenius", "schatten", "aol", "spectral", "none"]
NormuonAxis = Literal["rows", "columns", "shape"]
NormuonForm = Literal["add", "clamp"]
Rounding = Literal["stored", "torch", "keller", "motif", "fp16"]
Route = Literal["auto", "muon", "adam"]
Routing = Literal["muonium", "timm", "torch", "wrapper", "keller", "moonlight", "motif"]
Scale = Literal["original", "match_rms_adamw", "rms_to_rms", "none", "rsqrt_in"]
Selection = Literal["shorter", "rows"]


class LibraryOptions(TypedDict, total=False):
    """The options of the library by their own names; None: the recipe's."""

    lr: Optional[float]
    weight_decay: Optional[float]
    momentum: Optional[float]
    adam_lr: Optional[float]
    adam_lr_scale: Optional[float]
    adam_weight_decay: Optional[float]
    state_dtype: Optional[Literal["f32", "bf16", "int8"]]
    adam_state_dtype: Optional[Literal["f32", "int8"]]
    state_stochastic: Optional[bool]
    master: Optional[bool]
    stochastic_rounding: Optional[bool]
    seed: Optional[int]
    nonfinite: Optional[Nonfinite]
    form: Optional[Form]
    direct_set: Optional[str]
    momentum_form: Optional[MomentumForm]
    nesterov: Optional[bool]
    nesterov_form: Optional[NesterovForm]
    scale: Optional[Scale]
    scale_factor: Optional[float]
    decay: Optional[Decay]
    spatial_normalize: Optional[bool]
    maximize: Optional[bool]
    adaptive: Optional[bool]
    normuon: Optional[bool]
    normuon_beta2: Optional[float]
    normuon_eps: Optional[float]
    normuon_axis: Optional[NormuonAxis]
    normuon_form: Optional[NormuonForm]
    equilibrate: Optional[bool]
    equilibrate_eps: Optional[float]
    renormalize: Optional[bool]
    renormalize_eps: Optional[float]
    adamuon: Optional[bool]
    adamuon_beta2: Optional[float]
    adamuon_eps: Optional[float]
    hyperball: Optional[bool]
    fraction: Optional[float]
    ef_decay: Optional[float]
    selection: Optional[Selection]
    steps: Optional[int]
    coefficients: Coefficients
    lower: Optional[float]
    safety: Optional[float]
    cushion: Optional[float]
    generated_rows: Optional[int]
    normalization: Optional[Normalization]
    eps_mode: Optional[EpsMode]
    eps: Optional[float]
    safety_factor: Optional[float]
    precision: Optional[Literal["f32", "f64", "bf16", "f16", "fixed23", "fixed15", "auto"]]
    rounding: Optional[Rounding]
    adam: Optional[AdamKind]
    nadamw_form: Optional[NadamwForm]
    adam_beta1: Optional[float]
    adam_beta2: Optional[float]
    adam_eps: Optional[float]
    adam_eps_root: Optional[float]
    routing: Optional[Routing]
    patterns: Optional[Sequence[str]]
    only_patterns: Optional[bool]
    split_fused: Optional[bool]
    min_dim: Optional[int]
    max_aspect: Optional[float]
    only_2d: Optional[bool]
    kernels_in_out: Optional[bool]
    layout_3d: Optional[Literal["auto", "flatten", "experts"]]
    scratch_bytes: Optional[int]

# ---- end ----


class ParameterOptions(TypedDict, total=False):
    """Options of a single parameter."""

    layout: Optional[Layout]
    conv_mode: Optional[ConvMode]
    heads: Optional[int]
    row_splits: Optional[Sequence[int]]
    out_axes: Optional[Axes]
    in_axes: Optional[Axes]
    route: Optional[Route]
    use_muon: Optional[bool]
    use_fallback: Optional[bool]


class Options(LibraryOptions, ParameterOptions, total=False):
    """Options of an optimizer: those of the library, and what others call them. None: the
    recipe's."""

    beta: Optional[float]
    adjust_lr_fn: Optional[AdjustLr]
    normalize_spatial: Optional[bool]
    ns_steps: Optional[int]
    ns_iters: Optional[int]
    ns_coefficients: Coefficients
    normalize: Optional[Normalization]
    preconditioning: Optional[Normalization]
    adamw_lr: Optional[float]
    adam_learning_rate: Optional[float]
    fallback_lr_scale: Optional[float]
    adam_b1: Optional[float]
    adam_b2: Optional[float]
    betas: Optional[Tuple[float, float]]
    use_addmm: bool
    verbose: bool
    capturable: bool
    foreach: Optional[bool]
    differentiable: Literal[False]
    fused: Optional[bool]
    amsgrad: Literal[False]
    grouped_ns: bool
    algo: Literal["muon", "adamuon"]
    scale_eps: Literal[False]


class IterationOptions(TypedDict, total=False):
    """Options of orthogonalize, but for those on which the type of its result depends."""

    steps: int
    coefficients: Coefficients
    normalize: Optional[Normalization]
    eps: Optional[float]
    eps_mode: Optional[EpsMode]
    safety_factor: float
    precision: Dtype
    rounding: Rounding
    form: Form
    direct_set: Optional[str]
    lower: Optional[float]
    safety: Optional[float]
    cushion: Optional[float]
    nonfinite: Nonfinite
    exact_certificate: bool


__all__ = ["Coefficients", "Dtype", "EpsMode", "Form", "IterationOptions", "Layout",
           "Literal", "Nonfinite", "Normalization", "Options", "ParameterOptions", "Triple",
           "Unpack"]

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

Dtype = Literal["f32", "f64", "bf16", "f16"]
Normalization = Literal["frobenius", "schatten", "aol", "spectral", "none"]
EpsMode = Literal["none", "clamp", "add", "optax"]
Form = Literal["auto", "standard", "gram", "direct", "quintic"]
Rounding = Literal["stored", "torch", "keller", "motif", "fp16"]
Nonfinite = Literal["error", "skip", "propagate"]
Layout = Literal["auto", "flatten", "spatial", "experts", "fan"]
ConvMode = Literal["flatten", "batched"]
Route = Literal["auto", "muon", "adam"]
Routing = Literal["muonium", "timm", "torch", "wrapper", "keller", "moonlight", "motif"]
Scale = Literal["original", "match_rms_adamw", "rms_to_rms", "none"]
AdjustLr = Literal["original", "match_rms_adamw", "rms_to_rms", "none", "spectral_unclamped"]
Axes = Union[int, Sequence[int]]


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


class Options(ParameterOptions, total=False):
    """Options of an optimizer; None: the recipe's."""

    lr: Optional[float]
    weight_decay: Optional[float]
    momentum: Optional[float]
    beta: Optional[float]
    momentum_form: Optional[Literal["lerp", "sum", "ema_corrected"]]
    nesterov: Optional[bool]
    nesterov_form: Optional[Literal["auto", "lerp", "sum"]]
    scale: Optional[Scale]
    adjust_lr_fn: Optional[AdjustLr]
    scale_factor: Optional[float]
    decay: Optional[Literal["decoupled", "cautious", "independent"]]
    spatial_normalize: Optional[bool]
    normalize_spatial: Optional[bool]
    adaptive: Optional[bool]
    normuon: Optional[bool]
    normuon_beta2: Optional[float]
    normuon_eps: Optional[float]
    steps: Optional[int]
    ns_steps: Optional[int]
    ns_iters: Optional[int]
    coefficients: Coefficients
    ns_coefficients: Coefficients
    lower: Optional[float]
    safety: Optional[float]
    cushion: Optional[float]
    generated_rows: Optional[int]
    normalization: Optional[Normalization]
    normalize: Optional[Normalization]
    preconditioning: Optional[Normalization]
    eps_mode: Optional[EpsMode]
    eps: Optional[float]
    safety_factor: Optional[float]
    precision: Optional[Dtype]
    rounding: Optional[Rounding]
    form: Optional[Form]
    direct_set: Optional[str]
    nonfinite: Optional[Nonfinite]
    adam: Optional[Literal["adamw", "nadamw", "by_nesterov"]]
    nadamw_form: Optional[Literal["lookahead", "timm", "optax"]]
    adam_lr: Optional[float]
    adamw_lr: Optional[float]
    adam_learning_rate: Optional[float]
    adam_lr_scale: Optional[float]
    fallback_lr_scale: Optional[float]
    adam_beta1: Optional[float]
    adam_beta2: Optional[float]
    adam_b1: Optional[float]
    adam_b2: Optional[float]
    betas: Optional[Tuple[float, float]]
    adam_eps: Optional[float]
    adam_eps_root: Optional[float]
    adam_weight_decay: Optional[float]
    patterns: Optional[Sequence[str]]
    routing: Optional[Routing]
    only_patterns: Optional[bool]
    split_fused: Optional[bool]
    min_dim: Optional[int]
    max_aspect: Optional[float]
    only_2d: Optional[bool]
    kernels_in_out: Optional[bool]
    layout_3d: Optional[Layout]
    state_dtype: Optional[Dtype]
    master: Optional[bool]
    stochastic_rounding: Optional[bool]
    seed: Optional[int]
    scratch_bytes: Optional[int]
    use_addmm: bool
    verbose: bool
    capturable: bool
    foreach: Optional[bool]
    differentiable: Literal[False]
    maximize: Optional[bool]
    fused: Optional[bool]
    amsgrad: Literal[False]
    grouped_ns: bool
    algo: Literal["muon"]
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

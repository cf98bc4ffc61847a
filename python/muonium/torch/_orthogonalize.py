"""torch.ops.muonium.orthogonalize: the orthogonalisation as an operator of PyTorch.

torch.compile and torch.export keep the operator as one node of the graph, torch.vmap runs it once
over the whole batch, and fake tensors know its result. PyTorch before 2.4 has no operators in
Python; there muonium.torch.orthogonalize is a plain function.
"""

import ctypes
import math
from typing import Any, Optional, Tuple

import torch

from .._arrays import BF16, F16, F32, F64
from .._library import Certificate, Shape, View, library, plan_options
from .._options import set_option

_DTYPES = {torch.float32: F32, torch.float64: F64, torch.bfloat16: BF16, torch.float16: F16}


def _refuse(x: torch.Tensor) -> None:
    if x.dtype not in _DTYPES:
        raise TypeError(f"x is {x.dtype}: use float32, float64, bfloat16 or float16")
    if x.ndim < 2:
        raise ValueError(f"x has shape {tuple(x.shape)}: a matrix has two dimensions, a batch more")


def _view(x: torch.Tensor) -> View:
    return View(x.data_ptr(), _DTYPES[x.dtype], *x.stride())


def _computed(x: torch.Tensor, steps: int = 5, coefficients: Optional[str] = None,
              precision: str = "auto", form: str = "auto", normalize: Optional[str] = None,
              eps: Optional[float] = None, eps_mode: Optional[str] = None,
              nonfinite: str = "error") -> torch.Tensor:
    _refuse(x)
    if eps is not None and eps_mode is None:
        raise ValueError(f'eps is {eps} without an eps_mode: say whether to "clamp" or to "add"')
    options = plan_options()
    for name, value in (("steps", steps), ("coefficients", coefficients), ("precision", precision),
                        ("form", form), ("normalization", normalize), ("eps", eps),
                        ("eps_mode", eps_mode), ("nonfinite", nonfinite)):
        if value is not None:
            set_option(options, name, value)
    matrices = x.detach().resolve_neg().to("cpu").reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
    result = torch.zeros(matrices.shape, dtype=x.dtype)
    if result.numel():
        certificates = (Certificate * len(matrices))()
        library.muonium_orthogonalize_sized(Shape(*matrices.shape), options, _view(matrices),
                                            _view(result), certificates,
                                            ctypes.sizeof(Certificate))
    return result.reshape(x.shape).to(x.device)


def _define() -> Any:
    """Register the operator."""
    operator = torch.library.custom_op("muonium::orthogonalize", _computed, mutates_args=())

    def fake(x: torch.Tensor, *options: Any, **named: Any) -> torch.Tensor:
        _refuse(x)
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)

    def batched(info: Any, in_dims: Tuple[Any, ...], x: torch.Tensor, *options: Any,
                **named: Any) -> Tuple[torch.Tensor, int]:
        return operator(x.movedim(in_dims[0], 0), *options, **named), 0

    operator.register_fake(fake)
    if hasattr(operator, "register_vmap"):  # from 2.5 on
        operator.register_vmap(batched)
    return operator


_operator = _define() if hasattr(torch.library, "custom_op") else _computed


def orthogonalize(x: torch.Tensor, steps: int = 5, coefficients: Optional[str] = None,
                  precision: str = "auto", form: str = "auto", normalize: Optional[str] = None,
                  eps: Optional[float] = None, eps_mode: Optional[str] = None,
                  nonfinite: str = "error") -> torch.Tensor:
    """x, or each matrix of a batch, orthogonalised as Muon does it: a tensor of the same shape,
    type and device.

        o = muonium.torch.orthogonalize(g)                  # or torch.ops.muonium.orthogonalize(g)
        o = muonium.torch.orthogonalize(g, steps=8)         # the polar factor, to 1.4e-6
        step = torch.compile(lambda g: 0.2 * torch.ops.muonium.orthogonalize(g), fullgraph=True)

    The options are those of muonium.orthogonalize; `coefficients` is the name of a preset. The last
    two dimensions are the matrices, with any strides. A tensor of another device is copied to the
    host and back. The operator has no derivative.
    """
    return _operator(x, steps, coefficients, precision, form, normalize, eps, eps_mode, nonfinite)


def newton_schulz(x: torch.Tensor, steps: int = 5, epsilon: Any = None,
                  **options: Any) -> torch.Tensor:
    """orthogonalize with the arguments that other implementations pass to their iteration.

        dion.Muon(params, newton_schulz_func=muonium.torch.newton_schulz)     # calls f(x, epsilon=)
        original_muon.zeropower_via_newtonschulz5 = muonium.torch.newton_schulz   # f(x, steps=)

    `epsilon` is not needed: the norm is computed in double precision, and a matrix of zeros gives
    zeros.
    """
    return orthogonalize(x, steps, **options)

"""Optimizer: Muon and AdamW over named arrays of any framework."""

from typing import Any, Dict, List, Mapping, Optional

from ._arrays import BF16, F32, F16, Array, array_of, dense_strides, refuse_immutable
from ._handle import Handle, Report
from ._library import DTYPES
from ._options import make_options, number, refuse_unknown


def _option(name):
    """An option that may change between steps, as a property."""
    def get(self) -> float:
        return self._values[name]

    def put(self, value: float) -> None:
        self._handle.set(name, number(name, value))
        self._values[name] = float(value)
        if name == "weight_decay" and self._spared is not None:
            self._handle.set(name, 0.0, self._spared)

    return property(get, put, doc=f"{name}, in force from the next step on")


class Optimizer:
    """Muon for the weight matrices, AdamW for everything else, over a dict of arrays.

        weights = {"mlp.w": numpy.zeros((3072, 768), "f4"), "mlp.b": numpy.zeros(3072, "f4")}
        optimizer = muonium.Optimizer(weights, lr=0.02)
        optimizer.step({"mlp.w": ..., "mlp.b": ...})      # updates the arrays in place

    params   maps names to arrays in host memory: NumPy's, or any that speak DLPack, of
             type float32, float16 or bfloat16, with any strides. They are kept and written
             in place; read-only arrays are refused.
    recipe   one of recipes(): whose defaults to take
    each     options of single parameters by name, as {"attn.qkv": {"row_splits": [768] * 3}}:
             layout, heads, row_splits, out_axes, in_axes, use_muon, use_fallback
    weight_decay_mask
             booleans by name, or a function from params to them: False spares a Muon parameter
             from weight decay, as in optax
    options  over the recipe's, by the names of muonium.h

    report() says who gets Muon, and why. Not to be used by two threads at a time.
    """

    def __init__(self, params: Mapping[str, Any], recipe: Optional[str] = None,
                 each: Optional[Mapping[str, Mapping[str, Any]]] = None,
                 weight_decay_mask: Any = None, **options: Any):
        each = dict(each or {})
        refuse_unknown(options)
        for name, given in each.items():
            if name not in params:
                raise ValueError(f"each names {name!r}, which is no parameter")
            refuse_unknown(given)
        self._given: Dict[str, Any] = {}
        self._arrays: Dict[str, Array] = {}
        made = make_options(recipe, options)
        self._values = {name: getattr(made, name) for name in ("lr", "weight_decay", "momentum")}
        self._handle = Handle(made)
        mask = weight_decay_mask(params) if callable(weight_decay_mask) else weight_decay_mask or {}
        self._spared = None  # the group without weight decay
        if any(not on for on in mask.values()):
            if made.adam_weight_decay < 0:
                made.adam_weight_decay = made.weight_decay  # the mask is of Muon's
            made.weight_decay = 0.0
            self._spared = self._handle.add_group(made)
        for name, x in params.items():
            if not isinstance(name, str):
                raise TypeError(f"parameter names are strings, not {name!r}")
            refuse_immutable(x, name)
            parameter = array_of(x, name, writable=True)
            if parameter.dtype not in (F32, BF16, F16):
                raise TypeError(f"{name} has elements of type {DTYPES[parameter.dtype]}: "
                                "parameters are f32, bf16 or f16")
            self._handle.add(name, parameter, {**options, **each.get(name, {})},
                             None if mask.get(name, True) else self._spared)
            self._given[name], self._arrays[name] = x, parameter

    def step(self, grads: Mapping[str, Any]) -> None:
        """Update the parameters from gradients by name; those without one, or with None,
        are left alone. A NaN or infinity raises NonFiniteError and changes nothing, unless
        the options say otherwise."""
        unknown = [name for name in grads if name not in self._arrays]
        if unknown:
            raise ValueError(f"a gradient is named {unknown[0]!r}, which is no parameter")
        self._look_again()
        addresses, kept = [], []
        for name, parameter in self._arrays.items():
            given = grads.get(name)
            if given is None:
                addresses.append(0)
                continue
            grad = self._fitting(name, given, parameter)
            kept.append(grad)
            addresses.append(grad.address)
        self._handle.step([parameter.address for parameter in self._arrays.values()], addresses)

    def _look_again(self):
        """Parameters may have been moved, resized or freed since they were last looked at."""
        arrays = {name: array_of(x, name, writable=True) for name, x in self._given.items()}
        for name, now in arrays.items():
            then = self._arrays[name]
            if (now.dtype, now.shape, now.strides) != (then.dtype, then.shape, then.strides):
                raise ValueError(f"{name} was {then.shape} of {DTYPES[then.dtype]} with strides "
                                 f"{then.strides} when the optimizer was made, and is {now.shape} "
                                 f"of {DTYPES[now.dtype]} with {now.strides} now: make a new "
                                 "optimizer")
        self._arrays = arrays

    @staticmethod
    def _fitting(name, given, parameter):
        """A gradient as the library expects it: dense and of the parameter's type."""
        what = f"the gradient of {name}"
        flags = getattr(given, "flags", None)
        if hasattr(given, "__array_interface__") and not (getattr(flags, "aligned", True)
                                                          and getattr(flags, "c_contiguous", True)):
            import numpy

            given = numpy.array(given, order="C")
        grad = array_of(given, what)
        if grad.shape != parameter.shape:
            raise ValueError(f"{what} has shape {grad.shape}, the parameter {parameter.shape}")
        if grad.dtype != parameter.dtype:
            raise TypeError(f"{what} is {DTYPES[grad.dtype]}, the parameter "
                            f"{DTYPES[parameter.dtype]}: they must be of one type")
        dense = dense_strides(grad.shape)
        if 0 not in grad.shape and any(
                a != b for a, b, n in zip(grad.strides, dense, grad.shape) if n != 1):
            raise ValueError(f"{what} has strides {grad.strides}: make it contiguous")
        return grad

    def report(self) -> List[Report]:
        """What every parameter gets, and why; before or after any step."""
        return self._handle.reports()

    def counters(self) -> Dict[str, Any]:
        """What has been done: steps, matrices, parameters skipped, bytes, flops per step."""
        return self._handle.counters()

    def save(self, path: Any) -> None:
        """Write the state, not the parameters, to a safetensors file: whole or not at all."""
        self._handle.save(path)

    def load(self, path: Any) -> None:
        """Go on from a file of save(), bit for bit."""
        self._handle.load(path)

    lr = _option("lr")
    weight_decay = _option("weight_decay")
    momentum = _option("momentum")

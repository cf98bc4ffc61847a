"""Optimizer: Muon and AdamW over named arrays of any framework."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from ._arrays import BF16, F32, F16, Array, array_of, dense_strides, refuse_immutable
from ._handle import Handle, Report
from ._library import DTYPES, numpy_for, shown
from ._options import make_options, number, refuse_of_group, refuse_unknown, require_names
from ._types import Options, ParameterOptions, Unpack


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

    A deep copy or a pickle has parameters, options and state, and goes on bit for bit. To keep
    what shares the parameters together with them, copy both in one call:
    weights, optimizer = copy.deepcopy((weights, optimizer)).
    """

    def __init__(self, params: Mapping[str, Any], recipe: Optional[str] = None,
                 each: Optional[Mapping[str, ParameterOptions]] = None,
                 weight_decay_mask: Any = None, **options: Unpack[Options]) -> None:
        require_names(params, "params", "arrays")
        each = dict(each or {})
        refuse_unknown(options)
        for name, given in each.items():
            if name not in params:
                raise ValueError(f"each names {name!r}, which is no parameter")
            refuse_of_group(name, given)
        self._recipe, self._each, self._options = recipe, each, dict(options)
        self._changed: Dict[str, float] = {}  # of _values, by assignment
        self._given: Dict[str, Any] = {}
        self._arrays: Dict[str, Array] = {}
        made = make_options(recipe, options)
        self._values = {name: getattr(made, name) for name in ("lr", "weight_decay", "momentum")}
        self._handle = Handle(made)
        mask = weight_decay_mask(params) if callable(weight_decay_mask) else weight_decay_mask or {}
        self._mask = dict(mask)
        self._spared = None  # the group without weight decay
        if any(not on for on in mask.values()):
            if made.adam_weight_decay < 0:
                made.adam_weight_decay = made.weight_decay  # the mask is of Muon's
            made.weight_decay = 0.0
            self._spared = self._handle.add_group(made)
        for name, x in params.items():
            if not isinstance(name, str):
                raise TypeError(f"parameter names are strings, not {name!r}")
            refuse_immutable(x, shown(name))
            parameter = array_of(x, shown(name), writable=True)
            if parameter.dtype not in (F32, BF16, F16):
                raise TypeError(f"{shown(name)} has elements of type {DTYPES[parameter.dtype]}: "
                                "parameters are f32, bf16 or f16")
            self._handle.add(name, parameter, {**options, **each.get(name, {})},
                             None if mask.get(name, True) else self._spared)
            self._given[name], self._arrays[name] = x, parameter

    def step(self, grads: Mapping[str, Any]) -> None:
        """Update the parameters from gradients by name; those without one, or with None,
        are left alone. A NaN or infinity raises NonFiniteError and changes nothing, unless
        the options say otherwise."""
        require_names(grads, "grads", "gradients")
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

    def _look_again(self) -> None:
        """Parameters may have been moved, resized or freed since they were last looked at."""
        arrays = {name: array_of(x, shown(name), writable=True) for name, x in self._given.items()}
        for name, now in arrays.items():
            then = self._arrays[name]
            if (now.dtype, now.shape, now.strides) != (then.dtype, then.shape, then.strides):
                raise ValueError(f"{shown(name)} was {then.shape} of {DTYPES[then.dtype]} with strides "
                                 f"{then.strides} when the optimizer was made, and is {now.shape} "
                                 f"of {DTYPES[now.dtype]} with {now.strides} now: make a new "
                                 "optimizer")
        self._arrays = arrays

    @staticmethod
    def _fitting(name: str, given: Any, parameter: Array) -> Array:
        """A gradient as the library expects it: dense and of the parameter's type."""
        what = f"the gradient of {shown(name)}"
        flags = getattr(given, "flags", None)
        if hasattr(given, "__array_interface__") and not (getattr(flags, "aligned", True)
                                                          and getattr(flags, "c_contiguous", True)):
            given = numpy_for(what).array(given, order="C")
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

    # ---- options that may change between steps ----

    @property
    def lr(self) -> float:
        """The learning rate, in force from the next step on; AdamW's moves along."""
        return self._values["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        self._change("lr", value)

    @property
    def weight_decay(self) -> float:
        """The weight decay, in force from the next step on."""
        return self._values["weight_decay"]

    @weight_decay.setter
    def weight_decay(self, value: float) -> None:
        self._change("weight_decay", value)

    @property
    def momentum(self) -> float:
        """The momentum, in force from the next step on."""
        return self._values["momentum"]

    @momentum.setter
    def momentum(self, value: float) -> None:
        self._change("momentum", value)

    def _change(self, name: str, value: float) -> None:
        self._handle.set(name, number(name, value))
        self._values[name] = self._changed[name] = float(value)
        if name == "weight_decay" and self._spared is not None:
            self._handle.set(name, 0.0, self._spared)

    # ---- printing, copies and pickles ----

    def __repr__(self) -> str:
        counters = self.counters()
        return (f"<muonium.Optimizer recipe={self._recipe or 'muonium'!r} lr={self.lr:g}: "
                f"{counters['muon']} Muon and {counters['adam']} AdamW parameters, "
                f"{counters['steps']} steps>")

    def __getstate__(self) -> Dict[str, Any]:
        return {"params": self._given, "recipe": self._recipe, "each": self._each,
                "mask": self._mask, "options": self._options, "changed": self._changed, "state": self._handle.saved()}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(state["params"], state["recipe"], state["each"],  # type: ignore[misc]
                      state["mask"], **state["options"])
        for name, value in state["changed"].items():
            self._change(name, value)
        self._handle.restore(state["state"])

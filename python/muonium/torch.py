"""Muon for PyTorch, computed on the CPU.

    optimizer = muonium.torch.Muon(model.named_parameters(), lr=1e-3)

takes the place of torch.optim.AdamW or torch.optim.Muon: matrices get Muon, everything
else AdamW, in one call of the library per step, whatever the number of parameters.
"""

import ctypes
import logging
import warnings
from collections import defaultdict
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from ._library import missing

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise missing("muonium.torch", "PyTorch", "torch") from None

from ._arrays import BF16, F16, F32, Array, dense_strides, freed, refuse_outside_storage
from ._handle import Handle, Report
from ._library import State, options_of
from ._options import (ALIASES, CHOICES, KNOWN, defaults_of, make_options, refuse_unknown,
                       route_of)

__all__ = ["Muon"]

_DTYPES = {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16}
_STATE_DTYPES = {F32: torch.float32, BF16: torch.bfloat16}
_stride, _numel, _data_ptr = torch.Tensor.stride, torch.Tensor.numel, torch.Tensor.data_ptr
_storage = getattr(torch.Tensor, "untyped_storage", None) or torch.Tensor._storage  # before 2.0
_nbytes = type(_storage(torch.empty(0))).nbytes
_SUM = CHOICES["momentum_form"].index("sum")
_log = logging.getLogger(__name__)
_UNSET: Any = object()  # where None has a meaning of its own

# What a group that is sent to AdamW says for it, and the option that then follows.
_FOLLOWING = {"lr": "adam_lr", "weight_decay": "adam_weight_decay", "eps": "adam_eps"}

# What is followed from step to step without making anything anew.
_LIVE = ("lr", "weight_decay", "momentum")

# Keys of a parameter's state, as torch and timm have them, and the library's names.
_STATE_KEYS = {"momentum_buffer": "momentum", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq",
               "normuon": "normuon", "master": "master"}


class Muon(torch.optim.Optimizer):
    """Muon for matrices and AdamW for everything else.

    params           a module, (name, tensor) pairs such as model.named_parameters(), tensors, or
                     dicts of parameter groups. Names help routing: embeddings, output heads,
                     norms and biases go to AdamW by name.
    lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn
                     as in torch.optim.Muon; None: the recipe's (adjust_lr_fn=None with the recipe
                     timm: no scale, as there)
    recipe           one of muonium.recipes(); None: "torch", whose defaults are those of
                     torch.optim.Muon
    options          more of them, by the names of muonium.h: precision="f32", normuon=True,
                     adam_lr_scale=0.1, betas=(0.9, 0.95), state_dtype="bf16", ...
                     verbose=True logs the routing with the first step.

    A group may have any of these, and
      use_muon       True or False: orders, where shape and name would decide
      use_fallback   True: AdamW, with the lr, weight_decay, betas and eps of the group
      layout, heads, row_splits, out_axes, in_axes
                     how its tensors stand for matrices: heads=12 or row_splits=[768] * 3
                     for fused projections, layout="experts" or "spatial" for batches

    Parameters are CPU tensors, pinned ones included, of type float32, bfloat16 or float16,
    with any strides; they are updated in place. Options in param_groups are followed from
    step to step, so every lr scheduler works. state_dict has torch's form, and those of
    torch.optim.Muon and of timm's Muon can be loaded.
    """

    _link: Any = None  # a _Link, from the first group on
    _logged = False    # the routing, if that is asked for

    def __init__(self, params: Union[torch.nn.Module, Iterable[torch.Tensor],
                                     Iterable[Tuple[str, torch.Tensor]], Iterable[Dict[str, Any]]],
                 lr: Union[None, float, torch.Tensor] = None,
                 weight_decay: Optional[float] = None, momentum: Optional[float] = None,
                 nesterov: Optional[bool] = None, ns_coefficients: Any = None,
                 eps: Optional[float] = None, ns_steps: Optional[int] = None,
                 adjust_lr_fn: Optional[str] = _UNSET, recipe: Optional[str] = None,
                 ns_mode: Optional[str] = None, **options: Any):
        refuse_unknown(options)
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if isinstance(params, torch.nn.Module):
            params = params.named_parameters()
        recipe = _recipe_of(recipe, ns_mode)
        given = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum,
                 "nesterov": nesterov, "ns_coefficients": ns_coefficients, "eps": eps,
                 "ns_steps": ns_steps}
        defaults = _recipe_defaults(recipe)
        defaults.update({name: value for name, value in given.items() if value is not None})
        defaults.update(options)
        if adjust_lr_fn is not _UNSET:
            defaults["adjust_lr_fn"] = adjust_lr_fn
        self._state: Dict[Any, Any] = defaultdict(dict)
        super().__init__(params, defaults)
        self._warn_of_missing_names()

    # ---- groups ----

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Add a group of parameters, with options of its own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"a parameter group is a dict, not {type(param_group).__name__}")
        group = dict(param_group)
        if group.get("recipe") is not None:
            group = {**_recipe_defaults(group["recipe"]), **group}
        params, names = _tensors_and_names(group["params"])
        _follow_group(group, group)
        group["params"] = params
        if names is not None:
            group["param_names"] = names
        before = len(self.param_groups)
        try:
            super().add_param_group(group)
            _fix_adam_rate(group)
            if self._link is None:
                self._link = _Link(self.param_groups)
            else:
                self._link.add_group(group)
        except BaseException:
            del self.param_groups[before:]
            if self._link is not None and len(self._link.groups) != before:
                self._link.whole = False
            self._settle()
            raise

    def _warn_of_missing_names(self):
        if any(p.ndim >= 2 for group in self.param_groups for p in group["params"]
               if "param_names" not in group and _route(group) == "auto"):
            warnings.warn("the parameters have no names, so that embeddings and output heads, which "
                          "belong to AdamW, are not told from other matrices: pass the model or "
                          "model.named_parameters(), or say use_muon in groups", stacklevel=3)

    # ---- the step ----

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Update all parameters that have a gradient; the loss, if a closure computes it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._settle()
        if not self._link.follow(self.param_groups):
            self._link = _Link(self.param_groups, self.state)
        try:
            self._link.step()
        except _Restrided:
            self._link = _Link(self.param_groups, self.state)
            self._link.step()
        if not self._logged and any(group.get("verbose") for group in self.param_groups):
            self._logged = True
            _log_routes(self.report())
        return loss

    # ---- state ----

    @property  # type: ignore[override]
    def state(self) -> Dict[Any, Any]:
        """State by parameter, as torch has it. The tensors are the library's own memory."""
        link = self._link
        if link is not None and link.stepped:
            self._state = link.state()
            link.stepped = False  # after that, in case of an interrupt
        return self._state

    @state.setter
    def state(self, value: Dict[Any, Any]) -> None:
        self._state = value

    def _settle(self):
        """Make the link anew if an error or an interrupt has left it half made."""
        if self._link is not None and not self._link.whole:
            self._link = _Link(self.param_groups, self.state) if self.param_groups else None

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Go on from a state dict of this class, of torch.optim.Muon or of timm's Muon, or from
        one with `mu_buffers`, a momentum for each Muon parameter in their order."""
        if "mu_buffers" in state_dict or "mu_state" in state_dict:
            state_dict = self._translated(state_dict)
        own, saved = self.param_groups, state_dict["param_groups"]
        merged = saved
        if len(own) == len(saved):  # else the base class refuses
            merged = [_merged(ours, theirs) for ours, theirs in zip(own, saved)]
        before = self._link, self.state, own
        try:
            super().load_state_dict({"state": {}, "param_groups": merged})
            by_number = dict(zip((n for group in saved for n in group["params"]),
                                 (p for group in own for p in group["params"])))
            incoming = {by_number[n]: entry for n, entry in state_dict["state"].items()
                        if n in by_number}
            incoming = _counted(self.param_groups, incoming)
            for group, theirs in zip(self.param_groups, saved):
                if "recipe" not in theirs:
                    _follow_group(group, theirs)
                _fix_adam_rate(group)
                if "recipe" not in theirs:
                    _complete_foreign(group, incoming)
            self._link = _Link(self.param_groups, incoming)
        except BaseException:
            self._link, self._state, self.param_groups = before
            raise

    def _translated(self, given):
        """A state dict of positions, of the recipes fp32 and fp16, in torch's form."""
        self._settle()
        numbers = {id(p): n for n, p in enumerate(
            p for group in self.param_groups for p in group["params"])}
        link = self._link
        muon = [p for p, r in zip(link.params, link.handle.reports()) if r.optimizer == "muon"]
        adam = [p for p, r in zip(link.params, link.handle.reports()) if r.optimizer == "adam"]
        buffers = given.get("mu_buffers")
        if buffers is None:  # the older form has them by position, in dicts of their own
            buffers = [_only_tensor(entry, f"mu_state[{key!r}]")
                       for key, entry in sorted(given["mu_state"].items())] \
                if isinstance(given["mu_state"], dict) else list(given["mu_state"])
        if len(buffers) != len(muon):
            raise ValueError(f"the state dict has {len(buffers)} buffers, and there are {len(muon)} "
                             "Muon parameters: see report() for who gets Muon")
        moments = (given.get("adam") or {}).get("state", {})
        if moments and max(moments) >= len(adam):
            raise ValueError(f"the state dict has AdamW state of parameter {max(moments)}, and there "
                             f"are {len(adam)} AdamW parameters: see report() for who gets AdamW")
        steps = max([_count(entry.get("step", 1), f"adam[{n}]") for n, entry in moments.items()],
                    default=1)
        state = {numbers[id(p)]: {"momentum_buffer": buffer, "step": steps}
                 for p, buffer in zip(muon, buffers) if buffer is not None}
        state.update({numbers[id(adam[n])]: entry for n, entry in moments.items()})
        changes = {"lr": given["lr"]} if given.get("lr") is not None else {}
        groups = []
        for group in self.state_dict()["param_groups"]:
            groups.append({**group, **changes})
            mode = given.get("ns_mode")
            if mode is not None and mode != group["recipe"]:
                raise ValueError(f"the state dict has ns_mode {mode!r}, and the optimizer the recipe "
                                 f"{group['recipe']!r}: make it with ns_mode={mode!r}")
        return {"state": state, "param_groups": groups}

    def __getstate__(self) -> Dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state,
                "param_groups": self.param_groups}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        entries = state.get("state", {})
        super().__setstate__({key: value for key, value in state.items() if key != "state"})
        self._state = defaultdict(dict, entries)
        if "defaults" in state:  # a pickle or a deep copy, not load_state_dict
            self._link = _Link(self.param_groups, entries)

    # ---- reports and files ----

    def report(self) -> List[Report]:
        """What every parameter gets, and why; before or after any step. Frozen parameters
        are left out until they have a gradient."""
        self._settle()
        return self._link.handle.reports()

    def counters(self) -> Dict[str, Any]:
        """What has been done: steps, matrices, parameters skipped, bytes, flops per step."""
        self._settle()
        return self._link.handle.counters()

    def save(self, path: Any) -> None:
        """Write the state to a safetensors file that any language can read."""
        self._settle()
        self._link.handle.save(path)

    def load(self, path: Any) -> None:
        """Go on from a file of save()."""
        self._settle()
        self._link.stepped = True  # before that, in case of an interrupt
        self._link.handle.load(path)


# ---- groups ----


def _recipe_of(recipe, ns_mode):
    """`ns_mode` is what the implementation behind the recipes fp32 and fp16 calls them."""
    if ns_mode is None:
        return "torch" if recipe is None else recipe
    if ns_mode not in ("fp32", "fp16") or recipe not in (None, ns_mode):
        raise ValueError(f"ns_mode is {ns_mode!r} and recipe {recipe!r}: use ns_mode fp32 or fp16, "
                         "which are recipes, or recipe alone")
    return ns_mode


def _recipe_defaults(recipe):
    """The weights of PyTorch's layers are (out, in), also where the recipe comes from JAX."""
    return {**defaults_of(options_of(recipe)), "kernels_in_out": False, "recipe": recipe,
            "adjust_lr_fn": "match_rms_adamw" if recipe == "timm" else None}


def _route(group):
    return route_of(_given(group))


def _follow_group(group, said):
    """What is said in a group that is sent to AdamW is said for AdamW."""
    if _route(said) == "adam":
        told = {ALIASES.get(key, key) for key, value in said.items() if value is not None}
        group.update({option: -1.0 for key, option in _FOLLOWING.items()
                      if key in told and option not in told})


def _only_tensor(entry, what):
    """A tensor, alone or in a dict."""
    found = [entry] if isinstance(entry, torch.Tensor) or entry is None else [
        value for value in getattr(entry, "values", list)() if isinstance(value, torch.Tensor)]
    if len(found) != 1:
        raise ValueError(f"{what} is {entry!r}: use a tensor, or a dict with one")
    return found[0]


def _log_routes(reports):
    """Counts first, then the names by reason."""
    muon = sum(report.optimizer == "muon" for report in reports)
    _log.info("Muon parameter routing: %d Muon, %d AdamW", muon, len(reports) - muon)
    by_reason = defaultdict(list)
    for report in reports:
        by_reason[report.reason, report.optimizer].append(report.name)
    for (reason, optimizer), names in sorted(by_reason.items()):
        more = f", … and {len(names) - 10} more" if len(names) > 10 else ""
        _log.info("  %s -> %s: %d, %s%s", reason, "Muon" if optimizer == "muon" else "AdamW",
                  len(names), ", ".join(map(repr, names[:10])), more)


def _tensors_and_names(params):
    """The tensors of a group, each once, and their names, or None if they have none."""
    if isinstance(params, torch.Tensor):
        return [params], None
    if isinstance(params, (set, frozenset)):
        raise TypeError("parameters are given as a set, which has no order: use a list")
    pairs, seen = [], set()
    for item in params:
        name, tensor = item if isinstance(item, tuple) else (None, item)
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"parameters are tensors or (name, tensor) pairs, not {item!r}")
        if id(tensor) not in seen:  # tied parameters are one
            seen.add(id(tensor))
            pairs.append((name, tensor))
    names = [name for name, _ in pairs]
    if any(name is None for name in names):
        if any(name is not None for name in names):
            raise ValueError("all optimizer params should be with/without names. Some param names "
                             "are missing")
        names = None
    return [tensor for _, tensor in pairs], names


def _fix_adam_rate(group):
    """Where AdamW has a rate of its own, make it a multiple of lr, so that it follows a
    scheduler and survives saving in the middle of a schedule."""
    options = make_options(group["recipe"], _given(group))
    if options.adam_lr >= 0:
        if options.lr == 0:
            raise ValueError(f"lr is 0 and adam_lr is {options.adam_lr}: use adam_lr_scale")
        group.pop("adamw_lr", None)
        group.update(adam_lr=-1.0, adam_lr_scale=options.adam_lr / options.lr)


def _merged(ours, theirs):
    """A group with what was saved, whatever each side calls it; names are the model's."""
    said = {ALIASES.get(key, key) for key, value in theirs.items()
            if value is not None or key == "adjust_lr_fn" and ours["recipe"] == "timm"}
    kept = {key: value for key, value in ours.items() if ALIASES.get(key, key) not in said}
    names = {"param_names": ours["param_names"]} if "param_names" in ours else {}
    return {**theirs, **kept, **names, "params": theirs["params"]}


def _given(group):
    given = {key: value for key, value in group.items() if key in KNOWN}
    if group.get("recipe") == "timm" and given.get("adjust_lr_fn", "") is None:
        given["adjust_lr_fn"] = "none"
    return given


def _names_of(index, group):
    """The names of the parameters of a group, which is number `index`."""
    return group.get("param_names") or [f"group {index}.{i}" for i in range(len(group["params"]))]


def _counted(groups, incoming):
    """State by parameter, with its steps as whole numbers."""
    names = {p: name for index, group in enumerate(groups)
             for p, name in zip(group["params"], _names_of(index, group))}
    counted = {}
    for p, entry in incoming.items():
        if not isinstance(entry, dict):
            raise TypeError(f"the state of {names[p]!r} is {entry!r}: use a dict")
        counted[p] = dict(entry)
        if "step" in entry:
            counted[p]["step"] = _count(entry["step"], names[p])
    return counted


def _count(value, name):
    try:
        count = value if isinstance(value, int) else float(value)
    except (TypeError, ValueError, RuntimeError):
        count = -1
    if not (0 <= count <= 2**53 and count == int(count)):
        raise ValueError(f"step of {name!r} is {value!r}: use a whole number from 0 to 2**53")
    return int(count)


def _complete_foreign(group, incoming):
    """Others keep momentum as a running mean, and torch no count of its steps."""
    steps = max([entry.get("step", 1) for entry in incoming.values()], default=1)
    options = make_options(group["recipe"], _given(group))
    for p in group["params"]:
        if p in incoming:
            entry = dict(incoming[p])
            entry.setdefault("step", steps)
            if options.momentum_form == _SUM and "momentum_buffer" in entry:
                entry["momentum_buffer"] = entry["momentum_buffer"] / (1 - options.momentum)
            incoming[p] = entry


# ---- the connection to the library ----


class _Restrided(Exception):
    """A parameter has other strides than before, as after to(memory_format=...)."""


class _Link:
    """The library's optimizer for some groups, with the state given.

    The lists have an entry per parameter, by the library's numbers: what it and its
    gradient must look like for their addresses to be all that a step needs.
    """

    def __init__(self, groups, state=None):
        self.handle = Handle(make_options(groups[0]["recipe"], _given(groups[0])))
        self.params: List[torch.Tensor] = []
        self.names: List[str] = []
        self.shapes: List[torch.Size] = []
        self.strides: List[tuple] = []
        self.grad_strides: List[tuple] = []
        self.sizes: List[int] = []
        self.dtypes: List[torch.dtype] = []
        self.single: List[int] = []    # parameters of one element
        self.data: List[Optional[int]] = []     # addresses of parameters in the last step
        self.sources: List[Optional[int]] = []  # and of gradients
        self.held: List[Optional[int]] = []     # bytes of the storages of parameters
        self.given: List[Optional[int]] = []    # and of gradients
        self.frozen: List[tuple] = []  # parameters to be added with their first gradient
        self.groups: List[tuple] = []
        self.stepped = False  # there may be state that Python has not seen
        self.whole = False    # not while parameters are being added
        for group in groups:
            self.add_group(group, state)
        self.whole = True

    def add_group(self, group, state=None):
        self.whole = False
        pointer = self.handle.add_group(make_options(group["recipe"], _given(group)))
        index = len(self.groups)
        self.groups.append((pointer, _live(group), _settled(group)))
        for p, name in zip(group["params"], _names_of(index, group)):
            entry = state.get(p) if state else None
            _refuse_foreign(p, name)
            if p.requires_grad or p.grad is not None or entry:
                self.add(p, name, group, pointer, entry)
            else:
                self.frozen.append((p, name, group, pointer))
        self.whole = True

    def add(self, p, name, group, pointer, entry=None):
        strides = dense_strides(p.shape)
        for t in (p, p.grad):
            if _is_dense(t) and _is_packed(t):  # so that a copy can have these strides, too
                strides = t.stride()
        array = Array(p.data_ptr(), _DTYPES[p.dtype], tuple(p.shape), p.stride(), p)
        _refuse_freed(p, array.address, repr(name))
        number = self.handle.add(name, array, _given(group), pointer, strides)
        for entries, value in ((self.params, p), (self.names, name), (self.shapes, p.shape),
                               (self.strides, p.stride()), (self.grad_strides, strides),
                               (self.sizes, p.numel()), (self.dtypes, p.dtype),
                               (self.data, None), (self.sources, None),
                               (self.held, None), (self.given, None)):
            entries.append(value)
        if p.numel() == 1:
            self.single.append(number)
        if entry:
            self.set_state(number, entry)
            self.stepped = True

    def follow(self, groups):
        """Hand on what has changed in the groups; False if that takes a new link."""
        for group, (pointer, live, settled) in zip(groups, self.groups):
            if _settled(group) != settled:
                return False
            for name in _LIVE:
                value = float(group[name])
                if value != live[name]:
                    self.handle.set(name, value, pointer)
                    live[name] = value
        return True

    def step(self):
        if self.frozen:
            self.thaw()
        params = self.params
        grads = [p.grad for p in params]
        data = list(map(_data_ptr, params))
        if self.as_expected(params, grads, data):
            sources = list(map(_data_ptr, grads))
        else:
            grads = [g if g is None else self.fitting(i, g) for i, g in enumerate(grads)]
            sources = [0 if g is None else _data_ptr(g) for g in grads]
        held, given = self.check_memory(grads, data, sources)
        self.stepped = True  # before the step, since an interrupt may follow it at once
        self.handle.step(data, sources)
        self.data, self.sources, self.held, self.given = data, sources, held, given

    def thaw(self):
        """Add frozen parameters that have a gradient now."""
        thawed = [entry for entry in self.frozen if entry[0].grad is not None]
        if thawed:
            self.whole = False
            self.frozen = [entry for entry in self.frozen if entry[0].grad is None]
            for entry in thawed:
                self.add(*entry)
            self.whole = True

    def check_memory(self, grads, data, sources):
        """Refuse tensors whose storage was freed or resized; the sizes of all storages, of the
        parameters and of the gradients. Only what differs from the last step is inspected. An
        address alone tells too little: a storage that is resized twice may be where it was."""
        held = list(map(_nbytes, map(_storage, self.params)))
        if data != self.data or held != self.held:
            for i, p in enumerate(self.params):
                if data[i] != self.data[i] or held[i] != self.held[i]:
                    _refuse_freed(p, data[i], repr(self.names[i]))
        given = [0 if g is None else _nbytes(_storage(g)) for g in grads]
        if sources != self.sources or given != self.given:
            for i, g in enumerate(grads):
                if (g is not None and (sources[i], given[i]) != (self.sources[i], self.given[i])
                        and (sources[i] == 0 or given[i] < (g.storage_offset() + self.sizes[i])
                             * g.element_size())):
                    _refuse_freed(g, sources[i], f"the gradient of {self.names[i]!r}")
        return held, given

    def as_expected(self, params, grads, data):
        """Whether all have a gradient, and nothing has changed but addresses. Whole lists are
        compared, since a step with many small parameters spends its time here."""
        try:
            return (list(map(_stride, grads)) == self.grad_strides
                    and list(map(_stride, params)) == self.strides
                    and [p.shape for p in params] == self.shapes
                    and list(map(_numel, grads)) == self.sizes
                    and [g.dtype for g in grads] == self.dtypes
                    and not any([grads[i].is_neg() for i in self.single])
                    # Another type or device is another place.
                    and (data == self.data or ([p.dtype for p in params] == self.dtypes
                                               and all([p.is_cpu for p in params]))))
        except (RuntimeError, TypeError):  # a sparse gradient, or none
            return False

    def fitting(self, i, g):
        """A gradient that the library can read where it was told to look, or an error."""
        p, name, shape, dtype = self.params[i], self.names[i], self.shapes[i], self.dtypes[i]
        if p.shape != shape or p.dtype != dtype:
            raise ValueError(f"{name!r} was {tuple(shape)} of {dtype} when the optimizer was made, "
                             f"and is {tuple(p.shape)} of {p.dtype} now: make a new optimizer")
        _refuse_foreign(p, name)
        if not _is_dense(g):
            raise TypeError(f"the gradient of {name!r} is {g.layout}: sparse gradients are not "
                            "supported; make embeddings with sparse=False")
        if g.shape != shape or g.dtype != dtype or not g.is_cpu:
            raise ValueError(f"the gradient of {name!r} is {tuple(g.shape)} of {g.dtype} on "
                             f"{g.device}, the parameter {tuple(shape)} of {dtype}: they must agree")
        if p.stride() != self.strides[i]:
            raise _Restrided
        refuse_outside_storage(g, f"the gradient of {name!r}")
        told = self.grad_strides[i]
        if g.is_neg():  # its memory holds the opposite, as of x.conj().imag
            g = g.resolve_neg()
        if g.stride() == told:
            return g
        if all(a == b for a, b, size in zip(g.stride(), told, shape) if size != 1):
            self.grad_strides[i] = g.stride()
            return g
        return torch.empty_strided(shape, told, dtype=dtype).copy_(g)

    # ---- state ----

    def state(self):
        """State by parameter, for those that have taken a step."""
        found = defaultdict(dict)
        for number, p in enumerate(self.params):
            state = self.handle.state(number)
            if state.steps == 0:
                continue
            exact = torch.float32 if state.steps <= 2**24 else torch.float64
            entry = {"step": torch.tensor(float(state.steps), dtype=exact)}
            for key, field in _STATE_KEYS.items():
                address = getattr(state, field)
                if address:
                    shape = (state.rows,) if key == "normuon" else p.shape
                    entry[key] = self.view(address, _dtype_of(field, state), shape)
            found[p] = entry
        return found

    def view(self, address, dtype, shape):
        """A tensor over memory of the library, which it keeps alive."""
        count = shape.numel() if isinstance(shape, torch.Size) else shape[0]
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        size = torch.empty((), dtype=dtype).element_size()
        memory = (ctypes.c_char * (count * size)).from_address(address)
        memory.owner = self.handle
        return torch.frombuffer(memory, dtype=dtype).reshape(shape)

    def set_state(self, number, entry):
        own, name = self.handle.state(number), self.names[number]
        state = State(steps=_count(entry.get("step", 1), name), elements=own.elements,
                      rows=own.rows, momentum_dtype=own.momentum_dtype)
        needed = ["momentum_buffer"] if own.momentum else ["exp_avg", "exp_avg_sq"]
        if any(not isinstance(entry.get(key), torch.Tensor) for key in needed):
            raise ValueError(f"the state of {name!r} has {', '.join(map(str, entry))}: it needs "
                             f"{' and '.join(needed)}; see report() for who gets Muon, and "
                             "use_muon in a group to decide it")
        kept = []
        for key, field in _STATE_KEYS.items():
            value = entry.get(key)
            if value is not None:
                if not isinstance(value, torch.Tensor):
                    raise TypeError(f"{key} of {name!r} is of type {type(value).__name__}: use a "
                                    "tensor")
                _refuse_freed(value, 1, f"{key} of {name!r}")
                shape = (own.rows,) if key == "normuon" else tuple(self.shapes[number])
                if tuple(value.shape) != shape:
                    raise ValueError(f"{key} of {name!r} has shape {tuple(value.shape)}: it must be "
                                     f"{shape}")
                value = value.detach().to("cpu", _dtype_of(field, own)).contiguous().resolve_neg()
                _refuse_freed(value, value.data_ptr(), f"{key} of {name!r}")
                kept.append(value)
                setattr(state, field, value.data_ptr())
        self.handle.set_state(number, state)


def _dtype_of(field, state):
    return _STATE_DTYPES[state.momentum_dtype] if field == "momentum" else torch.float32


def _live(group):
    return {name: float(group[name]) for name in _LIVE}


def _settled(group):
    """The options that a change of which takes a new link."""
    return {key: value for key, value in group.items() if key in KNOWN and key not in _LIVE}


# ---- tensors ----


def _refuse_foreign(p, name):
    """A parameter must be host memory of a type that the library knows."""
    if p.layout is not torch.strided:
        raise TypeError(f"{name!r} is {p.layout}: parameters are dense tensors")
    if not p.is_cpu:
        raise ValueError(f"{name!r} is on {p.device}: Muonium computes on the CPU. Keep a copy of it "
                         "there for the optimizer, as offloading tools do")
    if p.dtype not in _DTYPES:
        raise TypeError(f"{name!r} is {p.dtype}: parameters are float32, bfloat16 or float16")
    if p.is_neg():
        raise ValueError(f"{name!r} is a negative view, as of x.conj().imag: use a copy, x.clone()")


def _refuse_freed(t, address, what):
    """Refuse a tensor at an address that has no memory for all of its elements."""
    if address == 0 and t.numel() > 0:
        raise freed(what)
    refuse_outside_storage(t, what)


def _is_dense(g):
    return g is not None and g.layout is torch.strided


def _is_packed(p):
    """No gaps and no overlaps in some order of dimensions: autograd then gives gradients
    the parameter's own strides."""
    step = 1
    for size, stride in sorted(zip(p.shape, p.stride()), key=lambda pair: (pair[1], pair[0])):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True

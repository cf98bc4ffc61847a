"""Muon, the optimizer for PyTorch."""

import warnings
from collections import defaultdict
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

import torch

from .._functions import info
from .._handle import Report
from .._options import refuse_unknown
from ._groups import (complete_foreign, fix_adam_rate, follow_group, log_routes, merge_groups,
                      only_tensor, recipe_defaults, recipe_of, route_of_group, tensors_and_names,
                      whole_steps, with_counts)
from ._link import Link, Restrided
from ._tensors import is_dtensor

_UNSET: Any = object()  # where None has a meaning of its own

Params = Union[torch.nn.Module, Iterable[torch.Tensor], Iterable[Tuple[str, torch.Tensor]],
               Iterable[Dict[str, Any]]]


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

    _link: Any = None  # a Link, from the first group on
    _logged = False    # the routing, if that is asked for

    def __init__(self, params: Params, lr: Union[None, float, torch.Tensor] = None,
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
        recipe = recipe_of(recipe, ns_mode)
        given = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum,
                 "nesterov": nesterov, "ns_coefficients": ns_coefficients, "eps": eps,
                 "ns_steps": ns_steps}
        defaults = recipe_defaults(recipe)
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
            group = {**recipe_defaults(group["recipe"]), **group}
        params, names = tensors_and_names(group["params"])
        follow_group(group, group)
        group["params"] = params
        if names is not None:
            group["param_names"] = names
        before = len(self.param_groups)
        try:
            super().add_param_group(group)
            fix_adam_rate(group)
            if self._link is None:
                self._link = self._make_link(self.param_groups)
            elif self._link.takes(group):
                self._link.add_group(group)
            else:
                self._link = self._make_link(self.param_groups, self.state)
        except BaseException:
            del self.param_groups[before:]
            if self._link is not None and len(self._link.groups) != before:
                self._link.whole = False
            self._settle()
            raise

    def _make_link(self, groups: List[Dict[str, Any]], state: Any = None) -> Any:
        """The connection to the library for these groups, which go on from `state`."""
        if any(is_dtensor(p) for group in groups for p in group["params"]):
            from ._sharded import ShardedLink

            return ShardedLink(groups, state)
        return Link(groups, state)

    def _warn_of_missing_names(self):
        if any(p.ndim >= 2 for group in self.param_groups for p in group["params"]
               if "param_names" not in group and route_of_group(group) == "auto"):
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
            self._link = self._make_link(self.param_groups, self.state)
        if self._is_empty_step():
            self.init_state()
            return loss
        try:
            self._link.step()
        except Restrided:
            self._link = self._make_link(self.param_groups, self.state)
            self._link.step()
        if not self._logged and any(group.get("verbose") for group in self.param_groups):
            self._logged = True
            log_routes(self.report())
        return loss

    def _is_empty_step(self):
        """Whether this is the step by which torch.distributed.checkpoint makes state: the first,
        with a rate of 0 and gradients of 0. It must not move a parameter or count."""
        groups = self.param_groups
        return (all(group["lr"] == 0 for group in groups) and not self.state
                and not any(p.grad.any() for group in groups for p in group["params"]
                            if p.grad is not None))

    # ---- state ----

    def init_state(self) -> None:
        """Make the state of every parameter present before the first step, as checkpoints of many
        processes need it: state_dict() then has all tensors, zeros, with step 0."""
        self._settle()
        self._link.complete = self._link.stepped = True

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
            self._link = self._make_link(self.param_groups, self.state) if self.param_groups else None

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Go on from a state dict of this class, of torch.optim.Muon or of timm's Muon, or from
        one with `mu_buffers`, a momentum for each Muon parameter in their order."""
        if "mu_buffers" in state_dict or "mu_state" in state_dict:
            state_dict = self._translated(state_dict)
        own, saved = self.param_groups, state_dict["param_groups"]
        merged = saved
        if len(own) == len(saved):  # else the base class refuses
            merged = [merge_groups(ours, theirs) for ours, theirs in zip(own, saved)]
        before = self._link, self.state, own
        try:
            super().load_state_dict({"state": {}, "param_groups": merged})
            by_number = dict(zip((n for group in saved for n in group["params"]),
                                 (p for group in own for p in group["params"])))
            incoming = {by_number[n]: entry for n, entry in state_dict["state"].items()
                        if n in by_number}
            incoming = with_counts(self.param_groups, incoming)
            for group, theirs in zip(self.param_groups, saved):
                if "recipe" not in theirs:
                    follow_group(group, theirs)
                fix_adam_rate(group)
                if "recipe" not in theirs:
                    complete_foreign(group, incoming)
            self._link = self._make_link(self.param_groups, incoming)
        except BaseException:
            self._link, self._state, self.param_groups = before
            raise

    def _translated(self, given):
        """A state dict of positions, of the recipes fp32 and fp16, in torch's form."""
        self._settle()
        numbers = {id(p): n for n, p in enumerate(
            p for group in self.param_groups for p in group["params"])}
        link = self._link
        muon = [p for p, r in zip(link.params, link.reports()) if r.optimizer == "muon"]
        adam = [p for p, r in zip(link.params, link.reports()) if r.optimizer == "adam"]
        buffers = given.get("mu_buffers")
        if buffers is None:  # the older form has them by position, in dicts of their own
            buffers = [only_tensor(entry, f"mu_state[{key!r}]")
                       for key, entry in sorted(given["mu_state"].items())] \
                if isinstance(given["mu_state"], dict) else list(given["mu_state"])
        if len(buffers) != len(muon):
            raise ValueError(f"the state dict has {len(buffers)} buffers, and there are {len(muon)} "
                             "Muon parameters: see report() for who gets Muon")
        moments = (given.get("adam") or {}).get("state", {})
        if moments and max(moments) >= len(adam):
            raise ValueError(f"the state dict has AdamW state of parameter {max(moments)}, and there "
                             f"are {len(adam)} AdamW parameters: see report() for who gets AdamW")
        steps = max([whole_steps(entry.get("step", 1), f"adam[{n}]") for n, entry in moments.items()],
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
            self._link = self._make_link(self.param_groups, entries)

    # ---- reports and files ----

    def __repr__(self) -> str:
        """The recipe, who gets what, and the kernel that computes it, before the groups."""
        if self._link is None or not self._link.whole:
            return super().__repr__()
        reports = self.report()
        muon = sum(report.optimizer == "muon" for report in reports)
        recipes = sorted({str(group["recipe"]) for group in self.param_groups})
        return (f"<{type(self).__name__} recipe {', '.join(recipes)}: {muon} Muon and "
                f"{len(reports) - muon} AdamW parameters, kernel {info()['kernel']}>\n"
                + super().__repr__())

    def report(self) -> List[Report]:
        """What every parameter gets, and why; before or after any step. Frozen parameters
        are left out until they have a gradient."""
        self._settle()
        return self._link.reports()

    def counters(self) -> Dict[str, Any]:
        """What has been done: steps, matrices, parameters skipped, bytes, flops per step."""
        self._settle()
        return self._link.counters()

    def save(self, path: Any) -> None:
        """Write the state to a safetensors file that any language can read."""
        self._settle()
        self._link.save(path)

    def load(self, path: Any) -> None:
        """Go on from a file of save()."""
        self._settle()
        self._link.stepped = True  # before that, in case of an interrupt
        self._link.load(path)

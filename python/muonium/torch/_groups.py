"""Parameter groups: their options as torch and timm name them, and their names."""

import logging
from collections import defaultdict

import torch

from .._library import options_of
from .._options import ALIASES, CHOICES, KNOWN, defaults_of, make_options, route_of

_log = logging.getLogger("muonium.torch")
_SUM = CHOICES["momentum_form"].index("sum")

# What a group that is sent to AdamW says for it, and the option that then follows.
_FOLLOWING = {"lr": "adam_lr", "weight_decay": "adam_weight_decay", "eps": "adam_eps"}


def recipe_of(recipe, ns_mode):
    """`ns_mode` is what the implementation behind the recipes fp32 and fp16 calls them."""
    if ns_mode is None:
        return "torch" if recipe is None else recipe
    if ns_mode not in ("fp32", "fp16") or recipe not in (None, ns_mode):
        raise ValueError(f"ns_mode is {ns_mode!r} and recipe {recipe!r}: use ns_mode fp32 or fp16, "
                         "which are recipes, or recipe alone")
    return ns_mode


def recipe_defaults(recipe):
    """The weights of PyTorch's layers are (out, in), also where the recipe comes from JAX."""
    return {**defaults_of(options_of(recipe)), "kernels_in_out": False, "recipe": recipe,
            "adjust_lr_fn": "match_rms_adamw" if recipe == "timm" else None}


def route_of_group(group):
    return route_of(given_of(group))


def follow_group(group, said):
    """What is said in a group that is sent to AdamW is said for AdamW."""
    if route_of_group(said) == "adam":
        told = {ALIASES.get(key, key) for key, value in said.items() if value is not None}
        group.update({option: -1.0 for key, option in _FOLLOWING.items()
                      if key in told and option not in told})


def only_tensor(entry, what):
    """A tensor, alone or in a dict."""
    found = [entry] if isinstance(entry, torch.Tensor) or entry is None else [
        value for value in getattr(entry, "values", list)() if isinstance(value, torch.Tensor)]
    if len(found) != 1:
        raise ValueError(f"{what} is {entry!r}: use a tensor, or a dict with one")
    return found[0]


def log_routes(reports):
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


def tensors_and_names(params):
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


def fix_adam_rate(group):
    """Where AdamW has a rate of its own, make it a multiple of lr, so that it follows a
    scheduler and survives saving in the middle of a schedule."""
    options = make_options(group["recipe"], given_of(group))
    if options.adam_lr >= 0:
        if options.lr == 0:
            raise ValueError(f"lr is 0 and adam_lr is {options.adam_lr}: use adam_lr_scale")
        group.pop("adamw_lr", None)
        group.update(adam_lr=-1.0, adam_lr_scale=options.adam_lr / options.lr)


def merge_groups(ours, theirs):
    """A group with what was saved, whatever each side calls it; names are the model's."""
    said = {ALIASES.get(key, key) for key, value in theirs.items()
            if value is not None or key == "adjust_lr_fn" and ours["recipe"] == "timm"}
    kept = {key: value for key, value in ours.items() if ALIASES.get(key, key) not in said}
    names = {"param_names": ours["param_names"]} if "param_names" in ours else {}
    return {**theirs, **kept, **names, "params": theirs["params"]}


def given_of(group):
    given = {key: value for key, value in group.items() if key in KNOWN}
    if group.get("recipe") == "timm" and given.get("adjust_lr_fn", "") is None:
        given["adjust_lr_fn"] = "none"
    return given


def names_of_group(index, group):
    """The names of the parameters of a group, which is number `index`."""
    return group.get("param_names") or [f"group {index}.{i}" for i in range(len(group["params"]))]


def with_counts(groups, incoming):
    """State by parameter, with its steps as whole numbers."""
    names = {p: name for index, group in enumerate(groups)
             for p, name in zip(group["params"], names_of_group(index, group))}
    counted = {}
    for p, entry in incoming.items():
        if not isinstance(entry, dict):
            raise TypeError(f"the state of {names[p]!r} is {entry!r}: use a dict")
        counted[p] = dict(entry)
        if "step" in entry:
            counted[p]["step"] = whole_steps(entry["step"], names[p])
    return counted


def whole_steps(value, name):
    try:
        count = value if isinstance(value, int) else float(value)
    except (TypeError, ValueError, RuntimeError):
        count = -1
    if not (0 <= count <= 2**53 and count == int(count)):
        raise ValueError(f"step of {name!r} is {value!r}: use a whole number from 0 to 2**53")
    return int(count)


def complete_foreign(group, incoming):
    """Others keep momentum as a running mean, and torch no count of its steps."""
    steps = max([entry.get("step", 1) for entry in incoming.values()], default=1)
    options = make_options(group["recipe"], given_of(group))
    for p in group["params"]:
        if p in incoming:
            entry = dict(incoming[p])
            entry.setdefault("step", steps)
            if options.momentum_form == _SUM and "momentum_buffer" in entry:
                entry["momentum_buffer"] = entry["momentum_buffer"] / (1 - options.momentum)
            incoming[p] = entry

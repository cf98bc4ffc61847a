"""Small parameters on a device, which torch's AdamW steps there.

Tools that offload, as torchao's CPUOffloadOptimizer, leave small tensors on the device and give
them to an optimizer of the same class.
"""

from typing import Any, Dict, List

import torch

from .._handle import Report
from .._options import make_options
from ._groups import given_of

SMALL = 4096  # elements: fewer stay on the device, as in torchao


def stays_on_device(p: torch.Tensor) -> bool:
    """Whether a parameter is one for DeviceAdam."""
    return not (p.is_cpu or p.is_meta) and (p.numel() < SMALL or p.ndim < 2) and p.is_floating_point()


class DeviceAdam:
    """torch.optim.AdamW with the options that the groups have for AdamW."""

    def __init__(self) -> None:
        self.optimizer: Any = None
        self.names: Dict[int, str] = {}
        self.sources: List[Dict[str, Any]] = []

    def add(self, p: torch.Tensor, name: str, group: Dict[str, Any]) -> None:
        """Add a parameter of a group."""
        made = {"params": [p], **self.options(group)}
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW([made])
        else:
            self.optimizer.add_param_group(made)
        self.names[id(p)] = name
        self.sources.append(group)

    @staticmethod
    def options(group: Dict[str, Any]) -> Dict[str, Any]:
        o = make_options(group["recipe"], given_of(group))
        return {"lr": o.adam_lr if o.adam_lr >= 0 else o.adam_lr_scale * o.lr,
                "betas": (o.adam_beta1, o.adam_beta2),
                "eps": o.adam_eps if o.adam_eps >= 0 else o.plan.eps,
                "weight_decay": o.adam_weight_decay if o.adam_weight_decay >= 0
                else o.weight_decay, "maximize": bool(o.maximize)}

    def step(self) -> None:
        if self.optimizer is not None:
            for own, source in zip(self.optimizer.param_groups, self.sources):
                own.update(self.options(source))
            self.optimizer.step()

    def state(self) -> Dict[Any, Dict[str, Any]]:
        return dict(self.optimizer.state) if self.optimizer is not None else {}

    def set_state(self, p: torch.Tensor, entry: Dict[str, Any]) -> None:
        self.optimizer.state[p] = {
            "step": torch.as_tensor(float(entry.get("step", 1))),
            **{key: entry[key].detach().to(p.device, p.dtype).clone()
               for key in ("exp_avg", "exp_avg_sq")}}

    def reports(self) -> List[Report]:
        if self.optimizer is None:
            return []
        return [Report(self.names[id(p)], "adam", "device", 0, 0, 0, "auto", 0, None, 0.0,
                       2 * p.numel() * p.element_size(), group["lr"], group["lr"],
                       int(self.optimizer.state.get(p, {}).get("step", 0)))
                for group in self.optimizer.param_groups for p in group["params"]]

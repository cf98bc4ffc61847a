"""A Muon of plain PyTorch for the tests: one tensor at a time, as the recipes are published.

It shares no code with the package; coefficients come from the double-precision reference.
"""
import math
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from reference.coefficients import Generated, choose

ORIGINAL = (3.4445, -4.7750, 2.0315)


@dataclass
class Recipe:
    lr: float
    weight_decay: float
    momentum: float = 0.95
    form: str = "lerp"         # of the momentum: lerp, sum, corrected
    nesterov: bool = True
    table: object = "original"
    eps_mode: str = "add"
    eps: float = 1e-7
    scale: str = "match_rms_adamw"
    adam_ratio: float = 1.0    # AdamW's learning rate over Muon's
    betas: tuple = (0.9, 0.95)
    adam_eps: float = 1e-8
    adam_decay: object = None  # None: Muon's
    ahead: bool = False        # NAdamW, as optax has it
    steps: int = 5
    dtype: object = torch.float32  # of the iteration


RECIPES = {
    "muonium": Recipe(0.02, 0.01, table=Generated(safety=2e-2), eps_mode="none"),
    "motif": Recipe(0.02, 0.0, table=Generated(rows=10)),
    "fp32": Recipe(3e-4, 0.01, form="sum"),
    "fp16": Recipe(3e-4, 0.01, form="sum", table=(tuple(x / 1.02 for x in ORIGINAL),)),
    "timm": Recipe(0.02, 0.0, nesterov=False, table="quintic", eps_mode="clamp", adam_eps=1e-7),
    "optax": Recipe(0.02, 0.0, form="corrected", eps=1e-8, scale="original", betas=(0.9, 0.999),
                    adam_decay=0.0, ahead=True),
    "torch": Recipe(1e-3, 0.1, eps_mode="clamp", scale="original"),
    "keller": Recipe(0.02, 0.0, scale="original", adam_ratio=3e-4 / 0.02, adam_eps=1e-10,
                     adam_decay=0.0),
    "moonlight": Recipe(1e-3, 0.1, form="sum"),
}


@lru_cache(maxsize=None)
def rows_of(table, steps):
    return [tuple(map(float, row)) for row in choose(table, steps)]


def orthogonalized(x, r):
    rows = rows_of(r.table, r.steps)
    x = x.to(r.dtype)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    norm = x.norm()
    x = x / {"none": norm, "add": norm + r.eps, "clamp": norm.clamp(min=r.eps)}[r.eps_mode]
    for a, b, c in rows:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if tall else x).float()


class PlainMuon:
    """`named` parameters under a recipe; `is_muon(name, p)` routes, `splits` cuts rows."""

    def __init__(self, named, recipe, is_muon, splits=None, **changes):
        self.named = list(named)
        self.r = replace(RECIPES[recipe], **changes)
        self.is_muon, self.splits = is_muon, splits or {}
        self.state = {name: {} for name, _ in self.named}
        self.adam_ratio = self.r.adam_ratio

    @torch.no_grad()
    def step(self):
        for name, p in self.named:
            if p.grad is not None:
                s = self.state[name]
                s["t"] = s.get("t", 0) + 1
                update = self.muon if self.is_muon(name, p) else self.adam
                update(name, p, p.grad.float(), s)

    def muon(self, name, p, g, s):
        r, mu, t = self.r, self.r.momentum, s["t"]
        m = mu * s.get("m", torch.zeros_like(g)) + (1 if r.form == "sum" else 1 - mu) * g
        s["m"] = m
        if r.form == "corrected":
            d = m / (1 - mu**t)
            if r.nesterov:
                d = mu * m / (1 - mu ** (t + 1)) + (1 - mu) * g / (1 - mu**t)
        else:
            ahead = g + mu * m if r.form == "sum" else (1 - mu) * g + mu * m
            d = ahead if r.nesterov else m
        blocks = torch.split(d.reshape(d.shape[0], -1), self.splits.get(name, d.shape[0]))
        updates = []
        for block in blocks:
            out, columns = block.shape
            scale = (0.2 * math.sqrt(max(out, columns)) if r.scale == "match_rms_adamw"
                     else math.sqrt(max(1, out / columns)))
            updates.append(scale * orthogonalized(block, r))
        p.copy_((1 - r.lr * r.weight_decay) * p - r.lr * torch.cat(updates).reshape(p.shape))

    def adam(self, name, p, g, s):
        r, t = self.r, s["t"]
        lr = r.lr * self.adam_ratio
        decay = r.weight_decay if r.adam_decay is None else r.adam_decay
        s["m"] = r.betas[0] * s.get("m", torch.zeros_like(g)) + (1 - r.betas[0]) * g
        s["v"] = r.betas[1] * s.get("v", torch.zeros_like(g)) + (1 - r.betas[1]) * g * g
        root = (s["v"] / (1 - r.betas[1] ** t)).sqrt() + r.adam_eps
        b1 = r.betas[0]
        first = s["m"] / (1 - b1**t)
        if r.ahead:
            first = b1 * s["m"] / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
        p.copy_((1 - lr * decay) * p - lr * first / root)

"""The published code of Keller Jordan's Muon with auxiliary Adam and of Moonlight's Muon, written
down here in plain PyTorch, beside the recipes keller and moonlight. Both iterate in f32 here."""
import math

import pytest

from beside import MATRICES, assert_beside, gradients, start, train_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from muonium.torch import Muon  # noqa: E402

torch.set_num_threads(1)
SHAPES = {**MATRICES, "vector": (33,)}


def zeropower(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.mT if g.size(-2) > g.size(-1) else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if g.size(-2) > g.size(-1) else x


class Keller:
    """SingleDeviceMuonWithAuxAdam: groups with use_muon have lr, momentum and weight_decay, the
    others lr, betas, eps and weight_decay."""

    def __init__(self, groups):
        self.groups, self.state = groups, {}

    @torch.no_grad()
    def step(self):
        for group in self.groups:
            for p in group["params"]:
                s = self.state.setdefault(p, {"step": 0, "m": torch.zeros_like(p),
                                              "v": torch.zeros_like(p)})
                s["step"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                if group["use_muon"]:
                    s["m"].lerp_(p.grad, 1 - group["momentum"])
                    update = zeropower(p.grad.lerp(s["m"], group["momentum"]))
                    update = update * max(1, p.size(-2) / p.size(-1)) ** 0.5
                else:
                    b1, b2 = group["betas"]
                    s["m"].lerp_(p.grad, 1 - b1)
                    s["v"].lerp_(p.grad.square(), 1 - b2)
                    update = (s["m"] / (1 - b1 ** s["step"])) / (
                        (s["v"] / (1 - b2 ** s["step"])).sqrt() + group["eps"])
                p.add_(update, alpha=-group["lr"])


class Moonlight:
    def __init__(self, muon, adam, lr=1e-3, wd=0.1, momentum=0.95, betas=(0.9, 0.95), eps=1e-8):
        self.muon, self.adam, self.state = muon, adam, {}
        self.lr, self.wd, self.momentum, self.betas, self.eps = lr, wd, momentum, betas, eps

    @torch.no_grad()
    def step(self):
        for p in self.muon:
            m = self.state.setdefault(p, torch.zeros_like(p))
            m.mul_(self.momentum).add_(p.grad)
            update = zeropower(p.grad.add(m, alpha=self.momentum))
            p.mul_(1 - self.lr * self.wd)
            p.add_(update, alpha=-self.lr * 0.2 * math.sqrt(max(p.shape)))
        for p in self.adam:
            s = self.state.setdefault(p, [0, torch.zeros_like(p), torch.zeros_like(p)])
            s[0] += 1
            (b1, b2), t = self.betas, s[0]
            s[1].lerp_(p.grad, 1 - b1)
            s[2].lerp_(p.grad.square(), 1 - b2)
            scale = (1 - b1**t) / (1 - b2**t) ** 0.5
            p.mul_(1 - self.lr * self.wd)
            p.add_(s[1] / (self.eps + s[2].sqrt()), alpha=-self.lr / scale)


@pytest.mark.parametrize("adam", [
    {}, {"lr": 1e-3}, {"lr": 1e-2, "weight_decay": 0.2, "betas": (0.8, 0.9), "eps": 1e-2}])
@pytest.mark.parametrize("muon", [{}, {"lr": 0.05, "weight_decay": 0.1, "momentum": 0.8}])
def test_keller(muon, adam):
    def groups(named, muon_defaults, adam_defaults):
        matrices = [p for p in named.values() if p.ndim == 2]
        return [{"params": matrices, "use_muon": True, **muon_defaults, **muon},
                {"params": [named["vector"]], "use_muon": False, **adam_defaults, **adam}]

    weights, grads = start(SHAPES), gradients(SHAPES)
    expected = train_torch(weights, grads, lambda named: Keller(groups(
        named, {"lr": 0.02, "weight_decay": 0, "momentum": 0.95},
        {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-10, "weight_decay": 0})))
    found = train_torch(weights, grads, lambda named: Muon(
        groups(named, {}, {}), recipe="keller", precision="f32"))
    assert_beside(found, expected, weights)


@pytest.mark.parametrize("options", [{}, {"lr": 0.02, "momentum": 0.8}])
def test_moonlight(options):
    weights, grads = start(SHAPES), gradients(SHAPES)
    expected = train_torch(weights, grads, lambda named: Moonlight(
        [p for p in named.values() if p.ndim == 2], [named["vector"]], **options))
    found = train_torch(weights, grads, lambda named: Muon(
        named.items(), recipe="moonlight", precision="f32", **options))
    assert_beside(found, expected, weights)

"""Published code that no package has, written down here in plain PyTorch, beside the recipes keller,
moonlight, motif, fp32 and fp16: in f32, and in the types in which the originals iterate."""
import math

import pytest
import torch

from beside import BF16, F16, F32, MATRICES, assert_beside, gradients, start, train_torch

import muonium
from muonium.torch import Muon

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:the parameters have no names")
SHAPES = {**MATRICES, "vector": (33,)}
ORIGINAL = (3.4445, -4.7750, 2.0315)


# ---- the iterations, each with the operations of its original, which decide what is rounded ----


def oriented(g, iterate, dtype):
    x = g.to(dtype)
    x = iterate(x.mT if x.size(-2) > x.size(-1) else x)
    return (x.mT if g.size(-2) > g.size(-1) else x).to(g.dtype)


def keller(g, dtype=torch.bfloat16, steps=5):
    """Also Moonlight's."""
    def iterate(x):
        a, b, c = ORIGINAL
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(steps):
            gram = x @ x.mT
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x
    return oriented(g, iterate, dtype)


def motif(g, dtype=torch.bfloat16, steps=5):
    def iterate(x):
        x = x / (x.norm() + 1e-7)
        for a, b, c in muonium.polar_express(10)[:steps]:
            gram = x @ x.T
            square = gram @ gram.T
            # gram.mul_(b).add_(square, alpha=c) as GPUs compute it: the CPU rounds alpha to bf16.
            both = (gram.mul_(b).float() + c * square.float()).to(dtype)
            x = torch.addmm(x, both, x, alpha=1.0, beta=a)
        return x
    return oriented(g, iterate, dtype)


def wrapper(g, dtype, steps=5):
    """The norm of the gradient is taken in f32. In f16 all three coefficients are divided."""
    def iterate(x):
        a, b, c = (n / 1.02 for n in ORIGINAL) if dtype is torch.float16 else ORIGINAL
        x = (x.float() / (x.float().norm() + 1e-7)).to(dtype)
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * (gram @ gram)) @ x
        return x
    return oriented(g, iterate, dtype)


# ---- the optimizers ----


class Keller:
    """SingleDeviceMuonWithAuxAdam: groups with use_muon have lr, momentum and weight_decay, the
    others lr, betas, eps and weight_decay."""

    def __init__(self, groups, dtype):
        self.groups, self.state, self.dtype = groups, {}, dtype

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
                    update = p.grad.lerp(s["m"], group["momentum"])
                    update = keller(update, self.dtype) * max(1, p.size(-2) / p.size(-1)) ** 0.5
                else:
                    b1, b2 = group["betas"]
                    s["m"].lerp_(p.grad, 1 - b1)
                    s["v"].lerp_(p.grad.square(), 1 - b2)
                    update = (s["m"] / (1 - b1 ** s["step"])) / (
                        (s["v"] / (1 - b2 ** s["step"])).sqrt() + group["eps"])
                p.add_(update, alpha=-group["lr"])


class Plain:
    """Steps of the size of AdamW's for 2-D parameters, and AdamW for the others."""

    def __init__(self, params, iterate, lr, weight_decay, momentum=0.95, lerp=False, nesterov=True,
                 adam_lr_scale=1.0, betas=(0.9, 0.95), eps=1e-8):
        self.muon = [p for p in params if p.ndim == 2]
        self.adam = torch.optim.AdamW([p for p in params if p.ndim != 2], lr * adam_lr_scale, betas,
                                      eps, weight_decay)
        self.iterate, self.lerp, self.nesterov = iterate, lerp, nesterov
        self.lr, self.decay, self.momentum, self.state = lr, weight_decay, momentum, {}

    @torch.no_grad()
    def step(self):
        for p in self.muon:
            m = self.state.setdefault(p, torch.zeros_like(p))
            update = m
            if self.lerp:
                m.lerp_(p.grad, 1 - self.momentum)
                update = p.grad.lerp(m, self.momentum) if self.nesterov else m
            else:
                m.mul_(self.momentum).add_(p.grad)
                update = p.grad.add(m, alpha=self.momentum) if self.nesterov else m
            update = self.iterate(update)
            p.mul_(1 - self.lr * self.decay)
            p.add_(update, alpha=-self.lr * 0.2 * math.sqrt(max(p.shape)))
        self.adam.step()


# ---- beside the recipes ----

PRECISIONS = {"f32": (torch.float32, F32), "bf16": (torch.bfloat16, BF16),
              "f16": (torch.float16, F16)}


@pytest.mark.parametrize("adam", [
    {}, {"lr": 1e-3}, {"lr": 1e-2, "weight_decay": 0.2, "betas": (0.8, 0.9), "eps": 1e-2}], ids=str)
@pytest.mark.parametrize("muon", [{}, {"lr": 0.05, "weight_decay": 0.1, "momentum": 0.8}], ids=str)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_keller(muon, adam, precision):
    def groups(named, muon_defaults, adam_defaults):
        matrices = [p for p in named.values() if p.ndim == 2]
        return [{"params": matrices, "use_muon": True, **muon_defaults, **muon},
                {"params": [named["vector"]], "use_muon": False, **adam_defaults, **adam}]

    weights, grads = start(SHAPES), gradients(SHAPES)
    dtype, tolerance = PRECISIONS[precision]
    expected = train_torch(weights, grads, lambda named: Keller(groups(
        named, {"lr": 0.02, "weight_decay": 0, "momentum": 0.95},
        {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-10, "weight_decay": 0}), dtype))
    found = train_torch(weights, grads, lambda named: Muon(
        groups(named, {}, {}), recipe="keller", precision=precision))
    assert_beside(found, expected, weights, tolerance)


def compare(recipe, precision, iterate, defaults, options, ours=None):
    weights, grads = start(SHAPES), gradients(SHAPES)
    dtype, tolerance = PRECISIONS[precision]
    expected = train_torch(weights, grads, lambda named: Plain(
        list(named.values()), lambda g: iterate(g, dtype), **{**defaults, **options}))
    found = train_torch(weights, grads, lambda named: Muon(
        named.items(), recipe=recipe, precision=precision, **(options if ours is None else ours)))
    assert_beside(found, expected, weights, tolerance)


OPTIONS = [{}, {"lr": 0.02, "momentum": 0.8}, {"nesterov": False}, {"weight_decay": 0.3},
           {"betas": (0.8, 0.99)}, {"adam_lr_scale": 0.3}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_moonlight(precision, options):
    compare("moonlight", precision, keller, {"lr": 1e-3, "weight_decay": 0.1}, options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_motif(precision, options):
    compare("motif", precision, motif, {"lr": 0.02, "weight_decay": 0, "lerp": True}, options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("mode", ["fp32", "fp16"])
def test_wrapper(mode, options):
    precision = {"fp32": "f32", "fp16": "f16"}[mode]
    compare(None, precision, wrapper, {"lr": 3e-4, "weight_decay": 0.01}, options,
            {**options, "ns_mode": mode, "grouped_ns": True})


def test_iterations_of_the_wrapper():
    compare("fp32", "f32", lambda g, dtype: wrapper(g, dtype, 7), {"lr": 3e-4, "weight_decay": 0.01},
            {}, {"ns_iters": 7})

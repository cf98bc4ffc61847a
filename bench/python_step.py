#!/usr/bin/env python3
"""muonium.torch.Muon beside a plain-torch Muon on the shapes of GPT-2 small, in one run.

    PYTHONPATH=python python3 bench/python_step.py [--layers 12] [--repeat 5] [--threads N]

Every contestant gets the same parameters and gradients and takes a step in turn; times are
the best and the median of all rounds, or of the first step alone where that takes longer
than 20 seconds. Embeddings, norms and biases go to AdamW everywhere. Where torch has no
fast bf16 products for the CPU a step takes half an hour, so plain torch in bf16 does one
layer, and its time is multiplied by the layers.
The second table is the cost of a step that has next to nothing to compute, and of making
one optimizer per parameter.
"""

import argparse
import os
import pathlib
import platform
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests/support"))

import torch_isa  # noqa: E402

torch_isa.prepare()

import torch  # noqa: E402

import muonium  # noqa: E402


def gpt2_shapes(layers):
    shapes = {"wte.embedding": (50257, 768), "wpe.embedding": (1024, 768)}
    for i in range(layers):
        shapes.update({f"h.{i}.attn.qkv": (2304, 768), f"h.{i}.attn.out": (768, 768),
                       f"h.{i}.mlp.up": (3072, 768), f"h.{i}.mlp.down": (768, 3072)})
        for name, size in (("attn.qkv", 2304), ("attn.out", 768), ("mlp.up", 3072),
                           ("mlp.down", 768), ("ln_1", 768), ("ln_2", 768)):
            shapes[f"h.{i}.{name}.bias"] = (size,)
    return shapes


class PlainMuon:
    """Muon one tensor at a time with torch's operations, and torch's own AdamW."""

    def __init__(self, named, dtype):
        self.dtype = dtype
        self.matrices = [p for name, p in named if p.ndim == 2 and "embedding" not in name]
        muon = {id(p) for p in self.matrices}
        self.momentum = [torch.zeros_like(p) for p in self.matrices]
        self.adam = torch.optim.AdamW([p for _, p in named if id(p) not in muon], lr=1e-3,
                                      betas=(0.9, 0.95), weight_decay=0.1)

    @torch.no_grad()
    def step(self):
        for p, m in zip(self.matrices, self.momentum):
            m.lerp_(p.grad, 0.05)
            x = p.grad.lerp(m, 0.95).to(self.dtype)
            tall = x.shape[0] > x.shape[1]
            x = x.T if tall else x
            x = x / x.norm().clamp(min=1e-7)
            for _ in range(5):
                gram = x @ x.T
                x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x,
                                beta=3.4445)
            x = x.T if tall else x
            scale = max(1, p.shape[0] / p.shape[1]) ** 0.5
            p.mul_(1 - 1e-3 * 0.1).add_(x, alpha=-1e-3 * scale)
        self.adam.step()


PATIENCE = 20  # seconds


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def contest(contestants, rounds):
    """(best, median) seconds per step by name; all take turns, so that drift hits all."""
    times = {name: [seconds(optimizer.step)] for name, optimizer in contestants.items()}
    quick = {name: o for name, o in contestants.items() if times[name][0] < PATIENCE}
    for name in quick:
        times[name].clear()  # it was the first, which allocates
    for _ in range(rounds):
        for name, optimizer in quick.items():
            times[name].append(seconds(optimizer.step))
    return {name: (min(t), statistics.median(t)) for name, t in times.items()}


def compare(arguments):
    torch.manual_seed(1)
    named = [(name, torch.nn.Parameter(0.02 * torch.randn(shape)))
             for name, shape in gpt2_shapes(arguments.layers).items()]
    for _, p in named:
        p.grad = 1e-3 * torch.randn(p.shape)
    found = contest({
        "muonium.torch.Muon, f32": muonium.torch.Muon(named, precision="f32"),
        "muonium.torch.Muon, recipe muonium": muonium.torch.Muon(named, recipe="muonium"),
        "muonium.torch.Muon, bf16 as torch rounds": muonium.torch.Muon(named),
        "plain torch, f32": PlainMuon(named, torch.float32),
    }, arguments.repeat)
    layer = [(name, p) for name, p in named if name.startswith("h.0.")]
    slow = {"plain torch, bf16": PlainMuon(layer, torch.bfloat16)}
    if hasattr(torch.optim, "Muon"):  # from torch 2.9 on
        slow["torch.optim.Muon"] = torch.optim.Muon([p for _, p in layer if p.ndim == 2])
    for name, times in contest(slow, arguments.repeat).items():
        found[f"{name} (a layer, times the layers)"] = [arguments.layers * t for t in times]
    fastest = found["muonium.torch.Muon, f32"][0]
    print(f"\nGPT-2 small, {arguments.layers} layers, "
          f"{sum(p.numel() for _, p in named) / 1e6:.0f} M parameters, {arguments.repeat} rounds\n")
    print("| one step | best, ms | median, ms | times the first |\n|---|---|---|---|")
    for name, (best, median) in found.items():
        print(f"| {name} | {1e3 * best:.0f} | {1e3 * median:.0f} | {best / fastest:.2f} |")


def overhead():
    def best(function, rounds=50):
        return min(contest({"": type("", (), {"step": staticmethod(function)})}, rounds)[""])

    print("\n| overhead | us |\n|---|---|")
    for count in (1, 10, 100, 1000):
        params = [torch.nn.Parameter(torch.zeros(1)) for _ in range(count)]
        for p in params:
            p.grad = torch.ones(1)
        spent = 1e6 * best(muonium.torch.Muon(params).step)
        print(f"| a step of {count} parameters of one element | {spent:.0f} |")
    made = []
    spent = seconds(lambda: made.extend(muonium.torch.Muon([p]) for p in params))
    print(f"| making an optimizer for one of 1000 | {1e3 * spent:.0f} |")
    print(f"| a step of one of 1000 | "
          f"{1e3 * best(lambda: [optimizer.step() for optimizer in made], 5):.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    muonium.set_threads(arguments.threads)
    info = muonium.info()
    print(f"muonium {info['version']} ({info['kernel']}), torch {torch.__version__}, "
          f"{arguments.threads} threads, {platform.processor() or platform.machine()}, "
          f"Python {platform.python_version()}")
    compare(arguments)
    overhead()


if __name__ == "__main__":
    main()

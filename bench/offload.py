#!/usr/bin/env python3
"""offload.py [--width 1024] [--layers 8] [--batch 1024] [--steps 6]: how much of OffloadMuon's copying is hidden.

A chain of linear layers in bf16 is trained on the CPU device, where a thread copies as a stream of a GPU would. For
each direction the overlap is 1 - waited / copied: the part of the time of copies during which nobody
waited for them. Needs PyTorch:

    ~/.cache/muonium/compare/bin/python bench/offload.py

It prints a table for bench/results.
"""
import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python")]
sys.path.append(str(ROOT / "tests/support"))

import torch_isa  # noqa: E402

torch_isa.prepare()

import torch  # noqa: E402

import muonium  # noqa: E402
from muonium.torch import OffloadMuon  # noqa: E402


def overlap(width, layers, batch, steps, bucket_bytes=4 << 20, dtype=torch.bfloat16):
    """{direction: (copied, waited, overlap)} of `steps` steps after a first one, in seconds."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers))).to(dtype)
    optimizer = OffloadMuon(model.named_parameters(), lr=1e-3, recipe="muonium", bucket_bytes=bucket_bytes)
    x = torch.randn(batch, width).to(dtype)
    before = {}
    for step in range(steps + 1):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        before = before or optimizer.counters()
    after = optimizer.counters()
    found = {}
    for direction in ("gradient", "return"):
        copied, waited = (after[f"{direction}_{what}"] - before[f"{direction}_{what}"]
                          for what in ("copy_seconds", "copy_waited_seconds"))
        found[direction] = copied, waited, 1 - waited / copied
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    info = muonium.info()
    print(f"muonium {info['version']}, {info['kernel']}, {info['threads']} threads; torch {torch.__version__}, "
          f"{torch.get_num_threads()} threads\n")
    print(f"| {arguments.layers} layers of {arguments.width} × {arguments.width}, bf16, {arguments.steps} steps "
          "| copied, ms | waited, ms | overlap |\n|---|---|---|---|")
    for direction, (copied, waited, hidden) in overlap(**vars(arguments)).items():
        what = {"gradient": "gradients to the host", "return": "parameters back"}[direction]
        print(f"| {what} | {copied * 1e3:.1f} | {waited * 1e3:.1f} | {hidden:.0%} |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Train a small GPT in PyTorch on the CPU with AdamW and with Muonium, side by side.

    python3 examples/torch/train.py                        # both, 150 steps each
    python3 examples/torch/train.py --lr-muon 0.02 --steps 300

Both runs have the same initial weights, batches and schedule. The line that makes the optimizer is the only
difference. The text is that of `muonium demo`.
"""
import argparse
import pathlib
import time

import torch
from torch import nn
from torch.nn import functional as F

import muonium.torch

TEXT = pathlib.Path(__file__).resolve().parent.parent / "gpt/data/austen.txt"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        batch, context, width = x.shape
        q, k, v = (part.view(batch, context, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm_attention(x)).split(width, dim=2))
        score = q @ k.transpose(2, 3) * (width // self.heads) ** -0.5
        hidden = torch.ones(context, context, dtype=torch.bool).triu(1)
        mixed = F.softmax(score.masked_fill(hidden, float("-inf")), dim=-1) @ v
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, context, width))
        return x + self.down(F.gelu(self.up(self.norm_mlp(x))))


class GPT(nn.Module):
    def __init__(self, characters, width=128, layers=4, heads=4, context=64):
        super().__init__()
        self.token_embedding = nn.Embedding(characters, width)
        self.position_embedding = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)

    def forward(self, tokens):
        x = self.token_embedding(tokens) + self.position_embedding.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def make_optimizer(name, model, lr, weight_decay=0.01):
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=weight_decay)
    # The fused query, key and value are three matrices: each is orthogonalised by itself.
    named = list(model.named_parameters())
    width = model.head.in_features
    groups = [{"params": [(n, p) for n, p in named if "qkv" in n], "row_splits": [width] * 3},
              {"params": [(n, p) for n, p in named if "qkv" not in n]}]
    return muonium.torch.Muon(groups, lr=lr, weight_decay=weight_decay, recipe="muonium")


def batches(text, count, size, context, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        start = torch.randint(len(text) - context - 1, (size,), generator=generator)
        window = torch.stack([text[i : i + context + 1] for i in start])
        yield window[:, :-1], window[:, 1:]


def loss_of(model, inputs, targets):
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def evaluate(model, text):
    with torch.no_grad():
        return sum(loss_of(model, *batch).item() for batch in batches(text, 8, 64, 64, seed=2)) / 8


def warm_up_momentum(optimizer, step, steps, first=0.85, last=0.95):
    """Before a step, from 0: raise the momentum of Muon on a straight line, as nanochat does over 300 steps."""
    for group in optimizer.param_groups:
        group["momentum"] = first + (last - first) * min(step / steps, 1)


def train(name, lr, steps, training, validation, characters, momentum_steps=0):
    """The validation loss after every tenth step, and seconds of the whole and of the optimizer."""
    torch.manual_seed(1)
    model = GPT(characters)
    optimizer = make_optimizer(name, model, lr)
    warmup = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / (steps - warmup)))
    losses, begin, stepping = [], time.perf_counter(), 0.0
    for step, batch in enumerate(batches(training, steps, 32, 64, seed=1), 1):
        if momentum_steps > 0 and name != "adamw":
            warm_up_momentum(optimizer, step - 1, momentum_steps)
        optimizer.zero_grad()
        loss_of(model, *batch).backward()
        moment = time.perf_counter()
        optimizer.step()
        stepping += time.perf_counter() - moment
        schedule.step()
        if step % 10 == 0 or step == steps:
            losses.append((step, evaluate(model, validation)))
    return losses, time.perf_counter() - begin, stepping


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--lr-adamw", type=float, default=0.003)
    parser.add_argument("--lr-muon", type=float, default=0.02)
    parser.add_argument("--momentum-steps", type=int, default=0, metavar="N",
                        help="raise Muon's momentum from 0.85 to 0.95 over N steps")
    arguments = parser.parse_args()
    if arguments.steps < 2:
        parser.error(f"--steps is {arguments.steps}: give at least 2")

    text = TEXT.read_text("utf-8")
    alphabet = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([alphabet[character] for character in text])
    cut = len(tokens) * 9 // 10
    results = {}
    for name, lr in (("adamw", arguments.lr_adamw), ("muonium", arguments.lr_muon)):
        losses, seconds, stepping = train(name, lr, arguments.steps, tokens[:cut], tokens[cut:], len(alphabet),
                                          arguments.momentum_steps)
        results[name] = losses
        print(f"{name:8} lr {lr:g}: loss {losses[-1][1]:.3f} after {arguments.steps} steps, "
              f"{seconds:.0f} s, {100 * stepping / seconds:.0f} % of it in the optimizer", flush=True)
    goal = results["adamw"][-1][1]
    reached = next((step for step, loss in results["muonium"] if loss <= goal), None)
    print(f"muonium reaches AdamW's final loss in {reached} steps" if reached
          else "muonium does not reach AdamW's final loss: try other rates")


main()
